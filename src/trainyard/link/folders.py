"""The layout of the folder of one instance: `<jobs>/<job id>/<attempt>/<instance>/`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trainyard.link.contract import InstanceSpec

# The same as in instance/sandbox/contract.py, which the yard may not import.
_ML = "/opt/ml"


@dataclass(frozen=True, slots=True, order=True)
class AttemptRef:
    """One attempt to run a job. Attempts count from 1."""

    job_id: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.job_id}/{self.attempt}"

    def folder(self, jobs: Path) -> Path:
        return jobs / self.job_id / str(self.attempt)

    def instances(self, jobs: Path) -> "list[InstanceFolder]":
        """Return the folder of every instance that was ever prepared; none if the attempt has no folder."""
        folder = self.folder(jobs)
        return [InstanceFolder(path) for path in sorted(folder.iterdir()) if path.is_dir()] if folder.exists() else []


@dataclass(frozen=True, slots=True, order=True)
class InstanceRef:
    """One instance of one attempt, such as algo-1."""

    attempt: AttemptRef
    name: str

    @classmethod
    def of(cls, spec: InstanceSpec) -> Self:
        return cls(AttemptRef(spec.job_id, spec.attempt), spec.instance)

    def folder(self, jobs: Path) -> "InstanceFolder":
        return InstanceFolder(self.attempt.folder(jobs) / self.name)


@dataclass(frozen=True, slots=True)
class InstanceFolder:
    """The layout of an instance's folder. Creating one of these touches nothing."""

    root: Path

    @classmethod
    def at(cls, path: str | Path) -> Self:
        return cls(Path(path).absolute())

    @property
    def spec(self) -> Path:
        """The InstanceSpec; written once, by the yard."""
        return self.root / "spec.json"

    @property
    def spool(self) -> Path:
        """The agent's frames."""
        return self.root / "spool"

    @property
    def mailbox(self) -> Path:
        """The yard's commands."""
        return self.root / "mailbox"

    @property
    def logs(self) -> Path:
        """Log segments with the program's stdout and stderr."""
        return self.root / "logs"

    @property
    def metrics(self) -> Path:
        """Metric points, one file per metric."""
        return self.root / "metrics"

    @property
    def hardware(self) -> Path:
        """Samples of the hardware, in segments. No program can change them."""
        return self.root / "hardware"

    @property
    def steps(self) -> Path:
        """Copies of the step times that the ranks of the program write, one file for each rank."""
        return self.root / "steps"

    @property
    def agent(self) -> Path:
        """Which process the agent is."""
        return self.root / "agent.json"

    @property
    def lock(self) -> Path:
        """Held by the agent as long as it lives, from before its first instruction."""
        return self.root / "lock"

    @property
    def agent_log(self) -> Path:
        return self.root / "agent.log"

    @property
    def ledger(self) -> Path:
        """What the instance made outside this folder."""
        return self.root / "ledger.jsonl"

    @property
    def network(self) -> Path:
        """The descriptors of the first instance's agent that are the network of an isolated job."""
        return self.root / "network.json"

    @property
    def ml(self) -> Path:
        """What the program sees as /opt/ml."""
        return self.root / "ml"

    @property
    def tensors(self) -> Path:
        """A copy of the tensors of an instance on another machine. A local program has them elsewhere."""
        return self.root / "tensors"

    @property
    def channels(self) -> Path:
        """The downloaded files of the channels, one folder each. No program can change them."""
        return self.root / "channels"

    @property
    def launch(self) -> Path:
        """What the launcher of several ranks reports about them."""
        return self.root / "launch"

    @property
    def activity(self) -> Path:
        """An empty file; its modification time says when the program was last active."""
        return self.root / "activity"

    @property
    def lease(self) -> Path:
        """Until when anything of the instance may run, if it has a lease."""
        return self.root / "lease"

    @property
    def ended_by_lease(self) -> Path:
        """Exists if the instance ended because its lease expired."""
        return self.root / "taken"

    @property
    def scratch(self) -> Path:
        """Files that are deleted at the end: /tmp, /dev/shm, unpacked code."""
        return self.root / "scratch"


def host_path(folder: InstanceFolder, spec: InstanceSpec, path: str) -> tuple[Path, str]:
    """Return where a path that the program writes is on the machine.

    This is a folder that the program cannot replace, and the path below it.
    """
    inside = path.removeprefix(f"{_ML}/")
    if inside != path:
        return folder.ml, inside
    above, place = next(
        each for each in extra_folders(folder, spec).items() if path == each[0] or path.startswith(f"{each[0]}/")
    )
    return place.parent, f"{place.name}{path.removeprefix(above)}"


def extra_folders(folder: InstanceFolder, spec: InstanceSpec) -> Mapping[str, Path]:
    """Return the paths outside /opt/ml that the job may write, such as /state, and the folders behind them."""
    return {path: folder.scratch / "extra" / str(number) for number, path in enumerate(spec.extra_paths)}
