"""`trainyard profile` and `advise` on a real yard: the verdict, a profile on request, and advice that is tried."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.command_line import CommandLine
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard

# Eight data workers for one or two cores, started again in each epoch.
TRAIN = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--workers", type=int, default=8)
options = parser.parse_args()

data = TensorDataset(torch.randn(640, 64), torch.randint(10, (640,)))
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(options.epochs):
    for images, labels in DataLoader(data, batch_size=32, shuffle=True, num_workers=options.workers):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, flush=True)
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("advice") / "yard") as running:
        yield running


@pytest.fixture(scope="module")
def trainyard(yard: RunningYard, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    line = CommandLine(yard, tmp_path_factory.mktemp("work"), limit_s=240)
    line.script(TRAIN)
    return line


@pytest.fixture(scope="module")
def crowded(trainyard: CommandLine) -> str:
    """Run a job with too many data workers to its end, and return its name."""
    done = trainyard("run", "train.py", "--name", "crowded")
    assert done.returncode == 0, done.stderr
    return "crowded"


def test_a_job_tells_where_its_time_goes(trainyard: CommandLine, crowded: str) -> None:
    done = trainyard("profile", crowded)
    assert done.returncode == 0, done.stderr
    assert "8 data workers" in done.stdout.splitlines()[0]
    assert "data wait" in done.stdout
    assert "job cpu" in done.stdout
    assert f"trainyard advise {crowded}" in done.stderr


def test_advice_is_tried_and_its_gain_measured(trainyard: CommandLine, crowded: str) -> None:
    found = trainyard.read("advise", crowded, "--verify", "--rounds", "2", "--trial-seconds", "1")
    assert found["Bottleneck"]["Kind"] == "too_many_workers"
    tried = {name: each for each in found["Verified"] for name in each["Changes"]}
    workers = tried["loader_workers"]
    assert workers["Problem"] == ""
    assert int(workers["Changes"]["loader_workers"]) < 8
    assert workers["Speedup"]["Pairs"] == 2
    assert workers["Speedup"]["Low"] <= workers["Speedup"]["Factor"] <= workers["Speedup"]["High"]
    assert workers["PerSample"]
    assert len(found["Jobs"]) == 2 * (1 + len(found["Verified"]))

    cleaned = trainyard("advise", crowded, "--clean")
    assert f"Removed {len(found['Jobs'])} trial jobs" in cleaned.stderr
    assert [each["TrainingJobName"] for each in trainyard.read("ls")["Jobs"]] == [crowded]


def test_a_running_job_profiles_its_next_steps(trainyard: CommandLine, yard: RunningYard) -> None:
    running = trainyard("run", "train.py", "--name", "long", "--detach", "--", "--epochs", "100000", "--workers", "0")
    assert running.returncode == 0, running.stderr
    try:
        eventually(lambda: "epoch 1" in trainyard("logs", "long").stdout, "the log")
        done = trainyard("profile", "long", "--steps", "3", "-o", "traces", "--json")
        assert done.returncode == 0, done.stderr
        (trace,) = json.loads(done.stdout)["Traces"]
        assert trace["S3Uri"].endswith(".pt.trace.json.gz")
        (file,) = (trainyard.folder / "traces").iterdir()
        assert file.stat().st_size == trace["SizeBytes"] > 0
        assert "long" in trainyard("top", "--once").stdout
    finally:
        trainyard("stop", "long")


def test_an_ended_job_profiles_no_more_steps(trainyard: CommandLine, crowded: str) -> None:
    done = trainyard("profile", crowded, "--steps", "3")
    assert done.returncode != 0
    assert "only the steps of a job in Training can be profiled" in done.stderr


def test_a_job_has_a_report_without_a_rule_for_it(trainyard: CommandLine, crowded: str, tmp_path: Path) -> None:
    done = trainyard("profile", crowded, "--report", str(tmp_path / "report.html"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert "8 data workers" in page
    assert not trainyard.read("profile", crowded)["Report"]
