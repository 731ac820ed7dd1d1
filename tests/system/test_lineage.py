"""From a model back to its data, and the same job again, on a real yard."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.system.command_line import CommandLine
from trainyard.estimator import Estimator
from trainyard.session import Session
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard

SCRIPT = """
import hashlib, os, pathlib
data = pathlib.Path(os.environ["SM_CHANNEL_TRAINING"], "numbers.txt").read_bytes()
pathlib.Path(os.environ["SM_MODEL_DIR"], "sum.txt").write_text(hashlib.sha256(data).hexdigest())
print(f"size={len(data)};")
"""


@pytest.fixture
def trainyard(yard: RunningYard, tmp_path: Path) -> CommandLine:
    return CommandLine(yard, tmp_path)


@pytest.fixture
def session(yard: RunningYard, monkeypatch: pytest.MonkeyPatch) -> Session:
    for name, value in yard.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    return Session()


def repository(folder: Path) -> str:
    """Commit the script of a folder, and return the commit."""
    (folder / "train.py").write_text(SCRIPT)
    for words in (("init", "-q"), ("add", "train.py"), ("commit", "-q", "-m", "first")):
        identity = ("-c", "user.name=anna", "-c", "user.email=anna@example.com")
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return told.stdout.strip()


@pytest.mark.flow
def test_a_registered_model_leads_back_to_its_data_and_its_job_runs_again(
    session: Session, trainyard: CommandLine, tmp_path: Path
) -> None:
    commit = repository(tmp_path)
    data = f"s3://{session.default_bucket()}/lineage/numbers.txt"
    session.upload_string_as_file_body("1 2 3", session.default_bucket(), "lineage/numbers.txt")
    estimator = Estimator(
        "pytorch-training:latest",
        entry_point=str(tmp_path / "train.py"),
        instance_type="ml.m5.large",
        instance_count=1,
        metric_definitions=[{"Name": "size", "Regex": "size=([0-9]+);"}],
        sagemaker_session=session,
    )
    estimator.fit(data, job_name="lineage-1", logs=False)
    package = estimator.register(model_package_group_name="sums", description="adds")
    package.update_approval_status("Approved", "it adds")

    def shown() -> str:
        text = trainyard("lineage", "sums/1").stdout
        return text if "TrainingJob" in text else ""

    lines = eventually(shown, "the lineage of the model").splitlines()
    assert lines[0] == "ModelPackage sums/1  Approved"
    assert f"Model        {estimator.model_data}" in lines[1]
    assert "TrainingJob  lineage-1  Completed, size=5" in lines[2]
    assert any("DataSet" in line and data in line for line in lines)
    assert any("Code" in line and f"commit {commit}" in line for line in lines)
    assert any("Packages" in line and "packages" in line for line in lines)
    told = trainyard.read("lineage", "lineage-1")
    assert {each["Kind"] for each in told["Entities"]} == {"TrainingJob", "DataSet", "Code", "Packages", "Image"}
    assert [each["Model"] for each in trainyard.read("models", "ls", "sums")["Models"]] == ["sums/1"]

    again = trainyard("reproduce", "lineage-1", "--name", "lineage-2")
    assert again.returncode == 0, again.stderr
    assert again.stdout == "The two jobs agree in metrics, inputs, code, packages and results.\n"

    session.upload_string_as_file_body("1 2 3 4", session.default_bucket(), "lineage/numbers.txt")
    refused = trainyard("reproduce", "lineage-1")
    assert refused.returncode != 0
    assert f"training at {data} has changed" in refused.stderr
    changed = json.loads(trainyard("reproduce", "lineage-1", "--allow-changed", "--json").stdout)
    assert {each["Kind"] for each in changed["Differences"]} == {"input", "metric", "result"}
