import importlib.util
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi

CONFIG = {"S3OutputPath": "s3://bucket/tb/"}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> RecordingApi:
    def describe(request: dict[str, Any]) -> dict[str, Any]:
        name = request["TrainingJobName"]
        return {
            "TrainingJobName": name,
            "TrainingJobStatus": "Completed",
            **({"TensorBoardOutputConfig": CONFIG} if name != "plain" else {}),
        }

    def listed(request: dict[str, Any]) -> dict[str, Any]:
        key = f"{request['Prefix']}train/events"
        return {"Contents": [{"Key": key, "Size": 4, "ETag": "e", "LastModified": None}]}

    api = RecordingApi(DescribeTrainingJob=describe, ListObjectsV2=listed, GetObject={"Body": b"data"})
    monkeypatch.setattr("trainyard.cli.jobs.tensorboard.open_api", lambda _: nullcontext(api))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    return api


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program named tensorboard that writes its arguments and the files that it finds to the returned path."""
    folder, output = tmp_path / "bin", tmp_path / "shown"
    folder.mkdir()
    program = folder / "tensorboard"
    program.write_text(f'#!/bin/sh\necho "$@" > {output}\ncd "$2" && find -L . -type f | sort >> {output}\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return output


def test_tensorboard_gets_the_files_of_each_job_by_its_name(
    trainyard: Trainyard, api: RecordingApi, shown: Path, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events").write_text("")

    result = trainyard("tensorboard", "a", "b", str(tmp_path / "runs"), "--port", "6007", "--reload_interval=1")

    assert result.code == 3
    arguments, *files = shown.read_text().splitlines()
    assert arguments.endswith("--host 127.0.0.1 --port 6007 --reload_interval=1")
    assert files == ["./a/train/events", "./b/train/events", "./runs/events"]
    assert {asked["Prefix"] for operation, asked in api.asked if operation == "ListObjectsV2"} == {
        "tb/a/tensorboard-output/",
        "tb/b/tensorboard-output/",
    }


def test_a_job_without_tensorboard_output_is_a_failure(trainyard: Trainyard, api: RecordingApi, shown: Path) -> None:
    result = trainyard("tensorboard", "plain")
    assert result.code == 4
    assert "has no TensorBoardOutputConfig" in result.err
    assert not shown.exists()


def test_without_tensorboard_the_command_that_installs_it_is_named(
    trainyard: Trainyard, api: RecordingApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = trainyard("tensorboard", "a")
    assert (result.code, "pip install tensorboard" in result.err) == (1, True)
    assert trainyard("tensorboard", "--port", "1").code == 2
