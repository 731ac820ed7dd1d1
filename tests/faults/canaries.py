"""What no job may read or change, and how it would be noticed: files of the host with secret words in them."""

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
    """Secrets of the host by their paths, with the words that are in them, and the folder that nobody may change."""

    place: Place
    yard: RunningYard
    folder: Path
    words: dict[str, str]
    before: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def secrets(self) -> Sequence[str]:
        return list(self.words)

    def require_untouched(self, trainee: Trainee, name: str) -> None:
        """AssertionError when the code of a job that has ended has read or changed anything, or has left anything."""
        found = published(trainee, name)
        leaked = {path for path, word in self.words.items() for text in found.values() if word.encode() in text}
        assert leaked == set(), (leaked, [line for line in trainee.lines(name) if line.startswith(LOOTED)])
        now = state_of(self.folder)
        changed = {path for path in {*now, *self.before} if now.get(path) != self.before.get(path)}
        self.before.clear()  # so that the next trap is not blamed for this one
        self.before.update(now)
        assert changed == set(), changed
        assert mounts_below(self.place.folder) == [], mounts_below(self.place.folder)
        left: list[str] = []

        def is_gone() -> bool:
            left[:] = processes_of(self.yard, name)
            return not left

        try:
            # A cluster ends what is left of an attempt after its job is told as ended.
            eventually(is_gone, within=timedelta(seconds=90))
        except AssertionError as error:
            raise AssertionError(f"these go on after their job: {left}") from error


@contextmanager
def canaries(place: Place, yard: RunningYard, *, neighbour: Trainee, changes: Mapping[str, Any]) -> Iterator[Canaries]:
    """A folder and a secret of the yard's own user, the administrator's key, and a secret in a job of another user.

    `changes` are what every request has on that yard.
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
    """What makes whoever has it the user of every node of a cluster; where a program might find it."""
    return {"/proc/self/environ": os.environ["TRAINYARD_SERVER_RAY_TOKEN"]} if engine_of_tests() == "ray" else {}


def state_of(folder: Path) -> dict[str, tuple[Any, ...]]:
    """All that could be changed of a tree, by path."""
    return {str(path): _state(path) for path in (folder, *sorted(folder.rglob("*")))}


def mounts_below(folder: Path) -> list[str]:
    """The places below a folder that something is mounted on, where everybody sees it."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if line.split()[4].startswith(f"{folder}/")]


def published(trainee: Trainee, name: str) -> dict[str, bytes]:
    """All that a user is told of a job, and all that it stored: archives as what is in them."""
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
