"""A job whose data, code, checkpoints and results are encrypted with a key of its user."""

from pathlib import Path
from typing import Any

import pytest

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from trainyard.testing.yard import RunningYard

SECRET = "the plans of the invasion"
SCRIPT = f"""
import os
data = "/opt/ml/input/data"
assert open(data + "/file/a.csv").read() == "{SECRET}"
assert open(data + "/fast/a.csv").read() == "{SECRET}"
with open(data + "/pipe_0") as pipe:
    assert pipe.read() == "{SECRET}"
# As in any File channel, the program may change its copy.
open(data + "/file/a.csv", "a").write("!")
for folder in ("model", "output/data", "checkpoints"):
    with open(f"/opt/ml/{{folder}}/result", "w") as file:
        file.write("{SECRET}")
"""


@pytest.fixture(scope="module")
def anna(administrator: User) -> Trainee:
    return Trainee(administrator).prepare()


def channel(name: str, mode: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://data/secret/"}
    return {"ChannelName": name, "InputMode": mode, "DataSource": {"S3DataSource": source}}


@pytest.mark.flow
def test_nothing_of_an_encrypted_job_lies_in_the_store_in_the_clear(anna: Trainee, yard: RunningYard) -> None:
    s3, kms = anna.user.client("s3"), anna.user.client("kms")
    key = kms.create_key(Description="of models")["KeyMetadata"]["Arn"]
    kms.create_alias(AliasName="alias/models", TargetKeyId=key)
    asked = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "alias/models"}
    put = s3.put_object(Bucket=anna.bucket, Key="secret/a.csv", Body=SECRET.encode(), **asked)
    assert put["SSEKMSKeyId"] == key
    request = {
        "InputDataConfig": [channel("file", "File"), channel("fast", "FastFile"), channel("pipe", "Pipe")],
        "OutputDataConfig": {"S3OutputPath": f"s3://{anna.bucket}/out", "KmsKeyId": "alias/models"},
        "CheckpointConfig": {"S3Uri": f"s3://{anna.bucket}/ck"},
    }
    told = anna.run("encrypted", SCRIPT, **request)
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), anna.lines("encrypted"))
    assert told["OutputDataConfig"]["KmsKeyId"] == "alias/models"
    results = ["out/encrypted/output/model.tar.gz", "out/encrypted/output/output.tar.gz", "ck/result"]
    for name in results:
        head = s3.head_object(Bucket=anna.bucket, Key=name)
        assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", key), name
    assert anna.archive(results[0])["result"] == SECRET.encode()
    assert s3.get_object(Bucket=anna.bucket, Key="secret/a.csv")["Body"].read() == SECRET.encode()
    stored = [path for path in Path(yard.home.objects / "data").rglob("*") if path.is_file()]
    assert not [path for path in stored if SECRET.encode() in path.read_bytes()]

    kms.disable_key(KeyId=key)
    with pytest.raises(anna.sagemaker.exceptions.ClientError, match=r"KmsKeyId in OutputDataConfig .* is disabled"):
        anna.start("refused", SCRIPT, **request)
    told = anna.run("unreadable", SCRIPT, InputDataConfig=[channel("file", "File")])
    assert told["TrainingJobStatus"] == "Failed"
    assert f"cannot be decrypted: {key} is disabled" in told["FailureReason"]
