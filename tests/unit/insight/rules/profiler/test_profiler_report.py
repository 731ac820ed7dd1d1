from tests.profiles import HEALTHY, gpu_hardware, job, rank, step_times
from tests.unit.insight.rules.profiler.checking import check
from trainyard.insight.rules.profiler.catalog import PROFILER_RULES, report_rules


def test_the_report_evaluates_all_other_rules() -> None:
    names = [name for name, _ in report_rules({})]
    assert sorted([*names, "ProfilerReport"]) == sorted(PROFILER_RULES)


def test_what_a_rule_finds_the_report_finds() -> None:
    hardware = gpu_hardware(300, gpu_busy=30.0)
    profile = job(300, hardware, rank(step_times(300, begin_s=20), device="cuda"), cores=4, gpus=1)
    found = check("ProfilerReport", profile)
    assert [each.message.partition(":")[0] for each in found.findings] == ["LowGPUUtilization"]
    assert found.details["LowGPUUtilization"]["triggered"]
    assert found.details["MaxInitializationTime"] == {
        "triggered": False,
        "datapoints": 1,
        "violations": 0,
        "undecided": "",
    }


def test_parameters_are_named_after_their_rules_in_any_case() -> None:
    hardware = gpu_hardware(300, gpu_busy=30.0)
    profile = job(300, hardware, rank(step_times(300, begin_s=20), device="cuda"), cores=4, gpus=1)
    assert not check("ProfilerReport", profile, lowgpuutilization_THRESHOLD_P95=20).findings
    assert not check("ProfilerReport", profile, LowGPUUtilization_patience=5000).findings


def test_a_job_that_has_not_begun_cannot_be_judged() -> None:
    assert check("ProfilerReport", HEALTHY["empty"]()).undecided
    assert not check("ProfilerReport", HEALTHY["long_on_cpu"]()).undecided
