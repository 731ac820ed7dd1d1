"""Tuning jobs on a real yard: trials are suggested, started, followed, stopped early, fail, and are counted."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.system.trainees import ENDED
from tests.system.tuners import Tuner, numbers_of, objectives_of
from tests.system.yards import trainee_of
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard, start_yard
from trainyard.wire.client import Client

SLOTS = {"TRAINYARD_SERVER_SLOTS": "8"}
PARABOLA = 'x = float(tuned["x"])\nreport((x - 0.3) ** 2)\n'
# The sixth trial goes badly, and would take long.
SIXTH_IS_BAD = """
for step in range(1, 4):
    report(5 if number == 6 else 1 / step)
    time.sleep(0.02)
time.sleep(120 if number == 6 else 0)
"""
# Reports until it is stopped; the first trials are the best.
ENDLESS = """
for step in range(1, 2000):
    report(number + 1 / step)
    time.sleep(0.2)
"""
FATES = """
if tuned["fate"] == "good":
    report(0.5)
elif tuned["fate"] == "diverges":
    report(0.1)
    report("nan")
elif tuned["fate"] == "fails":
    raise ValueError("It was told to fail.")
"""
WAIT = """
report(0.5)
time.sleep(120)
"""
# Waits for an interruption in its first attempt, and saves its progress.
TWO_ATTEMPTS = """
import pathlib
kept = pathlib.Path("/opt/ml/checkpoints/kept")
if not kept.exists():
    kept.write_text("yes")
    report(0.9)
    time.sleep(120)
report(0.4)
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("tuning") / "yard", environment=SLOTS) as opened:
        trainee_of(opened).prepare()
        yield opened


@pytest.fixture
def tuner(yard: RunningYard) -> Tuner:
    return Tuner(trainee_of(yard))


@pytest.mark.flow
def test_a_study_searches_runs_and_counts(tuner: Tuner) -> None:
    told = tuner.run("parabola", PARABOLA, ranges={"x": (0.0, 1.0)}, trials=6)
    assert told["HyperParameterTuningJobStatus"] == "Completed"
    trials = tuner.trials("parabola")
    assert numbers_of(trials) == [1, 2, 3, 4, 5, 6]
    for trial in trials:
        job = tuner.trainee.describe(trial["TrainingJobName"])
        assert job["HyperParameters"]["x"] == trial["TunedHyperParameters"]["x"]
        assert job["TuningJobArn"] == told["HyperParameterTuningJobArn"]
        loss = (float(trial["TunedHyperParameters"]["x"]) - 0.3) ** 2
        assert trial["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] == pytest.approx(loss)
    best = min(trials, key=lambda each: each["FinalHyperParameterTuningJobObjectiveMetric"]["Value"])
    assert told["BestTrainingJob"]["TrainingJobName"] == best["TrainingJobName"]
    assert told["TrainingJobStatusCounters"]["Completed"] == told["ObjectiveStatusCounters"]["Succeeded"] == 6


def test_a_trial_that_is_not_promising_is_stopped_while_it_runs(tuner: Tuner) -> None:
    told = tuner.run(
        "early",
        SIXTH_IS_BAD,
        ranges={"x": (0.0, 1.0)},
        trials=6,
        parallel=5,
        strategy="Random",
        TrainingJobEarlyStoppingType="Auto",
    )
    assert told["HyperParameterTuningJobStatus"] == "Completed"
    *others, last = tuner.trials("early")
    assert {each["TrainingJobStatus"] for each in others} == {"Completed"}
    assert (last["TrainingJobStatus"], last["ObjectiveStatus"]) == ("Stopped", "Succeeded")
    assert last["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] == 5
    steps = tuner.trainee.describe(last["TrainingJobName"])["SecondaryStatusTransitions"]
    (stopping,) = (step for step in steps if step["Status"] == "Stopping")
    assert stopping["StatusMessage"].startswith("Stopped early by the tuning job early: loss was 5 at report ")


def test_hyperband_ends_every_trial_and_most_of_them_soon(tuner: Tuner) -> None:
    told = tuner.run(
        "hyperband",
        ENDLESS,
        ranges={"x": (0.0, 1.0)},
        trials=7,
        parallel=7,
        strategy="Hyperband",
        StrategyConfig={"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 9}},
    )
    assert told["HyperParameterTuningJobStatus"] == "Completed"
    trials = tuner.trials("hyperband")
    assert {each["TrainingJobStatus"] for each in trials} == {"Stopped"}
    reasons = Counter(reason_of_stop(tuner, each["TrainingJobName"]) for each in trials)
    assert sum(count for why, count in reasons.items() if "all that a trial is given" in why) >= 1
    assert sum(count for why, count in reasons.items() if "go on" in why) >= 2


def reason_of_stop(tuner: Tuner, name: str) -> str:
    steps = tuner.trainee.describe(name)["SecondaryStatusTransitions"]
    return next(str(step["StatusMessage"]) for step in steps if step["Status"] == "Stopping")


def test_a_grid_runs_to_its_end_whatever_happens_to_single_trials(tuner: Tuner) -> None:
    fates = ("good", "diverges", "is silent", "fails")
    told = tuner.run("fates", FATES, ranges={"fate": fates}, parallel=4, strategy="Grid")
    assert told["HyperParameterTuningJobStatus"] == "Completed"
    trials = {each["TunedHyperParameters"]["fate"]: each for each in tuner.trials("fates")}
    assert trials.keys() == set(fates)
    ends = {fate: (each["TrainingJobStatus"], each["ObjectiveStatus"]) for fate, each in trials.items()}
    assert ends == {
        "good": ("Completed", "Succeeded"),
        "diverges": ("Completed", "Failed"),
        "is silent": ("Completed", "Failed"),
        "fails": ("Failed", "Failed"),
    }
    assert "It was told to fail." in trials["fails"]["FailureReason"]
    assert objectives_of([trials["diverges"], trials["is silent"]]) == [None, None]
    assert told["BestTrainingJob"]["TrainingJobName"] == trials["good"]["TrainingJobName"]


def test_a_study_in_which_everything_fails_ends_with_the_reason(tuner: Tuner) -> None:
    script = 'raise ValueError("The data is gone.")\n'
    told = tuner.run("hopeless", script, ranges={"x": (0.0, 1.0)}, trials=50, parallel=5, strategy="Random")
    assert told["HyperParameterTuningJobStatus"] == "Failed"
    assert "The data is gone." in told["FailureReason"]
    assert told["TrainingJobStatusCounters"]["NonRetryableError"] <= 10


def test_a_stop_ends_the_children_and_keeps_what_they_reported(tuner: Tuner) -> None:
    tuner.start("stopped", WAIT, ranges={"x": (0.0, 1.0)}, trials=50, parallel=2)
    eventually(lambda: len(reported(tuner, "stopped")) == 2, within=timedelta(seconds=60))
    tuner.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName="stopped")
    told = tuner.finish("stopped")
    assert told["HyperParameterTuningJobStatus"] == "Stopped"
    trials = tuner.trials("stopped")
    assert [each["TrainingJobStatus"] for each in trials] == ["Stopped", "Stopped"]
    assert objectives_of(trials) == [0.5, 0.5]
    assert reason_of_stop(tuner, trials[0]["TrainingJobName"]) == "The tuning job stopped was stopped."


def reported(tuner: Tuner, name: str) -> list[str]:
    """Return the trials whose programs have printed something."""
    names = [each["TrainingJobName"] for each in tuner.trials(name)]
    return [each for each in names if tuner.trainee.printed(each)]


def test_an_interrupted_spot_trial_continues_and_is_one_trial(tuner: Tuner) -> None:
    spot: dict[str, Any] = {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 300, "MaxWaitTimeInSeconds": 300},
        "CheckpointConfig": {"S3Uri": "s3://data/kept"},
    }
    tuner.start("spot", TWO_ATTEMPTS, ranges={"x": (0.0, 1.0)}, trials=1, parallel=1, definition=spot)
    (name,) = eventually(lambda: reported(tuner, "spot"), within=timedelta(seconds=60))
    interrupt(tuner, name)
    told = tuner.finish("spot")
    assert told["HyperParameterTuningJobStatus"] == "Completed"
    (trial,) = tuner.trials("spot")
    assert (trial["TrainingJobStatus"], objectives_of([trial])) == ("Completed", [0.4])
    steps = [step["Status"] for step in tuner.trainee.describe(name)["SecondaryStatusTransitions"]]
    assert "Interrupted" in steps


def interrupt(tuner: Tuner, name: str) -> None:
    user = tuner.trainee.user
    with closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)) as client:
        client.call("trainyard", "InterruptJob", TrainingJobName=name)


def test_a_yard_that_is_killed_loses_and_doubles_no_trial(tmp_path: Path) -> None:
    yard = start_yard(tmp_path / "yard", environment=SLOTS)
    try:
        tuner = Tuner(trainee_of(yard))
        tuner.trainee.prepare()
        tuner.start("killed", PARABOLA, ranges={"x": (0.0, 1.0)}, trials=6, parallel=2)
        eventually(lambda: len(tuner.trials("killed")) >= 3, within=timedelta(seconds=60))
        yard.kill()
        yard = start_yard(tmp_path / "yard", environment=SLOTS)
        tuner = Tuner(trainee_of(yard))
        told = tuner.finish("killed")
        check_accounts(tuner, "killed", told, count=6)
    finally:
        yard.stop()


def check_accounts(tuner: Tuner, name: str, told: dict[str, Any], *, count: int) -> None:
    """Check that every trial exists once, ran with the recorded values, and is counted."""
    trials = tuner.trials(name)
    assert numbers_of(trials) == list(range(1, count + 1))
    jobs = tuner.sagemaker.get_paginator("list_training_jobs").paginate(NameContains=f"{name}-")
    names = [each["TrainingJobName"] for page in jobs for each in page["TrainingJobSummaries"]]
    assert sorted(names) == [each["TrainingJobName"] for each in trials]
    for trial in trials:
        job = tuner.trainee.describe(trial["TrainingJobName"])
        assert job["TrainingJobStatus"] == trial["TrainingJobStatus"]
        assert trial["TunedHyperParameters"].items() <= job["HyperParameters"].items()
    statuses = Counter(each["TrainingJobStatus"] for each in trials)
    assert set(statuses) <= set(ENDED)
    counters = told["TrainingJobStatusCounters"]
    assert (counters["Completed"], counters["InProgress"]) == (statuses["Completed"], 0)
    measured = [each for each in trials if each["ObjectiveStatus"] == "Succeeded"]
    assert told["ObjectiveStatusCounters"] == {
        "Succeeded": len(measured),
        "Pending": 0,
        "Failed": count - len(measured),
    }
    best = min(measured, key=lambda each: each["FinalHyperParameterTuningJobObjectiveMetric"]["Value"])
    value = told["BestTrainingJob"]["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
    assert value == best["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
