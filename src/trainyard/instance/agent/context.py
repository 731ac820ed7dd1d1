"""What every part of the agent shares about the instance it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainyard.instance.agent.commands import CommandReader
from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.watch.output import ProgramOutput
from trainyard.link.contract import InstanceSpec
from trainyard.link.folders import InstanceFolder


@dataclass(frozen=True, slots=True)
class InstanceContext:
    """One instance: its folder, its spec, the commands it gets, and where its reports and its log go.

    `owner` owns the files that the program may write. `yard_environment` are the environment variables of the yard.
    """

    folder: InstanceFolder
    spec: InstanceSpec
    reports: Reports
    commands: CommandReader
    owner: ProgramUser
    output: ProgramOutput
    yard_environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        folder: InstanceFolder,
        spec: InstanceSpec,
        *,
        reports: Reports,
        commands: CommandReader,
        yard_environment: Mapping[str, str],
    ) -> "InstanceContext":
        """Open the log of the instance. Whoever runs the instance closes `output`."""
        output = ProgramOutput(folder.logs, limit_bytes=spec.log_limit_bytes)
        return cls(folder, spec, reports, commands, ProgramUser(spec.uid), output, yard_environment)

    @property
    def is_first(self) -> bool:
        """Whether this is the first instance of the job, which does the work that is done once per job."""
        return self.spec.instance == self.spec.hosts[0]
