"""What lies where in the folder of one instance: `<jobs>/<job id>/<attempt>/<instance>/`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trainyard.link.contract import InstanceSpec


@dataclass(frozen=True, slots=True, order=True)
class AttemptRef:
    """One try to run a job; attempts count from 1."""

    job_id: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.job_id}/{self.attempt}"

    def folder(self, jobs: Path) -> Path:
        return jobs / self.job_id / str(self.attempt)

    def instances(self, jobs: Path) -> "list[InstanceFolder]":
        """Of every instance that was ever prepared; none when the attempt has no folder."""
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
    """The layout of an instance's folder. Making one of these touches nothing."""

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
        """Segments of what the program wrote to stdout and stderr."""
        return self.root / "logs"

    @property
    def metrics(self) -> Path:
        """Points, one file a metric."""
        return self.root / "metrics"

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
        """What was made outside this folder."""
        return self.root / "ledger.jsonl"

    @property
    def network(self) -> Path:
        """Which descriptors of the first instance's agent are the network of the job, where it is isolated."""
        return self.root / "network.json"

    @property
    def ml(self) -> Path:
        """What the program sees as /opt/ml."""
        return self.root / "ml"

    @property
    def tensors(self) -> Path:
        """What was brought of the tensors of an instance on another machine; here its program has them elsewhere."""
        return self.root / "tensors"

    @property
    def channels(self) -> Path:
        """The files of the channels as they were brought, one folder each; no program changes them."""
        return self.root / "channels"

    @property
    def launch(self) -> Path:
        """What the launcher of several ranks tells of them."""
        return self.root / "launch"

    @property
    def activity(self) -> Path:
        """Whose time of change tells when the program last did anything."""
        return self.root / "activity"

    @property
    def lease(self) -> Path:
        """Until when anything of the instance may run, where it has a lease."""
        return self.root / "lease"

    @property
    def taken(self) -> Path:
        """There when the instance ended because its lease did."""
        return self.root / "taken"

    @property
    def scratch(self) -> Path:
        """What is thrown away at the end: /tmp, /dev/shm, unpacked code."""
        return self.root / "scratch"
