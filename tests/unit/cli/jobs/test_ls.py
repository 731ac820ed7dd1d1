import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi
from trainyard.cli.jobs import ls as module

NAMES = ["mnist-1-lr", "mnist-2-epochs", "my-mnist-3-lr", "mnist-4-lr"]


def list_jobs(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer with one job per page."""
    found = [name for name in NAMES if asked.get("NameContains", "") in name]
    start = int(asked.get("NextToken", 0))
    summaries = [
        {
            "TrainingJobName": name,
            "TrainingJobArn": f"arn:{name}",
            "TrainingJobStatus": "Completed",
            "SecondaryStatus": "Completed",
            "CreationTime": datetime(2026, 7, 1, tzinfo=UTC),
        }
        for name in found[start : start + 1]
    ]
    return {"TrainingJobSummaries": summaries} | ({"NextToken": str(start + 1)} if start + 1 < len(found) else {})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> RecordingApi:
    recording = RecordingApi(ListTrainingJobs=list_jobs, ListProcessingJobs=lambda _: {"ProcessingJobSummaries": []})

    @contextmanager
    def calls(_: Path | None) -> Iterator[RecordingApi]:
        yield recording

    monkeypatch.setattr(module, "open_api", calls)
    return recording


def listed(trainyard: Trainyard, *options: str) -> list[str]:
    jobs = json.loads(trainyard("ls", *options, "--json", "TrainingJobName").out)["Jobs"]
    return [job["TrainingJobName"] for job in jobs]


def test_a_name_is_a_part_of_it_or_a_pattern_of_the_whole(trainyard: Trainyard, api: RecordingApi) -> None:
    assert listed(trainyard, "--name", "mnist") == NAMES
    assert listed(trainyard, "--name", "mnist-*-lr") == ["mnist-1-lr", "mnist-4-lr"]
    assert listed(trainyard, "--name", "mnist-*-lr", "-n", "1") == ["mnist-1-lr"]
    assert listed(trainyard, "--name", "*") == NAMES
    assert listed(trainyard, "-n", "2") == NAMES[:2]


def test_a_text_that_no_name_can_have_is_a_usage_error(trainyard: Trainyard, api: RecordingApi) -> None:
    result = trainyard("ls", "--name", "a_b")
    assert result.code == 2
    assert 'No job can have "a_b" in its name' in result.err
    assert api.asked == []
