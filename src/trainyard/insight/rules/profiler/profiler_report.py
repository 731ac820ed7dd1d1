"""All rules together, for the report."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.rules.profiler.batch_size import BatchSize
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding, ProfilerRule
from trainyard.insight.rules.profiler.cpu_bottleneck import CPUBottleneck
from trainyard.insight.rules.profiler.dataloader import Dataloader
from trainyard.insight.rules.profiler.gpu_memory_increase import GPUMemoryIncrease
from trainyard.insight.rules.profiler.io_bottleneck import IOBottleneck
from trainyard.insight.rules.profiler.load_balancing import LoadBalancing
from trainyard.insight.rules.profiler.low_gpu_utilization import LowGPUUtilization
from trainyard.insight.rules.profiler.max_initialization_time import MaxInitializationTime
from trainyard.insight.rules.profiler.overall_framework_metrics import OverallFrameworkMetrics
from trainyard.insight.rules.profiler.overall_system_usage import OverallSystemUsage
from trainyard.insight.rules.profiler.patience import SCAN_INTERVAL
from trainyard.insight.rules.profiler.step_outlier import StepOutlier

# In the order in which a report without findings lists them.
REPORTED: Sequence[type[ProfilerRule]] = (
    BatchSize,
    CPUBottleneck,
    Dataloader,
    GPUMemoryIncrease,
    IOBottleneck,
    LoadBalancing,
    LowGPUUtilization,
    MaxInitializationTime,
    StepOutlier,
    OverallSystemUsage,
    OverallFrameworkMetrics,
)


class ProfilerReport(ProfilerRule):
    """Finds what any other rule finds; the report is written from all of them."""

    name = "ProfilerReport"
    parameters = (
        *(replace(each, name=f"{rule.name}_{each.name}") for rule in REPORTED for each in rule.parameters),
        SCAN_INTERVAL,
    )
    purpose = "Evaluates all rules, with parameters of its own for each, and writes the report."
    recommendation = "Read what the rules that triggered recommend, those with the most to gain first."

    def __init__(self, rules: Sequence[tuple[str, ProfilerRule]]) -> None:
        """Combine rules, by their names."""
        self.rules = rules

    def check(self, profile: JobProfile) -> ProfilerCheck:
        findings: list[ProfilerFinding] = []
        details: dict[str, Mapping[str, Any]] = {}
        points = violations = 0
        undecided: list[str] = []
        for name, rule in self.rules:
            check = rule.check(profile)
            points += check.datapoints
            violations += check.violations
            undecided += [f"{name}: {check.undecided}"] if check.undecided else []
            findings += [replace(each, message=f"{name}: {each.message}") for each in check.findings]
            details[name] = {
                "triggered": bool(check.findings),
                "datapoints": check.datapoints,
                "violations": check.violations,
                "undecided": check.undecided,
            }
        is_undecided = len(undecided) == len(self.rules)
        return ProfilerCheck(
            findings, points, violations, details, "Nothing can be judged yet. " + undecided[0] if is_undecided else ""
        )
