"""Which attempts have something on the nodes of a cluster: one small file each, for as long as that is so.

A ferry that is started anew finds here all that it has to look after, without a look at what has been.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from trainyard.engines.cluster.contract import Seat
from trainyard.engines.contract import AttemptRef, InstanceRef
from trainyard.foundation.errors import Corrupt
from trainyard.foundation.files import make_folder, replace_file, sync_folder
from trainyard.link.contract import LimitSpec

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Entry:
    """An attempt that was placed: where its instances are, the first of the job before the others."""

    attempt: AttemptRef
    seats: Sequence[Seat]
    lease_s: int
    doorbell: str = ""


class Register:
    """The entries in one folder, which one ferry at a time changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, engine: Path) -> Self:
        """The register in the folder of an engine."""
        return cls(engine / "live")

    def enter(self, entry: Entry) -> None:
        """Remember an attempt, before anything of it exists; it is on disk when this returns."""
        make_folder(self._folder, parents=True)
        replace_file(self._file(entry.attempt), json.dumps(dataclasses.asdict(entry)).encode())

    def strike(self, attempt: AttemptRef) -> None:
        """Forget an attempt of which nothing is left on any node."""
        self._file(attempt).unlink(missing_ok=True)
        sync_folder(self._folder)

    def has(self, attempt: AttemptRef) -> bool:
        return self._file(attempt).exists()

    def entries(self) -> Iterator[Entry]:
        if not self._folder.exists():
            return
        for file in sorted(self._folder.iterdir()):
            if file.suffix == _SUFFIX:
                yield _entry(file)

    def _file(self, attempt: AttemptRef) -> Path:
        return self._folder / f"{attempt.job_id}-{attempt.attempt}{_SUFFIX}"


def _entry(file: Path) -> Entry:
    try:
        values = json.loads(file.read_bytes())
        attempt = AttemptRef(**values["attempt"])
        seats = tuple(_seat(attempt, each) for each in values["seats"])
        return Entry(attempt, seats, values["lease_s"], values["doorbell"])
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{file} does not say where an attempt was placed: {error}.") from error


def _seat(attempt: AttemptRef, values: Mapping[str, Any]) -> Seat:
    limits = dict(values["limits"])
    gpus = tuple(limits.pop("gpus"))
    return Seat(InstanceRef(attempt, values["instance"]["name"]), values["node"], LimitSpec(**limits, gpus=gpus))
