"""Tuning jobs under faults: kill -9 of the yard and of its advisor, exhausted quotas, and stops at any moment."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.system.test_tuning import check_accounts
from tests.system.tuners import Tuner, objectives_of
from tests.system.yards import trainee_of
from trainyard.link.agent_process import find_agent_process
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard, start_yard
from trainyard.wire.client import Client

KILLS = 20
TRIALS = 150
SLOTS = {"TRAINYARD_SERVER_SLOTS": "3"}
BRIEF = 'x = float(tuned["x"])\nreport(1)\ntime.sleep(0.2)\nreport((x - 0.3) ** 2)\n'
LONG = "report(0.5)\ntime.sleep(600)\n"
RANGES = {"x": (0.0, 1.0)}
PATIENCE = timedelta(minutes=5)


@pytest.mark.slow
def test_no_trial_is_lost_or_duplicated_by_twenty_kills_of_the_yard(tmp_path: Path) -> None:
    dice = random.Random(11)
    yard = start_yard(tmp_path / "yard", environment=SLOTS)
    try:
        tuner = Tuner(trainee_of(yard))
        tuner.trainee.prepare()
        tuner.start("killed", BRIEF, ranges=RANGES, trials=TRIALS, parallel=3)
        for _ in range(KILLS):
            await_another(tuner, counted(tuner))
            time.sleep(dice.uniform(0, 0.6))
            yard.kill()
            yard = start_yard(tmp_path / "yard", environment=SLOTS)
            tuner = Tuner(trainee_of(yard))
        told = tuner.finish("killed", within_s=600)
        assert told["HyperParameterTuningJobStatus"] == "Completed"
        check_accounts(tuner, "killed", told, count=TRIALS)
        assert told["TrainingJobStatusCounters"]["Completed"] == TRIALS
        nothing_runs(yard)
    finally:
        yard.stop()


def await_another(tuner: Tuner, known: int) -> None:
    """Wait until another trial has started. Raise an AssertionError if all had started before the last kill."""
    eventually(lambda: counted(tuner) > known or is_over(tuner), within=PATIENCE)
    assert not is_over(tuner), "the tuning job ended before the last kill"


def counted(tuner: Tuner, name: str = "killed") -> int:
    return len(tuner.trials(name))


def is_over(tuner: Tuner, name: str = "killed") -> bool:
    return bool(tuner.describe(name)["HyperParameterTuningJobStatus"] != "InProgress")


def nothing_runs(yard: RunningYard) -> None:
    agents = [find_agent_process(folder) for folder in yard.home.jobs.glob("*/*/algo-1")]
    assert not [agent for agent in agents if agent is not None and agent.is_alive]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("faults") / "yard", environment=SLOTS) as opened:
        trainee_of(opened).prepare()
        yield opened


@pytest.fixture
def tuner(yard: RunningYard) -> Tuner:
    return Tuner(trainee_of(yard))


@pytest.mark.slow
def test_no_trial_is_lost_by_kills_of_the_advisor(tuner: Tuner, yard: RunningYard) -> None:
    tuner.start("advised", BRIEF, ranges=RANGES, trials=20, parallel=2)
    kills = 0
    while not is_over(tuner, "advised"):
        for pid in advisors(yard):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills += 1
        time.sleep(0.3)
    assert kills >= 3
    check_accounts(tuner, "advised", tuner.finish("advised"), count=20)


def advisors(yard: RunningYard) -> list[int]:
    """Return the process ids in which this yard's strategies run."""
    found = []
    for task in Path(f"/proc/{yard.process.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"control.tuning.strategy_process" in words_of(pid)]


def words_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@pytest.mark.slow
def test_a_full_quota_makes_trials_wait_and_ends_nothing(tuner: Tuner, yard: RunningYard) -> None:
    user = tuner.trainee.user
    with contextlib.closing(Client(yard.http, user.access_key_id, user.secret_access_key, user.region)) as client:
        quota = {"UserName": yard.credentials.user, "InstanceType": "*", "Kind": "on-demand"}
        client.call("trainyard", "PutQuota", **quota, Limit=1)
        tuner.start("narrow", BRIEF, ranges=RANGES, trials=6, parallel=3)
        told = tuner.finish("narrow")
        client.call("trainyard", "DeleteQuota", **quota)
    check_accounts(tuner, "narrow", told, count=6)


@pytest.mark.slow
def test_the_result_of_a_deleted_trial_is_kept(tuner: Tuner) -> None:
    tuner.run("thinned", BRIEF, ranges=RANGES, trials=3, parallel=3)
    known = tuner.trials("thinned")
    best = tuner.describe("thinned")["BestTrainingJob"]["TrainingJobName"]
    tuner.sagemaker.delete_training_job(TrainingJobName=best)
    assert tuner.trials("thinned") == known
    assert tuner.describe("thinned")["BestTrainingJob"]["TrainingJobName"] == best


@pytest.mark.slow
def test_a_stop_at_any_moment_of_the_start_leaves_nothing_running(tuner: Tuner, yard: RunningYard) -> None:
    dice = random.Random(5)
    for number in range(12):
        name = f"hasty-{number}"
        tuner.start(name, LONG, ranges=RANGES, trials=50, parallel=3)
        time.sleep(dice.uniform(0, 1.5))
        tuner.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
        told = tuner.finish(name)
        assert told["HyperParameterTuningJobStatus"] == "Stopped"
        trials = tuner.trials(name)
        assert {each["TrainingJobStatus"] for each in trials} <= {"Stopped"}
        assert jobs_of(tuner, name) == [each["TrainingJobName"] for each in trials]
        nothing_runs(yard)


def jobs_of(tuner: Tuner, name: str) -> list[str]:
    pages = tuner.sagemaker.get_paginator("list_training_jobs").paginate(NameContains=f"{name}-")
    return sorted(each["TrainingJobName"] for page in pages for each in page["TrainingJobSummaries"])


@pytest.mark.slow
def test_a_tuning_job_at_its_time_limit_stops_its_trials_and_keeps_their_results(tuner: Tuner) -> None:
    # 120 seconds is the minimum that AWS accepts.
    limits: dict[str, Any] = {"MaxParallelTrainingJobs": 2, "MaxRuntimeInSeconds": 120}
    tuner.start("timed", LONG, ranges=RANGES, ResourceLimits=limits)
    told = tuner.finish("timed", within_s=300)
    assert told["HyperParameterTuningJobStatus"] == "Completed"
    assert 120 <= told["ConsumedResources"]["RuntimeInSeconds"] < 180
    trials = tuner.trials("timed")
    assert {each["TrainingJobStatus"] for each in trials} == {"Stopped"}
    assert objectives_of(trials) == [0.5, 0.5]
