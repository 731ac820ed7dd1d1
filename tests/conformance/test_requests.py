"""Our estimators ask for the same jobs as those of the sagemaker SDK."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import FLOW_TIMEOUT_S, FLOWS
from tests.conformance.environments import interpreter

OPT_OUT = "SchemaVersion: '1.0'\nSageMaker:\n  PythonSDK:\n    Modules:\n      TelemetryOptOut: true\n"

# What the SDK sends though nobody asked for it: that tensors be captured, that the job be profiled, and that metrics
# be kept as a series. Ours asks for them when a user does.
UNASKED = ("DebugHookConfig", "ProfilerConfig")
UNASKED_OF_ALGORITHM = "EnableSageMakerMetricsTimeSeries"


@pytest.mark.slow
def test_estimators_ask_for_the_same_jobs(tmp_path: Path) -> None:
    theirs = asked_by("sagemaker", interpreter("main"), tmp_path)
    ours = asked_by("trainyard", Path(sys.executable), tmp_path)

    assert ours["images"] == theirs["images"]
    assert list(ours["requests"]) == list(theirs["requests"])
    for name, asked in theirs["requests"].items():
        mine = ours["requests"][name]
        asks_for_tensors = "DebugHookConfig" in mine["request"]
        unasked = UNASKED[1:] if asks_for_tensors else UNASKED
        assert without(mine, unasked) == without(asked, unasked), name


@pytest.mark.slow
def test_the_profiler_is_asked_for_the_same(tmp_path: Path) -> None:
    theirs = asked_by("sagemaker", interpreter("main"), tmp_path, flow="profiling_of_estimators")
    ours = asked_by("trainyard", Path(sys.executable), tmp_path, flow="profiling_of_estimators")
    assert theirs.keys() == ours.keys()
    for part, values in theirs.items():
        mine = [without_the_report(value) for value in ours[part]]
        assert [pair for pair in zip(values, mine, strict=True) if pair[0] != pair[1]] == [], part


def without_the_report(value: Any) -> Any:
    """Leave out the rule that ours asks for if the user names none, as earlier versions of the SDK did."""
    if not isinstance(value, dict) or "ProfilerRuleConfigurations" not in value:
        return value
    rules = value["ProfilerRuleConfigurations"]
    others = [rule for rule in rules if not rule["RuleConfigurationName"].startswith("ProfilerReport-")]
    rest = {name: each for name, each in value.items() if name != "ProfilerRuleConfigurations"}
    return rest | ({"ProfilerRuleConfigurations": others} if others else {})


def asked_by(package: str, python: Path, home: Path, *, flow: str = "requests_of_estimators") -> dict[str, Any]:
    config = home / "config.yaml"
    config.write_text(OPT_OUT)
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(config),
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
    }
    run = subprocess.run(
        [python, FLOWS / f"{flow}.py", package],
        env=variables,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=FLOW_TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-6000:]
    printed: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return printed


def without(asked: dict[str, Any], unasked: tuple[str, ...]) -> dict[str, Any]:
    request = {name: value for name, value in asked["request"].items() if name not in unasked}
    algorithm = request["AlgorithmSpecification"]
    request["AlgorithmSpecification"] = {
        name: value for name, value in algorithm.items() if name != UNASKED_OF_ALGORITHM
    }
    return {**asked, "request": request}
