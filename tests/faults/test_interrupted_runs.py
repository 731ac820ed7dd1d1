"""Runs of a small PyTorch job that are interrupted at random moments and still produce the same weights."""

import itertools
import logging
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.system.trainees import Trainee
from tests.system.yards import trainee_of
from trainyard._sdk.training.interruptions import interruptions
from trainyard.foundation.jobs.training.interruptions import InterruptionSchedule
from trainyard.testing.yard import RunningYard, running_yard
from trainyard.wire.client import Client

log = logging.getLogger(__name__)

RUNS = 200  # interrupted at least once
BATCH = 50
AT_ONCE = 2
TWO_SLOTS = {"TRAINYARD_SERVER_SLOTS": "2"}
STEPS, SAVED_EVERY = 40, 5
BETWEEN = timedelta(seconds=0.4)  # average time between interruptions
MOST = 4  # interruptions of one run
SPOT_SHARE = 0.3  # of the on-demand price

# Deterministic, with all that a training run must restore: weights, momentum, data order and dropout. A polite run uses
# its grace period to save; the others die at once and lose the work since their last checkpoint.
TRAIN = f"""
import argparse, os, pathlib, signal, sys, time
import torch

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # at once, so that no line is cut when it is ended
    sys.stdout.flush()

parser = argparse.ArgumentParser()
parser.add_argument("--polite", type=int, default=0)
polite = parser.parse_args().polite

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data = torch.Generator().manual_seed(1)
kept = pathlib.Path("/opt/ml/checkpoints/state.pt")
step, told = 0, []

def save():
    state = dict(step=step, model=model.state_dict(), optimizer=optimizer.state_dict())
    torch.save(state | dict(data=data.get_state(), dropout=torch.get_rng_state()), kept.with_suffix(".new"))
    os.replace(kept.with_suffix(".new"), kept)
    say("saved", step)

if polite:
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
if kept.exists():
    state = torch.load(kept, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    data.set_state(state["data"])
    torch.set_rng_state(state["dropout"])
    step = state["step"]
say("from", step)
while step < {STEPS}:
    batch = torch.randn(32, 8, generator=data)
    loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    say("step", step, "loss", loss.item())
    if told:
        save()
        raise SystemExit
    if step % {SAVED_EVERY} == 0:
        save()
    time.sleep(0.02)
weights = torch.cat([each.detach().flatten() for each in model.parameters()])
pathlib.Path("/opt/ml/model/weights").write_bytes(weights.numpy().tobytes())
"""


@dataclass(frozen=True)
class Run:
    """The history of a job. `begun`, `done` and `saved` are steps, one entry per attempt."""

    told: dict[str, Any]
    attempts: list[dict[str, Any]]
    weights: bytes
    losses: dict[int, str]
    begun: list[int]
    done: list[int]
    saved: list[int]

    @property
    def interruptions(self) -> int:
        return len(self.attempts) - 1


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("interrupted") / "yard", environment=TWO_SLOTS) as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    return trainee_of(yard).prepare()


@pytest.fixture(scope="module")
def whole(trainee: Trainee) -> Run:
    """Run the job without an interruption."""
    found = run(trainee, "whole", polite=0, schedule=None)
    assert (found.interruptions, found.begun, found.done) == (0, [0], [STEPS])
    return found


@pytest.fixture(scope="module")
def seeds() -> Iterator[int]:
    return itertools.count()


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(RUNS // BATCH))
def test_interrupted_runs_end_with_the_weights_of_an_uninterrupted_run(
    trainee: Trainee, whole: Run, seeds: Iterator[int], batch: int
) -> None:
    before, runs = summed_up(trainee), list[Run]()

    def go_on() -> None:
        while len(runs) < BATCH:
            seed = next(seeds)
            schedule = InterruptionSchedule(seed, BETWEEN, most=MOST)
            found = run(trainee, f"run-{seed}", polite=seed % 2, schedule=schedule)
            check(found, whole, is_polite=bool(seed % 2))
            if found.interruptions:
                runs.append(found)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        for each in [threads.submit(go_on) for _ in range(AT_ONCE)]:
            each.result()
    check_sums(before, summed_up(trainee), runs)
    redone, count = sum(map(steps_redone, runs)), sum(each.interruptions for each in runs)
    log.info("%d: %d runs, %d interruptions, %d of %d steps twice", batch, len(runs), count, redone, len(runs) * STEPS)


def run(trainee: Trainee, name: str, *, polite: int, schedule: InterruptionSchedule | None) -> Run:
    request = trainee.request(name, TRAIN)
    request["HyperParameters"]["polite"] = str(polite)
    request |= {
        "CheckpointConfig": {"S3Uri": f"s3://{trainee.bucket}/{name}/checkpoints"},
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 300, "MaxWaitTimeInSeconds": 600},
    }
    trainee.sagemaker.create_training_job(**request)
    user = trainee.user
    with closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)) as api:
        if schedule is not None:
            for _ in interruptions(api, name, schedule):
                pass
        told = trainee.reach(name, "Completed", "Failed", "Stopped")
        attempts = api.call("trainyard", "DescribeJob", TrainingJobName=name)["Attempts"]
    assert told["TrainingJobStatus"] == "Completed", (name, told.get("FailureReason"))
    (weights,) = trainee.archive(f"out/{name}/output/model.tar.gz").values()
    assert weights is not None
    printed = [[line.split() for line in lines] for lines in programs_lines(trainee, name, len(attempts))]
    losses = {int(words[1]): words[3] for lines in printed for words in lines if words[0] == "step"}
    begun = [last(lines, "from", 0) for lines in printed]
    done = [last(lines, "step", start) for lines, start in zip(printed, begun, strict=True)]
    saved = [last(lines, "saved", start) for lines, start in zip(printed, begun, strict=True)]
    return Run(told, attempts, weights, losses, begun, done, saved)


def programs_lines(trainee: Trainee, name: str, attempts: int) -> list[list[str]]:
    """Return the program's output in each attempt that started it."""
    found = [trainee.printed(name, instance=number) for number in range(attempts)]
    return [lines for lines in found if lines]


def last(lines: list[list[str]], word: str, otherwise: int) -> int:
    return max((int(words[1]) for words in lines if words[0] == word), default=otherwise)


def check(found: Run, whole: Run, *, is_polite: bool) -> None:
    name = found.told["TrainingJobName"]
    assert found.weights == whole.weights, f"{name} produced different weights"
    assert found.losses == whole.losses, f"{name} had different losses"
    assert (found.begun[0], found.done[-1]) == (0, STEPS)
    for left, kept, began in zip(found.done, found.saved, found.begun[1:], strict=False):
        # It may have been killed between the rename of the file and the print.
        assert kept <= began <= left, f"{name} resumed from {began}, although it had saved {kept}"
        assert left - began <= SAVED_EVERY, f"{name} lost the work since {began}; it was at {left}"
        assert left == began or not is_polite, f"{name} saved {left} in its grace period, but resumed from {began}"
    check_ledger(found)


def check_ledger(found: Run) -> None:
    """Compute the bill in two ways: from the seconds of the attempts, and from the times of the transitions."""
    trained = sum(attempt["TrainingTimeInSeconds"] for attempt in found.attempts)
    assert found.told["TrainingTimeInSeconds"] == max(1, math.ceil(round(trained, 6)))
    billable = found.told["BillableTimeInSeconds"]
    assert billable == max(1, round(found.told["TrainingTimeInSeconds"] * SPOT_SHARE))
    steps = found.told["SecondaryStatusTransitions"]
    assert sum(step["Status"] == "Interrupted" for step in steps) == found.interruptions
    for attempt in found.attempts:
        began = next((at for at in begins(steps) if at >= to_millis(attempt["StartTime"])), None)
        lasted = (to_millis(attempt["EndTime"]) - began).total_seconds() if began else 0.0
        assert attempt["TrainingTimeInSeconds"] == pytest.approx(max(0.0, lasted), abs=0.002)


def begins(steps: list[dict[str, Any]]) -> Iterator[datetime]:
    return (to_millis(step["StartTime"]) for step in steps if step["Status"] in ("Downloading", "Training"))


def to_millis(at: datetime) -> datetime:
    """Round to the precision of the wire."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def steps_redone(found: Run) -> int:
    return sum(found.done) - sum(found.begun) - STEPS


def summed_up(trainee: Trainee) -> dict[str, Any]:
    user = trainee.user
    with closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)) as api:
        total: dict[str, Any] = api.call("trainyard", "DescribeSpot")["Total"]
    return total


def check_sums(before: dict[str, Any], after: dict[str, Any], runs: list[Run]) -> None:
    """Check the yard's totals against the runs, including those that were not interrupted."""
    assert after["Jobs"] - before["Jobs"] >= len(runs)
    assert after["Interruptions"] - before["Interruptions"] == sum(each.interruptions for each in runs)
    assert after["WorstResumeInSeconds"] >= after["MedianResumeInSeconds"] > 0
    log.info("resumed after %(MedianResumeInSeconds).2f s, at worst %(WorstResumeInSeconds).2f s", after)
