"""Real packages from an index, installed over the environment of a job that has torch, and what they do in it."""

import importlib.metadata

import pytest

from tests.conformance.conftest import Person
from tests.system.test_training import trainee_of
from tests.system.trainees import Trainee, packed

REQUIREMENTS = """
# Without TensorFlow, TensorBoard writes s3:// through boto3; pkg_resources left setuptools in version 81.
torch>=2
numpy
boto3
s3fs==2026.9.0
tensorboard==2.21.0
setuptools<81
"""
SCRIPT = """
import importlib.metadata, sys
import boto3, s3fs, torch
from torch.utils.tensorboard import SummaryWriter

print("torch", torch.__version__, torch.__file__)
print("boto3", boto3.client("sts").get_caller_identity()["Arn"])
files = s3fs.S3FileSystem()
with files.open("data/from-s3fs.txt", "w") as file:
    file.write("hello")
print("s3fs", files.cat("data/from-s3fs.txt").decode(), files.ls("data/train"))
with SummaryWriter("s3://data/tensorboard") as writer:
    writer.add_scalar("loss", 0.5, 1)
print("distributions", *sorted(each.metadata["Name"] for each in importlib.metadata.distributions()))
"""


@pytest.fixture
def trainee(person: Person) -> Trainee:
    return trainee_of(person.yard).prepare()


def run(trainee: Trainee, name: str) -> list[str]:
    request = trainee.request(name, SCRIPT)
    body = packed({"train.py": SCRIPT, "requirements.txt": REQUIREMENTS})
    trainee.user.client("s3").put_object(Bucket="data", Key=f"{name}/source/sourcedir.tar.gz", Body=body)
    trainee.sagemaker.create_training_job(**request)
    told = trainee.reach(name, "Completed", "Failed")
    assert told["TrainingJobStatus"] == "Completed", (told["FailureReason"], trainee.lines(name)[-20:])
    return trainee.printed(name)


@pytest.mark.slow
def test_packages_of_an_index_work_over_the_torch_that_is_there(trainee: Trainee) -> None:
    printed = run(trainee, "overlaid")
    found = {line.partition(" ")[0]: line for line in printed}
    torch = importlib.metadata.version("torch")
    assert found["torch"].startswith(f"torch {torch} ")
    assert "/opt/ml/" not in found["torch"]
    assert found["boto3"].endswith(":assumed-role/TrainyardRole/overlaid")
    assert "hello ['data/train/a.csv', 'data/train/deep']" in found["s3fs"]
    events = trainee.keys("tensorboard/events.out.tfevents")
    assert len(events) == 1
    assert not any(line.startswith(("+ torch", " + torch")) for line in printed)
    again = run(trainee, "overlaid-again")
    assert again[-1] == printed[-1]
    assert not any(line.startswith(" + ") for line in again)
