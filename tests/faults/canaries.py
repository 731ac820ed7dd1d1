"""Files of the host with secret words that no job may read or change, and checks that detect either."""

import gzip
import hashlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.faults.traps import LOOTED
from tests.system.trainees import Trainee
from tests.system.watching import place_of, processes_of
from tests.system.yards import Place
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, engine_of_tests

NEIGHBOUR = """
import sys, time
open("/opt/ml/model/secret", "w").write(sys.argv[-1])
print("ready", flush=True)
time.sleep(3600)
"""


@dataclass(frozen=True, slots=True)
class Canaries:
    """Secrets of the host by path, with the words they contain, and the folder that must not change."""

    place: Place
    yard: RunningYard
    folder: Path
    words: dict[str, str]
    before: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def secrets(self) -> Sequence[str]:
        return list(self.words)

    def require_untouched(self, trainee: Trainee, name: str) -> None:
        """Raise an AssertionError if the code of an ended job read or changed anything, or left anything behind."""
        found = published(trainee, name)
        leaked = {path for path, word in self.words.items() for text in found.values() if word.encode() in text}
        assert leaked == set(), (leaked, [line for line in trainee.lines(name) if line.startswith(LOOTED)])
        now = state_of(self.folder)
        changed = {path for path in {*now, *self.before} if now.get(path) != self.before.get(path)}
        # Do not blame the next trap for this one.
        self.before.clear()
        self.before.update(now)
        assert changed == set(), changed
        assert mounts_below(self.place.folder) == [], mounts_below(self.place.folder)
        left: list[str] = []

        def is_gone() -> bool:
            left[:] = processes_of(self.yard, name)
            return not left

        try:
            # A cluster ends the rest of an attempt after it has reported the end of its job.
            eventually(is_gone, within=timedelta(seconds=90))
        except AssertionError as error:
            raise AssertionError(f"these processes outlive their job: {left}") from error


@contextmanager
def canaries(place: Place, yard: RunningYard, *, neighbour: Trainee, changes: Mapping[str, Any]) -> Iterator[Canaries]:
    """Create a folder and a secret of the yard's own user, the administrator's key, and a secret in another user's job.

    `changes` are merged into every request to that yard.
    """
    folder = place.home_of_user / "canary"
    word, foreign = uuid.uuid4().hex, uuid.uuid4().hex
    (folder / "open").mkdir(parents=True)
    (folder / "secret").write_text(word)
    (folder / "open" / "file").write_text("of the host")
    for path, mode in ((folder / "secret", 0o600), (folder / "open" / "file", 0o644), (folder / "open", 0o755)):
        path.chmod(mode)
        place.give(path)
    place.give(folder)
    parameters = neighbour.request("neighbour", NEIGHBOUR)["HyperParameters"] | {"word": foreign}
    lasting = {"HyperParameters": parameters, "StoppingCondition": {"MaxRuntimeInSeconds": 24 * 3600}}
    neighbour.start("neighbour", NEIGHBOUR, **{**changes, **lasting})
    neighbour.await_line("neighbour", "ready")
    words = {
        str(folder / "secret"): word,
        str(yard.home.credentials_file): yard.credentials.secret_access_key,
        str(place_of(yard, "neighbour").ml / "model/secret"): foreign,
        **_token_of_ray(),
    }
    yield Canaries(place, yard, folder, words, state_of(folder))
    told = neighbour.describe("neighbour")
    assert told["TrainingJobStatus"] == "InProgress", (told.get("FailureReason"), neighbour.lines("neighbour"))
    neighbour.sagemaker.stop_training_job(TrainingJobName="neighbour")
    neighbour.reach("neighbour", "Stopped")


def _token_of_ray() -> dict[str, str]:
    """Return Ray's token, which gives control of every node of a cluster, and where a program might find it."""
    return {"/proc/self/environ": os.environ["TRAINYARD_SERVER_RAY_TOKEN"]} if engine_of_tests() == "ray" else {}


def state_of(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Return everything in a tree that could change, by path."""
    return {str(path): _state(path) for path in (folder, *sorted(folder.rglob("*")))}


def mounts_below(folder: Path) -> list[str]:
    """Return the places below a folder that are mount points in the namespace of the host."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if line.split()[4].startswith(f"{folder}/")]


def published(trainee: Trainee, name: str) -> dict[str, bytes]:
    """Return all that a user can learn about a job, and all that it stored, with archives unpacked."""
    found = {"description": repr(trainee.describe(name)).encode()}
    for number, stream in enumerate(trainee.streams(name)):
        found[stream] = "\n".join(trainee.lines(name, instance=number)).encode()
    s3 = trainee.user.client("s3")
    for key in trainee.keys(""):
        if f"{name}/" in key and "/source/" not in key:
            body = s3.get_object(Bucket=trainee.bucket, Key=key)["Body"].read()
            found[key] = gzip.decompress(body) if key.endswith(".gz") else body
    return found


def _state(path: Path) -> tuple[Any, ...]:
    told = path.lstat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return told.st_mode, told.st_uid, told.st_gid, told.st_nlink, told.st_mtime_ns, content, *os.listxattr(path)
