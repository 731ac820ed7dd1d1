from collections.abc import Mapping

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.profiler.catalog import (
    PROFILER_RULES,
    make_profiler_rule,
    profiler_rule_values,
    report_rules,
)

# As smdebug_rulesconfig 1.0.1 sends them.
AWS_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "BatchSize": {
        "cpu_threshold_p95": 70,
        "gpu_threshold_p95": 70,
        "gpu_memory_threshold_p95": 70,
        "patience": 1000,
        "window": 500,
    },
    "CPUBottleneck": {"threshold": 50, "gpu_threshold": 10, "cpu_threshold": 90, "patience": 1000},
    "Dataloader": {"min_threshold": 70, "max_threshold": 200},
    "GPUMemoryIncrease": {"increase": 5, "patience": 1000, "window": 10},
    "IOBottleneck": {"threshold": 50, "gpu_threshold": 10, "io_threshold": 50, "patience": 1000},
    "LoadBalancing": {"threshold": 0.5, "patience": 1000},
    "LowGPUUtilization": {"threshold_p95": 70, "threshold_p5": 10, "window": 500, "patience": 1000},
    "MaxInitializationTime": {"threshold": 20},
    "OverallFrameworkMetrics": {},
    "OverallSystemUsage": {},
    "ProfilerReport": {},
    "StepOutlier": {"stddev": 3, "mode": None, "n_outliers": 10},
}


def test_there_are_awss_rules_with_awss_parameters_and_defaults() -> None:
    assert list(PROFILER_RULES) == sorted(AWS_DEFAULTS)
    for name, rule in PROFILER_RULES.items():
        defaults = {each.name: each.aws for each in rule.parameters}
        expected = {**AWS_DEFAULTS[name], "scan_interval_us": 60_000_000}
        assert {key: defaults[key] for key in expected} == expected


@pytest.mark.parametrize("name", PROFILER_RULES)
def test_what_awss_client_sends_for_a_rule_is_accepted(name: str) -> None:
    sent = {key: str(value) for key, value in AWS_DEFAULTS[name].items()}
    assert make_profiler_rule(name, {**sent, "scan_interval_us": "60000000"}).name == name


def test_names_of_rules_and_parameters_are_compared_without_case() -> None:
    assert make_profiler_rule("lowgpuutilization", {"Threshold_P95": "50"}).name == "LowGPUUtilization"
    assert profiler_rule_values("LOWGPUUTILIZATION", {"Threshold_P95": "50"})["threshold_p95"] == 50


def test_the_advised_defaults_apply_unless_awss_are_asked_for() -> None:
    assert profiler_rule_values("StepOutlier", {})["stddev"] == 5
    assert profiler_rule_values("StepOutlier", {"defaults": "aws"})["stddev"] == 3
    assert profiler_rule_values("StepOutlier", {"stddev": "4"})["stddev"] == 4


def test_counts_of_datapoints_that_awss_client_always_sends_are_not_taken_for_a_wish() -> None:
    assert profiler_rule_values("BatchSize", {"patience": "1000", "window": "500"})["window"] == 0
    assert profiler_rule_values("BatchSize", {"patience": "1000", "defaults": "aws"})["patience"] == 1000
    assert profiler_rule_values("BatchSize", {"patience": "400"})["patience"] == 400
    assert profiler_rule_values("ProfilerReport", {"BatchSize_patience": "1000"})["BatchSize_patience"] == 0


def test_an_unknown_rule_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidRequest, match=r'no profiler rule "BatchSizes"; did you mean BatchSize\?'):
        make_profiler_rule("BatchSizes", {})


def test_an_unknown_or_invalid_parameter_is_refused() -> None:
    with pytest.raises(InvalidRequest, match='LoadBalancing has no parameter "treshold"; it has: threshold'):
        make_profiler_rule("LoadBalancing", {"treshold": "1"})
    with pytest.raises(InvalidRequest, match='"patience" of rule BatchSize is "-1"; it needs a whole number'):
        make_profiler_rule("BatchSize", {"patience": "-1"})
    with pytest.raises(InvalidRequest, match='has no parameter "BatchSize_treshold"'):
        report_rules({"BatchSize_treshold": "1"})


def test_the_rules_of_a_report_have_its_parameters() -> None:
    found = dict(report_rules({"cpubottleneck_threshold": "90", "defaults": "advised"}))
    assert vars(found["CPUBottleneck"])["_threshold"] == 90
