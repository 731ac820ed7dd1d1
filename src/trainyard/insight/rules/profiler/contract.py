"""The interface of a profiler rule, which checks the profile of a job and returns what it found.

The same rule checks a running job again and again, and a finished one once. It remembers nothing between checks, reads
no clock, no file and no network, and takes times from the profile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.rules.contract import Parameter, Severity


@dataclass(frozen=True, slots=True)
class ProfilerFinding:
    """One thing that a profiler rule found. `message` is a sentence: what was seen, where, and what the limit is.

    `host`, `worker` (a rank) and `device` are empty if the finding is not about a single one.
    """

    message: str
    host: str = ""
    worker: str = ""
    device: str = ""
    value: float | None = None
    threshold: float | None = None
    severity: Severity = Severity.WARNING
    started_us: int | None = None
    ended_us: int | None = None


@dataclass(frozen=True, slots=True)
class ProfilerCheck:
    """What a rule concludes from the profile so far.

    `datapoints` counts what it looked at, and `violations` how many of them were out of its limits; the rule has
    triggered only if it has findings. `details` are JSON values for the report and for the rule's own file.
    `undecided` is a sentence that says what is missing if the rule cannot judge yet, and empty otherwise.
    """

    findings: Sequence[ProfilerFinding] = ()
    datapoints: int = 0
    violations: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    undecided: str = ""


class ProfilerRule(Protocol):
    """A rule on profiles. `catalog.py` makes one from its name and the strings of its parameters.

    `name` is spelled as on AWS, such as LowGPUUtilization. `purpose` and `recommendation` are sentences for the report:
    what the rule looks for, and what to do if it triggers.
    """

    name: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    purpose: ClassVar[str]
    recommendation: ClassVar[str]

    def check(self, profile: JobProfile) -> ProfilerCheck: ...
