import json
from dataclasses import replace
from typing import Any

import pytest

from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.profiling.report.contract import ReportedRule
from trainyard.insight.profiling.report.rule_files import write_rule_files
from trainyard.insight.rules.profiler.contract import ProfilerCheck, ProfilerFinding

CHECK = ProfilerCheck((ProfilerFinding("gpu0 is idle.", "algo-1"),), 2400, 7, {"p95": {"gpu0": float("nan")}})
RULE = ReportedRule(
    "MyRule",
    "LowGPUUtilization",
    "Looks for idle GPUs.",
    "Use a larger batch.",
    {"threshold_p95": 70, "patience": 1000},
    RuleStatus.ISSUES_FOUND,
    CHECK,
)


def only(rule: ReportedRule) -> dict[str, Any]:
    (content,) = write_rule_files([rule]).values()
    found: dict[str, Any] = json.loads(content)
    return found


def test_a_file_has_the_members_of_aws() -> None:
    found = only(RULE)
    assert list(found) == ["RuleTriggered", "Violations", "Datapoints", "RuleParameters", "Details"]
    assert (found["RuleTriggered"], found["Violations"], found["Datapoints"]) == (1, 7, 2400)
    assert found["RuleParameters"] == "threshold_p95:70\npatience:1000"
    assert found["Details"]["p95"] == {"gpu0": None}
    assert found["Details"]["findings"][0]["message"] == "gpu0 is idle."


def test_a_rule_that_found_nothing_has_not_triggered() -> None:
    found = only(replace(RULE, check=ProfilerCheck(undecided="There are too few samples.")))
    assert found["RuleTriggered"] == 0
    assert found["Details"] == {"undecided": "There are too few samples."}


def test_a_file_has_the_name_of_its_rule_and_a_second_one_that_of_its_configuration() -> None:
    assert list(write_rule_files([RULE, replace(RULE, name="Other")])) == [
        "profiler-reports/LowGPUUtilization.json",
        "profiler-reports/Other.json",
    ]


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", "", ".hidden", "a\0b"])
def test_a_name_never_leaves_the_folder(name: str) -> None:
    (path,) = write_rule_files([replace(RULE, rule=name)])
    folder, _, file = path.rpartition("/")
    assert folder == "profiler-reports"
    assert file.endswith(".json")
    assert not file.startswith(".")
    assert "\0" not in file
