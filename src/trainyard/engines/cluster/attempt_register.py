"""The attempts that have something on the nodes of a cluster: one small file each, for as long as they do.

After a restart the proxy finds here everything that it has to look after, without searching all past attempts.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from trainyard.engines.cluster.contract import InstancePlacement
from trainyard.engines.contract import AttemptRef, InstanceRef
from trainyard.foundation.errors import Corrupt
from trainyard.foundation.files import make_folder, replace_file, sync_folder
from trainyard.link.contract import LimitSpec

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class RegisteredAttempt:
    """An attempt and the placements of its instances. The first instance of the job comes first."""

    attempt: AttemptRef
    placements: Sequence[InstancePlacement]
    lease_s: int
    doorbell: str = ""


class AttemptRegister:
    """The registered attempts in one folder, which one proxy at a time changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, engine: Path) -> Self:
        """Return the register in the folder of an engine."""
        return cls(engine / "live")

    def add(self, entry: RegisteredAttempt) -> None:
        """Register an attempt before anything of it exists; it is on disk when this returns."""
        make_folder(self._folder, parents=True)
        replace_file(self._file(entry.attempt), json.dumps(_to_json(entry)).encode())

    def remove(self, attempt: AttemptRef) -> None:
        """Remove an attempt of which nothing is left on any node."""
        self._file(attempt).unlink(missing_ok=True)
        sync_folder(self._folder)

    def has(self, attempt: AttemptRef) -> bool:
        return self._file(attempt).exists()

    def entries(self) -> Iterator[RegisteredAttempt]:
        if not self._folder.exists():
            return
        for file in sorted(self._folder.iterdir()):
            if file.suffix == _SUFFIX:
                yield _read_entry(file)

    def _file(self, attempt: AttemptRef) -> Path:
        return self._folder / f"{attempt.job_id}-{attempt.attempt}{_SUFFIX}"


def _to_json(entry: RegisteredAttempt) -> dict[str, Any]:
    values = dataclasses.asdict(entry)
    values["seats"] = values.pop("placements")
    return values


def _read_entry(file: Path) -> RegisteredAttempt:
    try:
        values = json.loads(file.read_bytes())
        attempt = AttemptRef(**values["attempt"])
        placements = tuple(_placement(attempt, each) for each in values["seats"])
        return RegisteredAttempt(attempt, placements, values["lease_s"], values["doorbell"])
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{file} does not say where an attempt was placed: {error}.") from error


def _placement(attempt: AttemptRef, values: Mapping[str, Any]) -> InstancePlacement:
    limits = dict(values["limits"])
    gpus = tuple(limits.pop("gpus"))
    instance = InstanceRef(attempt, values["instance"]["name"])
    return InstancePlacement(instance, values["node"], LimitSpec(**limits, gpus=gpus))
