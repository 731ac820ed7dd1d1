"""The command line of simple-sagemaker as its documentation describes it, flag by flag.

A shell task on one instance whose state is stored in S3 for the next run of the task, the same on three instances, and
a task with the output of another as its input.
"""

import json
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import boto3

# Not through its shebang line, which breaks if the path to Python contains a space.
SSM = (sys.executable, Path(sys.executable).with_name("ssm"))
# Saves its checkpoint in the working directory and resumes from it, as PyTorch's ImageNet example does.
MAIN = """
import argparse, os, pathlib, torch

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--epochs", type=int)
parser.add_argument("--resume", type=pathlib.Path)
options = parser.parse_args()
epoch, weight = 0, torch.zeros(3)
if options.resume and options.resume.exists():
    checkpoint = torch.load(options.resume)
    epoch, weight = checkpoint["epoch"], checkpoint["weight"]
print(f"=> from epoch {epoch} with {sorted(os.listdir(options.data))}")
numbers = torch.tensor([float(text) for text in pathlib.Path(options.data, "train.csv").read_text().split(",")])
for _ in range(options.epochs):
    weight, epoch = weight + numbers, epoch + 1
    print(f"Acc@1 {epoch * 10:.3f}")
torch.save({"epoch": epoch, "weight": weight}, "checkpoint.pth.tar")
pathlib.Path("weight.json").write_text(str(weight.tolist()))
"""
RUN = "python /opt/ml/code/main.py $SM_CHANNEL_IMAGENET --epochs 10 --resume checkpoint.pth.tar"
COMMAND = f"cd $SSM_INSTANCE_STATE && {RUN}"
CHAINED = "echo given $(cat $SM_CHANNEL_BEFORE/algo-1/weight.json)"


def main() -> None:
    bucket = f"imagenet-{uuid.uuid4().hex[:8]}"
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="imagenet-data/train.csv", Body=b"1,2,3")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "main.py").write_text(MAIN)
        project = f"imagenet-{uuid.uuid4().hex[:8]}"
        data = f"s3://{bucket}/imagenet-data"
        keeps_its_state(Path(folder), project, data)
        keeps_the_state_of_each_instance(Path(folder), project, data)
        is_fed_by_another(Path(folder), project)


def keeps_its_state(folder: Path, project: str, data: str) -> None:
    task = ("-p", project, "-t", "1-node", "--iis", "imagenet", data, "--it", "ml.p3.2xlarge", "-d", "main.py")
    first = ssm(folder, *task, "-o", "output1", "--download_state", "-v", "280", "--no_spot", "--cmd_line", COMMAND)
    assert "=> from epoch 0 with ['train.csv']" in first.read("logs/logs0")
    assert json.loads(first.read("state/algo-1/weight.json")) == [10, 20, 30]
    # Without --no_spot it is a spot job; a completed task runs again only if forced.
    again = ssm(folder, *task, "-o", "output2", "--download_state", "--force_running", "--cmd_line", COMMAND)
    assert "=> from epoch 10" in again.read("logs/logs0")
    assert json.loads(again.read("state/algo-1/weight.json")) == [20, 40, 60]
    assert again.path("state/algo-1/checkpoint.pth.tar").stat().st_size > 0


def keeps_the_state_of_each_instance(folder: Path, project: str, data: str) -> None:
    task = ("-p", project, "-t", "3-nodes", "--iis", "imagenet", data, "--it", "ml.p3.2xlarge", "--ic", "3")
    done = ssm(
        *(folder, *task, "-d", "main.py", "-o", "output3", "--download_state", "--no_spot"),
        *("--md", "acc", "Acc@1 ([0-9.]+)", "--cmd_line", COMMAND),
    )
    for instance in range(3):
        assert "Acc@1 100.000" in done.read(f"logs/logs{instance}")
        assert json.loads(done.read(f"state/algo-{instance + 1}/weight.json")) == [10, 20, 30]


def is_fed_by_another(folder: Path, project: str) -> None:
    task = ("-p", project, "-t", "next", "--iit", "before", "1-node", "state", "--it", "ml.m5.large", "--no_spot")
    done = ssm(folder, *task, "-o", "output4", "--cmd_line", CHAINED)
    assert "given [20.0, 40.0, 60.0]" in done.read("logs/logs0")


class Results:
    """The downloaded results of a task."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str) -> Path:
        return self._folder / name

    def read(self, name: str) -> str:
        return self.path(name).read_text()


def ssm(folder: Path, *arguments: str) -> Results:
    run = subprocess.run([*SSM, "shell", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"ssm {arguments}: {run.stderr[-4000:]}{run.stdout[-4000:]}"
    return Results(folder / arguments[arguments.index("-o") + 1])


main()
