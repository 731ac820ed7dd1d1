"""Configurations of the profiler rules, with the names, arguments and defaults of `smdebug_rulesconfig`.

Scripts use them as `trainyard.debugger.rule_configs`, like those of the rules on tensors.
"""

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trainyard.foundation.errors import InvalidRequest

_MINUTE_US = 60_000_000


class ProfilerRuleConfig:
    """A profiler rule with its parameters, for `ProfilerRule.sagemaker`.

    Args:
        rule_name: Name of the rule.
        **rule_parameters: Parameters of the rule.
    """

    def __init__(self, rule_name: str, **rule_parameters: Any) -> None:
        self.rule_name = rule_name
        self.rule_parameters: dict[str, Any] = {"rule_to_invoke": rule_name} | rule_parameters


class BatchSize(ProfilerRuleConfig):
    """The rule BatchSize, which finds that GPUs and cores are little used because batches are small.

    Args:
        cpu_threshold_p95: Use of the CPU, in percent, below which its 95th percentile counts as little.
        gpu_threshold_p95: The same for the use of a GPU.
        gpu_memory_threshold_p95: The same for the memory of a GPU.
        patience: How many samples to wait for before the first check.
        window: How many of the last samples to look at.
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        cpu_threshold_p95: float = 70,
        gpu_threshold_p95: float = 70,
        gpu_memory_threshold_p95: float = 70,
        patience: int = 1000,
        window: int = 500,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_percentiles(
            cpu_threshold_p95=cpu_threshold_p95,
            gpu_threshold_p95=gpu_threshold_p95,
            gpu_memory_threshold_p95=gpu_memory_threshold_p95,
        )
        _require_positive(patience=patience, window=window, scan_interval_us=scan_interval_us)
        super().__init__(
            "BatchSize",
            cpu_threshold_p95=cpu_threshold_p95,
            gpu_threshold_p95=gpu_threshold_p95,
            gpu_memory_threshold_p95=gpu_memory_threshold_p95,
            patience=patience,
            window=window,
            scan_interval_us=scan_interval_us,
        )


class CPUBottleneck(ProfilerRuleConfig):
    """The rule CPUBottleneck, which finds that a GPU waits for the CPU.

    Args:
        threshold: Share of the samples, in percent, above which the rule triggers.
        gpu_threshold: Use of a GPU, in percent, below which it waits.
        cpu_threshold: Use of the CPU, in percent, above which it is the bottleneck.
        patience: How many samples to wait for before the first check.
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        threshold: float = 50,
        gpu_threshold: float = 10,
        cpu_threshold: float = 90,
        patience: int = 1000,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_percentiles(threshold=threshold, gpu_threshold=gpu_threshold, cpu_threshold=cpu_threshold)
        _require_positive(patience=patience, scan_interval_us=scan_interval_us)
        super().__init__(
            "CPUBottleneck",
            threshold=threshold,
            gpu_threshold=gpu_threshold,
            cpu_threshold=cpu_threshold,
            patience=patience,
            scan_interval_us=scan_interval_us,
        )


class Dataloader(ProfilerRuleConfig):
    """The rule Dataloader, which finds that data loaders have too few or too many workers for the cores.

    Args:
        min_threshold: Fewest workers, in percent of the cores.
        max_threshold: Most workers, in percent of the cores.
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        min_threshold: float = 70,
        max_threshold: float = 200,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_positive(min_threshold=min_threshold, max_threshold=max_threshold, scan_interval_us=scan_interval_us)
        super().__init__(
            "Dataloader", min_threshold=min_threshold, max_threshold=max_threshold, scan_interval_us=scan_interval_us
        )


class GPUMemoryIncrease(ProfilerRuleConfig):
    """The rule GPUMemoryIncrease, which finds that the memory in use on a GPU grows.

    Args:
        increase: Growth, in percentage points, above which the rule triggers.
        patience: How many samples to wait for before the first check.
        window: How many samples a mean is taken of.
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        increase: float = 5,
        patience: int = 1000,
        window: int = 10,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_positive(increase=increase, patience=patience, window=window, scan_interval_us=scan_interval_us)
        super().__init__(
            "GPUMemoryIncrease", increase=increase, patience=patience, window=window, scan_interval_us=scan_interval_us
        )


class IOBottleneck(ProfilerRuleConfig):
    """The rule IOBottleneck, which finds that a GPU waits for the disk or the network.

    Args:
        threshold: Share of the samples, in percent, above which the rule triggers.
        gpu_threshold: Use of a GPU, in percent, below which it waits.
        io_threshold: Time that cores wait for I/O, in percent, above which I/O is the bottleneck.
        patience: How many samples to wait for before the first check.
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        threshold: float = 50,
        gpu_threshold: float = 10,
        io_threshold: float = 50,
        patience: int = 1000,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_percentiles(threshold=threshold, gpu_threshold=gpu_threshold, io_threshold=io_threshold)
        _require_positive(patience=patience, scan_interval_us=scan_interval_us)
        super().__init__(
            "IOBottleneck",
            threshold=threshold,
            gpu_threshold=gpu_threshold,
            io_threshold=io_threshold,
            patience=patience,
            scan_interval_us=scan_interval_us,
        )


class LoadBalancing(ProfilerRuleConfig):
    """The rule LoadBalancing, which finds that the GPUs have different amounts of work.

    Args:
        threshold: Distance between the histograms of two GPUs above which the rule triggers.
        patience: How many samples to wait for before the first check.
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        threshold: float = 0.5,
        patience: int = 1000,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_percentiles(threshold=threshold)
        _require_positive(patience=patience, scan_interval_us=scan_interval_us)
        super().__init__("LoadBalancing", threshold=threshold, patience=patience, scan_interval_us=scan_interval_us)


class LowGPUUtilization(ProfilerRuleConfig):
    """The rule LowGPUUtilization, which finds that the use of a GPU is low, or fluctuates.

    Args:
        threshold_p95: Use, in percent, below which the 95th percentile is low.
        threshold_p5: Use, in percent, below which the 5th percentile shows fluctuations.
        window: How many of the last samples to look at.
        patience: How many samples to wait for before the first check.
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        threshold_p95: float = 70,
        threshold_p5: float = 10,
        window: int = 500,
        patience: int = 1000,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_percentiles(threshold_p95=threshold_p95, threshold_p5=threshold_p5)
        _require_positive(window=window, patience=patience, scan_interval_us=scan_interval_us)
        super().__init__(
            "LowGPUUtilization",
            threshold_p95=threshold_p95,
            threshold_p5=threshold_p5,
            window=window,
            patience=patience,
            scan_interval_us=scan_interval_us,
        )


class MaxInitializationTime(ProfilerRuleConfig):
    """The rule MaxInitializationTime, which finds that the first step takes too long to come.

    Args:
        threshold: Longest time before the first step, in minutes.
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        threshold: float = 20,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_positive(threshold=threshold, scan_interval_us=scan_interval_us)
        super().__init__("MaxInitializationTime", threshold=threshold, scan_interval_us=scan_interval_us)


class OverallSystemUsage(ProfilerRuleConfig):
    """The rule OverallSystemUsage, which summarizes the use of the hardware, and finds nothing.

    Args:
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_positive(scan_interval_us=scan_interval_us)
        super().__init__("OverallSystemUsage", scan_interval_us=scan_interval_us)


class OverallFrameworkMetrics(ProfilerRuleConfig):
    """The rule OverallFrameworkMetrics, which summarizes the phases of steps and the operators, and finds nothing.

    Args:
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_positive(scan_interval_us=scan_interval_us)
        super().__init__("OverallFrameworkMetrics", scan_interval_us=scan_interval_us)


class StepOutlier(ProfilerRuleConfig):
    """The rule StepOutlier, which finds steps that take far longer than the others.

    Args:
        stddev: How many standard deviations above the usual a step is an outlier.
        mode: Mode of the steps: `TRAIN`, `EVAL` or `PREDICT`. Default: all.
        n_outliers: How many outliers to tolerate.
        scan_interval_us: How often the rule looks at the profile, in microseconds.
    """

    def __init__(
        self,
        stddev: float = 3,
        mode: str | None = None,
        n_outliers: int = 10,
        scan_interval_us: int = _MINUTE_US,
    ) -> None:
        _require_positive(stddev=stddev, n_outliers=n_outliers, scan_interval_us=scan_interval_us)
        _require_text(mode=mode)
        super().__init__(
            "StepOutlier", stddev=stddev, mode=mode, n_outliers=n_outliers, scan_interval_us=scan_interval_us
        )


# By their names in lower case.
_REPORTED: Mapping[str, type[ProfilerRuleConfig]] = MappingProxyType(
    {
        rule.__name__.lower(): rule
        for rule in (
            BatchSize,
            CPUBottleneck,
            Dataloader,
            GPUMemoryIncrease,
            IOBottleneck,
            LoadBalancing,
            LowGPUUtilization,
            MaxInitializationTime,
            OverallSystemUsage,
            OverallFrameworkMetrics,
            StepOutlier,
        )
    }
)


class ProfilerReport(ProfilerRuleConfig):
    """The rule ProfilerReport, which evaluates all other rules and writes the report.

    Args:
        **rule_parameters: Parameters of those rules, as `<rule>_<parameter>`, such as `CPUBottleneck_cpu_threshold`.

    Raises:
        InvalidRequest: There is no such rule or parameter, or a value is out of its range.
    """

    def __init__(self, **rule_parameters: Any) -> None:
        for key, value in rule_parameters.items():
            _require_parameter(key, value)
        super().__init__("ProfilerReport", **rule_parameters)


def _require_parameter(key: str, value: Any) -> None:
    name, separator, parameter = key.partition("_")
    rule, parameter = _REPORTED.get(name.lower()), parameter.lower()
    if not separator or not parameter:
        raise InvalidRequest(f'ProfilerReport has "{key}"; write parameters as <rule>_<parameter>.')
    if rule is None:
        known = ", ".join(each.__name__ for each in _REPORTED.values())
        raise InvalidRequest(f'ProfilerReport has "{key}", but there is no rule "{name}"; the rules are {known}.')
    parameters = [each for each in inspect.signature(rule).parameters if each != "self"]
    if parameter not in parameters:
        raise InvalidRequest(
            f'ProfilerReport has "{key}", but {rule.__name__} has no parameter "{parameter}"; its parameters are '
            f"{', '.join(parameters)}."
        )
    rule(**{parameter: value})


def _require_percentiles(**values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, int | float) or not 0 <= value <= 100:
            raise InvalidRequest(f"{name} is {value!r}; it must be a number from 0 to 100.")


def _require_positive(**values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, int | float) or not value > 0:
            raise InvalidRequest(f"{name} is {value!r}; it must be a number above 0.")


def _require_text(**values: object) -> None:
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(f"{name} is {value!r}; it must be text.")
