"""What notebooks show of jobs, tuning jobs and trials while they run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.notebooks import run_live_cells
from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from tests.system.watching import place_of
from trainyard.testing.yard import RunningYard, running_yard

# Trains until a file is there, and says how many steps it did.
SCRIPT = """
import itertools, os, time, torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in itertools.count():
    loss = nn.functional.mse_loss(model(torch.ones(4, 4)), torch.ones(4, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss={loss.item():.5f};", flush=True)
    time.sleep(0.1)
    if os.path.exists("/opt/ml/enough"):
        break
print(f"did {step + 1} steps", flush=True)
"""
# Lets the job end once its live output has changed.
END = """
import pathlib, time
while sum("InProgress" in line for line in pathlib.Path({messages!r}).read_text().splitlines()) < 2:
    time.sleep(0.1)
pathlib.Path({enough!r}).touch()
job.wait(logs=False)
"""


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[RunningYard]:
    with running_yard(tmp_path / "yard") as running:
        yield running


def test_a_job_and_its_trial_show_themselves_until_they_have_ended(yard: RunningYard, tmp_path: Path) -> None:
    key = yard.credentials
    trainee = Trainee(User(yard.http, key.account, "admin", key.access_key_id, key.secret_access_key)).prepare()
    request = trainee.request("seen", SCRIPT, DebugHookConfig={"S3OutputPath": "s3://data/tensors"})
    request["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": "loss", "Regex": "loss=([0-9.]+);"}]
    trainee.sagemaker.create_training_job(**request | {"Environment": {"OMP_NUM_THREADS": "1"}})
    trainee.reach("seen", "Training")
    folder = tmp_path / "notebook"
    folder.mkdir()
    end = END.format(messages=str(folder / "messages.jsonl"), enough=str(place_of(yard, "seen").ml / "enough"))
    cells = [
        "from trainyard.session import Session\n"
        "from trainyard._sdk.training.job import TrainingJobHandle\n"
        "from trainyard.trial import create_trial\n"
        "session = Session()\n"
        "job = TrainingJobHandle(session.api, 'seen')\n"
        "job",
        "trial = create_trial('s3://data/tensors/seen/debug-output', timeout_s=60)\ntrial",
        # The trial is used while another thread shows it.
        end + "trial.refresh()\ntrial.steps(known=True)",
    ]
    job, trial = run_live_cells(cells, folder, environment=yard.environment())
    assert "InProgress" in job.html[0]
    assert job.html[0].endswith(">Live</div>")
    assert "Completed" in job.html[-1]
    assert "Live" not in job.html[-1]
    assert "<svg" in job.html[-1]
    assert len(job.html) > 2
    assert job.text[-1] == "<training job seen: Completed>"
    assert "in progress" in trial.html[0]
    assert "has ended" in trial.html[-1]
    (steps,) = (int(line.split()[1]) for line in trainee.printed("seen") if line.startswith("did "))
    assert f"{steps}, the last is {steps - 1}" in trial.html[-1]
