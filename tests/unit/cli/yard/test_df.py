import json
from contextlib import nullcontext
from typing import Any

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi


def job(name: str, size: int, user: str = "anna") -> dict[str, Any]:
    return {"TrainingJobName": name, "UserName": user, "Status": "Failed", "FilesBytes": size, "ArtifactsBytes": 0}


@pytest.fixture
def _yard(monkeypatch: pytest.MonkeyPatch) -> None:
    def jobs(request: dict[str, Any]) -> dict[str, Any]:
        if "NextToken" in request:
            return {"Jobs": [job("big", 4096), job("small", 1)]}
        return {"Jobs": [job("medium", 2048, "ben")], "NextToken": "more"}

    api = RecordingApi(
        DescribeStorage={
            "Buckets": [{"BucketName": "data", "UserName": "anna", "Objects": 1200, "Bytes": 1024}],
            "Environments": [{"UserName": "ben", "Environments": 1, "Bytes": 512}],
            "FreeBytes": 2048,
        },
        ListJobStorage=jobs,
    )
    monkeypatch.setattr("trainyard.cli.yard.df.open_api", lambda _: nullcontext(api))


@pytest.mark.usefixtures("_yard")
def test_the_disk_is_shown_by_user_bucket_and_job_with_the_largest_first(trainyard: Trainyard) -> None:
    result = trainyard("df", "-n", "2")

    assert result.out.splitlines() == [
        "user  objects  job files  packages    total",
        "anna  1.0 KiB    4.0 KiB       0 B  5.0 KiB",
        "ben       0 B    2.0 KiB     512 B  2.5 KiB",
        "",
        "bucket  user  objects     size",
        "data    anna    1,200  1.0 KiB",
        "",
        "job     user  status    files  artifacts",
        "big     anna  Failed  4.0 KiB        0 B",
        "medium  ben   Failed  2.0 KiB        0 B",
    ]
    assert "2.0 KiB of the disk is free." in result.err


@pytest.mark.usefixtures("_yard")
def test_json_has_bytes(trainyard: Trainyard) -> None:
    shown = json.loads(trainyard("df", "--json", "Users,FreeBytes").out)
    assert shown["FreeBytes"] == 2048
    assert [(each["UserName"], each["JobFilesBytes"], each["Jobs"]) for each in shown["Users"]] == [
        ("anna", 4097, 2),
        ("ben", 2048, 1),
    ]
