from pathlib import Path

from trainyard.wire.models import Models
from trainyard.wire.request_members import request_members


def test_what_no_request_can_have_is_left_out(tmp_path: Path) -> None:
    operation = Models(tmp_path).service("sagemaker").operation_model("CreateTrainingJob")
    description = {
        "TrainingJobName": "a",
        "TrainingJobStatus": "Completed",
        "OutputDataConfig": {"S3OutputPath": "s3://b/o", "KmsKeyId": "", "Added": 1},
        "HyperParameters": {"lr": "0.1", "empty": ""},
        "InputDataConfig": [{"ChannelName": "train", "Other": 1, "DataSource": {}}],
        "Environment": {},
    }
    assert request_members(operation, description) == {
        "TrainingJobName": "a",
        "OutputDataConfig": {"S3OutputPath": "s3://b/o"},
        "HyperParameters": {"lr": "0.1", "empty": ""},
        "InputDataConfig": [{"ChannelName": "train"}],
    }
