import json
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk.lineage.reproduction import (
    TAG,
    Difference,
    changed_sources,
    differences_of,
    repeated_request,
    require_same_sources,
    start_again,
)
from trainyard.foundation.errors import Conflict

REQUEST = {
    "TrainingJobName": "first",
    "HyperParameters": {"lr": "0.1", "sagemaker_job_name": '"first"'},
    "CheckpointConfig": {"S3Uri": "s3://b/checkpoints/", "LocalPath": "/opt/ml/checkpoints"},
    "Tags": [{"Key": "team", "Value": "vision"}, {"Key": TAG, "Value": "zero"}],
}


def record(**changed: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": "first",
        "Status": "Completed",
        "Image": "image:1",
        "Inputs": [{"Name": "data", "Uri": "s3://b/d", "Digest": "d1", "State": "Same"}],
        "Code": {"Name": "code", "Uri": "s3://b/c", "Digest": "c1", "State": "Same"},
        "Packages": ["numpy==2.4.6", "torch==2.13.0"],
        "Metrics": [{"MetricName": "loss", "Value": 0.5}],
        "Outputs": [{"Name": "model", "Uri": "s3://b/m", "Digest": "m1"}],
        "Request": json.dumps(REQUEST),
        **changed,
    }


def test_the_request_is_repeated_under_another_name_and_resumes_from_nothing() -> None:
    repeated = repeated_request(record(), "again")
    assert repeated["TrainingJobName"] == "again"
    assert repeated["HyperParameters"] == {"lr": "0.1", "sagemaker_job_name": '"again"'}
    assert repeated["CheckpointConfig"] == {"S3Uri": "s3://b/checkpoints/again", "LocalPath": "/opt/ml/checkpoints"}
    assert repeated["Tags"] == [{"Key": "team", "Value": "vision"}, {"Key": TAG, "Value": "first"}]


def test_a_new_name_says_what_is_repeated() -> None:
    api = RecordingApi()
    assert start_again(api, record(TrainingJobName="mnist-2026-01-02-03-04-05-678")).startswith("again-mnist-20")
    assert start_again(api, record(), name="mine") == "mine"
    assert [request["TrainingJobName"] for _, request in api.asked][1] == "mine"


@pytest.mark.parametrize(
    ("state", "words"), [("Changed", "has changed"), ("Gone", "is gone"), ("Unknown", "was not recorded by content")]
)
def test_a_source_that_is_not_the_same_is_named(state: str, words: str) -> None:
    changed = record(Inputs=[{"Name": "data", "Uri": "s3://b/d", "State": state}])
    assert changed_sources(changed) == [f"data at s3://b/d {words}"]
    with pytest.raises(Conflict, match=f"cannot be reproduced exactly: data at s3://b/d {words}. --allow-changed"):
        require_same_sources(changed)
    require_same_sources(record())


def test_two_jobs_differ_in_values_packages_and_results() -> None:
    other = record(
        Packages=["numpy==2.4.7", "scipy==1.17.1", "torch==2.13.0"],
        Metrics=[{"MetricName": "loss", "Value": 0.25}],
        Outputs=[{"Name": "model", "Uri": "s3://b/n", "Digest": "m2"}],
    )
    assert differences_of(record(), record(TrainingJobName="again")) == []
    assert differences_of(record(), other) == [
        Difference("metric", "loss", "0.5", "0.25"),
        Difference("package", "numpy", "2.4.6", "2.4.7"),
        Difference("result", "model", "m1", "m2"),
        Difference("package", "scipy", None, "1.17.1"),
    ]
