"""The profiler rules by the names, arguments and defaults of smdebug_rulesconfig."""

from typing import Any

import pytest

from trainyard._sdk.profiling.profiler_rule import default_rule
from trainyard.debugger import ProfilerRule, get_default_profiler_processing_job, rule_configs
from trainyard.foundation.errors import InvalidRequest

WRONG: Any = 3
NO_PROFILER_RULE: Any = rule_configs.overfit()
SCAN = {"scan_interval_us": 60_000_000}
DEFAULTS: dict[str, dict[str, Any]] = {
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
    "OverallSystemUsage": {},
    "OverallFrameworkMetrics": {},
    "StepOutlier": {"stddev": 3, "mode": None, "n_outliers": 10},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_rule_has_the_defaults_of_aws(name: str) -> None:
    config = getattr(rule_configs, name)()
    assert config.rule_name == name
    assert config.rule_parameters == {"rule_to_invoke": name} | DEFAULTS[name] | SCAN


def test_values_are_text_in_the_request() -> None:
    rule = ProfilerRule.sagemaker(rule_configs.StepOutlier(stddev=2.5), name="Steps", s3_output_path="s3://b/x")
    assert rule.shape(image_uri="rules:1", source_uri="") == {
        "RuleConfigurationName": "Steps",
        "RuleEvaluatorImage": "rules:1",
        "S3OutputPath": "s3://b/x",
        "RuleParameters": {
            "rule_to_invoke": "StepOutlier",
            "stddev": "2.5",
            "mode": "None",
            "n_outliers": "10",
            "scan_interval_us": "60000000",
        },
    }


def test_a_custom_rule_names_its_file_and_class() -> None:
    rule = ProfilerRule.custom("Mine", "i:1", "ml.t3.medium", 3, "mine.py", "Rule", rule_parameters={"limit": 3})
    assert rule.source == "mine.py"
    shape = rule.shape(image_uri="", source_uri="s3://b/mine.py")
    assert shape["RuleParameters"] == {"source_s3_uri": "s3://b/mine.py", "rule_to_invoke": "Rule", "limit": "3"}
    assert (shape["RuleEvaluatorImage"], shape["VolumeSizeInGB"]) == ("i:1", 3)
    with pytest.raises(InvalidRequest, match="both a source"):
        ProfilerRule.custom("Mine", "i:1", "ml.t3.medium", 3, "mine.py")


def test_a_report_takes_the_parameters_of_all_rules_in_any_case() -> None:
    report = rule_configs.ProfilerReport(CPUBottleneck_cpu_threshold=95, stepoutlier_n_outliers=3)
    assert report.rule_parameters == {
        "rule_to_invoke": "ProfilerReport",
        "CPUBottleneck_cpu_threshold": 95,
        "stepoutlier_n_outliers": 3,
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rule_configs.BatchSize(cpu_threshold_p95=101), "cpu_threshold_p95 is 101; it must be a number from 0"),
        (lambda: rule_configs.StepOutlier(n_outliers=0), "n_outliers is 0; it must be a number above 0"),
        (lambda: rule_configs.StepOutlier(mode=WRONG), "mode is 3; it must be text"),
        (lambda: rule_configs.ProfilerReport(threshold=1), "write parameters as <rule>_<parameter>"),
        (lambda: rule_configs.ProfilerReport(Nothing_threshold=1), 'no rule "Nothing"'),
        (lambda: rule_configs.ProfilerReport(StepOutlier_nothing=1), "its parameters are stddev, mode"),
        (lambda: rule_configs.ProfilerReport(StepOutlier_stddev=-1), "stddev is -1"),
        (lambda: ProfilerRule.sagemaker(NO_PROFILER_RULE), "use Rule.sagemaker"),
    ],
)
def test_invalid_parameters_are_refused_where_they_are_written(make: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        make()


def test_rules_that_are_added_have_names_of_their_own() -> None:
    assert default_rule().name.startswith("ProfilerReport-")
    processing = get_default_profiler_processing_job()
    assert processing.name.startswith("DetailedProfilerProcessingJobConfig-")
    assert (processing.instance_type, processing.volume_size_in_gb) == ("ml.m5.4xlarge", 128)
