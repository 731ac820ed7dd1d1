"""Runs of drills for tests."""

from collections.abc import Mapping
from typing import Any

from trainyard._sdk.resume_drill.runs import DrillRun


def losses(first: int, last: int) -> list[str]:
    return [f"step {step} loss {1 / step}" for step in range(first, last + 1)]


def run(
    *lines: list[str],
    status: str = "Completed",
    seconds: float = 10.0,
    checkpoint_files: int = 3,
    metrics: Mapping[str, float] | None = None,
    **described: Any,
) -> DrillRun:
    """Return a run with the lines of each attempt. All attempts but the last were interrupted."""
    steps = ["Training", *(["Interrupted", "Training"] * (len(lines) - 1)), status]
    description = {
        "TrainingJobName": "mnist-drill",
        "TrainingJobStatus": status,
        "SecondaryStatusTransitions": [{"Status": step} for step in steps],
        "FinalMetricDataList": [{"MetricName": name, "Value": value} for name, value in (metrics or {}).items()],
        **described,
    }
    attempts = [{"Number": number, "TrainingTimeInSeconds": seconds} for number in range(1, len(lines) + 1)]
    return DrillRun(description, {"Attempts": attempts}, dict(enumerate(lines, 1)), checkpoint_files)
