"""What a report is written from, and the files that it consists of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.traces.trace_profile import TraceProfile
from trainyard.insight.profiling.verdict.contract import ProfileVerdict
from trainyard.insight.rules.profiler.contract import ProfilerCheck

PAGE = "profiler-report.html"
NOTEBOOK = "profiler-report.ipynb"
RULES_FOLDER = "profiler-reports"  # of the files of the rules, <rule>.json


@dataclass(frozen=True, slots=True)
class ReportedRule:
    """One rule of the job: the name of its configuration, the rule, the parameters as they were used, and its check."""

    name: str
    rule: str
    purpose: str
    recommendation: str
    parameters: Mapping[str, object]
    status: RuleStatus
    check: ProfilerCheck


@dataclass(frozen=True, slots=True)
class ReportSource:
    """Everything that a report says. `traces` are by where they are stored."""

    profile: JobProfile
    verdict: ProfileVerdict
    written_us: int
    region: str = ""
    job_arn: str = ""
    rules: Sequence[ReportedRule] = ()
    traces: Mapping[str, TraceProfile] = field(default_factory=dict)
