"""Observe a yard and its jobs from outside: its answers, the frames of its agents, and its processes."""

import os
import statistics
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from tests.system.trainees import Trainee
from trainyard.foundation.home import process_start
from trainyard.link.agent_process import ProcessIdentity, find_agent_process
from trainyard.link.contract import FrameKind
from trainyard.link.folders import InstanceFolder
from trainyard.link.specs import read_spec
from trainyard.link.spool import read_frames
from trainyard.link.warm import WorkerFolder, read_worker
from trainyard.testing.yard import RunningYard, engine_of_tests

_PAUSE_S = 0.02


class Onlooker(threading.Thread):
    """A thread that observes for the length of a block, until `is_over` is set."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.is_over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_over.set()
        self.join(60)


class Watch(Onlooker):
    """Describes a job repeatedly for the length of a block; every missing answer is an error."""

    def __init__(self, trainee: Trainee, name: str) -> None:
        super().__init__()
        # Primary and secondary status, in order, without repetitions.
        self.statuses: list[tuple[str, str]] = []
        self.seconds: list[float] = []
        self.errors: list[str] = []
        self._client = trainee.sagemaker
        self._name = name

    @property
    def p99_s(self) -> float:
        return statistics.quantiles(self.seconds, n=100)[98] if len(self.seconds) > 1 else 0.0

    def run(self) -> None:
        while not self.is_over.wait(_PAUSE_S):
            begun = time.monotonic()
            try:
                told = self._client.describe_training_job(TrainingJobName=self._name)
            except (BotoCoreError, ClientError) as error:
                self.errors.append(str(error))
                continue
            self.seconds.append(time.monotonic() - begun)
            status = told["TrainingJobStatus"], told["SecondaryStatus"]
            if status not in self.statuses[-1:]:
                self.statuses.append(status)


def folders_of(yard: RunningYard, name: str) -> list[InstanceFolder]:
    """Return the folders of every attempt at the first instance of a job, in order."""
    found = [folder for folder in yard.home.jobs.glob("*/*/algo-1") if (folder / "spec.json").exists()]
    own = [InstanceFolder(folder) for folder in found if read_spec(folder).job_name == name]
    return sorted(own, key=lambda folder: int(folder.root.parent.name))


def folder_of(yard: RunningYard, name: str) -> InstanceFolder:
    """Return the folder of the last attempt."""
    return folders_of(yard, name)[-1]


def place_of(yard: RunningYard, name: str, *, instance: str = "algo-1") -> InstanceFolder:
    """Return the folder in which the last attempt at an instance runs; on a cluster, the one on its node."""
    kept = folder_of(yard, name).root.with_name(instance)
    return next(InstanceFolder(each) for each in _places(yard) if each.parts[-3:] == kept.parts[-3:])


def living_agents(yard: RunningYard, name: str = "") -> list[int]:
    """Return the process ids of living agents of the yard, or of one job, wherever they run."""
    places = [each for each in _places(yard) if not name or read_spec(each).job_name == name]
    found = [find_agent_process(each) for each in places]
    return [pid for presence in found if presence is not None for pid in _pids_of(presence)]


def was_started_warm(yard: RunningYard, name: str) -> bool:
    """Tell whether the program of the last attempt was forked from a warm worker."""
    frames = read_frames(folder_of(yard, name).spool, 0).frames
    return any("started warm" in frame.payload.get("text", "") for frame in frames)


def has_warm_worker(yard: RunningYard) -> bool:
    """Tell whether a warm worker waits for the next job, on any node."""
    folders = [WorkerFolder(each) for node in _nodes(yard) for each in node.glob("warm/*/*")]
    return any(worker is not None and _pids_of(worker.presence) for worker in map(read_worker, folders))


def card_of(yard: RunningYard, name: str) -> Mapping[str, Any]:
    """Return the failure card that the agent of a job left, or an empty one."""
    last = read_frames(folder_of(yard, name).spool, 0).frames[-1]
    assert last.kind is FrameKind.ENDED, last
    return last.payload["card"] or {}


def processes_of(yard: RunningYard, name: str) -> list[str]:
    """Return the command lines of all processes of a job, over all attempts.

    Whatever a program does to its name, its environment and its descriptors, it stays in a mount namespace that shows
    the folder of its job. Its agent has the lock of that folder open.
    """
    marks = {folder.root.parents[1].name.encode() for folder in folders_of(yard, name)}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and any(mark in _told_by(entry) for mark in marks):
            with suppress(OSError):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def _places(yard: RunningYard) -> list[Path]:
    """Return the folders in which instances run. On a cluster they are on the nodes, and the home has mirrors."""
    return [spec.parent for node in _nodes(yard) for spec in node.glob("jobs/*/*/*/spec.json")]


def _nodes(yard: RunningYard) -> list[Path]:
    """Return the folder of the yard on each node."""
    engine = engine_of_tests()
    if engine == "ray":
        mine = (yard.home.ray / "id").read_text()
        return list(Path(os.environ["TRAINYARD_SERVER_RAY_FOLDER"]).glob(f"*/{mine}"))
    return list((yard.home.root / "loopback" / "nodes").glob("*")) if engine == "loopback" else [yard.home.root]


def _pids_of(presence: ProcessIdentity) -> list[int]:
    """Return the process id on this machine, which differs for simulated machines; none if the process ended."""
    if presence.is_alive:
        return [presence.pid]
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    inside = (int(entry.name) for entry in entries if _innermost(entry) == presence.pid)
    return [pid for pid in inside if process_start(pid) == presence.started]


def _innermost(process: Path) -> int | None:
    with suppress(OSError):
        told = (process / "status").read_text().partition("\nNSpid:")[2]
        return int(told.split("\n")[0].split()[-1])
    return None


def _told_by(process: Path) -> bytes:
    told = b""
    with suppress(OSError):
        told += (process / "cmdline").read_bytes() + (process / "mountinfo").read_bytes()
        told += b" ".join(os.fsencode(link.readlink()) for link in (process / "fd").iterdir())
    return told
