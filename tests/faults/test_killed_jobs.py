"""kill -9 of the yard, of agents and of both at random moments while jobs wait, start, run, stop and end."""

import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.system.fuzz.world import User
from tests.system.trainees import ENDED, Trainee
from trainyard.link.agent_process import find_agent_process
from trainyard.link.specs import read_spec
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard, start_yard

ROUNDS = 12
JOBS = 6  # per round
TWO_SLOTS = {"TRAINYARD_SERVER_SLOTS": "2"}
SCRIPT = """
import os, time
for number in range(10):
    print("line", number, flush=True)
    time.sleep(0.05)
open(os.environ["SM_MODEL_DIR"] + "/weights", "w").write("w")
"""


@pytest.mark.slow
def test_no_acknowledged_job_is_lost_started_twice_or_left_behind(tmp_path: Path) -> None:
    home, dice = tmp_path / "yard", random.Random(3)
    yard = start_yard(home, environment=TWO_SLOTS)
    trainee_of(yard).prepare()
    acknowledged: set[str] = set()
    # Jobs whose stop was requested, perhaps without an answer.
    stopped: set[str] = set()
    # Jobs whose agent was killed.
    orphaned: set[str] = set()
    for round_number in range(ROUNDS):
        killer = threading.Timer(dice.uniform(0.05, 3.0), yard.kill)
        killer.start()
        names = [f"round-{round_number}-job-{number}" for number in range(JOBS)]
        with ThreadPoolExecutor(JOBS + 1) as threads:
            created = threads.map(lambda name: attempt(trainee_of(yard).start, name, SCRIPT), names)  # noqa: B023
            acknowledged |= {name for name, is_done in zip(names, created, strict=True) if is_done}
        stopped.add(dice.choice(names))
        attempt(trainee_of(yard).sagemaker.stop_training_job, TrainingJobName=max(stopped & set(names)))
        killer.join()
        if round_number % 3 == 2:
            orphaned |= kill_an_agent(yard, dice)
        yard = start_yard(home, environment=TWO_SLOTS)
    yard.stop()
    with running_yard(home, environment=TWO_SLOTS) as last:
        jobs = eventually(lambda: ended_jobs(trainee_of(last)))
        assert acknowledged <= jobs.keys(), "an acknowledged job is lost"
        check_all(last, jobs, {"Stopped": stopped, "Failed": orphaned})


def kill_an_agent(yard: RunningYard, dice: random.Random) -> set[str]:
    """Kill a living agent, if there is one, and return the name of its job."""
    agents = [(folder, find_agent_process(folder)) for folder in yard.home.jobs.glob("*/*/algo-1")]
    living = [(folder, agent) for folder, agent in agents if agent is not None and agent.is_alive]
    if not living:
        return set()
    folder, agent = dice.choice(living)
    os.kill(agent.pid, signal.SIGKILL)
    return {read_spec(folder).job_name}


def check_all(yard: RunningYard, jobs: dict[str, str], excused: dict[str, set[str]]) -> None:
    trainee = trainee_of(yard)
    starts = [read_spec(folder).job_name for folder in yard.home.jobs.glob("*/*/algo-1")]
    for name, status in jobs.items():
        assert status == "Completed" or name in excused[status], trainee.describe(name)
        if status == "Completed":
            assert starts.count(name) == 1
            assert trainee.printed(name) == [f"line {number}" for number in range(10)]
            assert trainee.keys(f"out/{name}/") == [f"out/{name}/output/model.tar.gz"]
    agents = [find_agent_process(folder) for folder in yard.home.jobs.glob("*/*/algo-1")]
    assert not [agent for agent in agents if agent is not None and agent.is_alive]


def ended_jobs(trainee: Trainee) -> dict[str, str]:
    """Wait until all jobs have ended, and return the status of each."""
    pages = trainee.sagemaker.get_paginator("list_training_jobs").paginate()
    jobs = {
        each["TrainingJobName"]: each["TrainingJobStatus"] for page in pages for each in page["TrainingJobSummaries"]
    }
    return jobs if set(jobs.values()) <= set(ENDED) else {}


def attempt(call: Any, *arguments: Any, **named: Any) -> bool:
    """Tell whether a call was acknowledged. The yard may die during the call."""
    try:
        call(*arguments, **named)
    except (BotoCoreError, ClientError):
        return False
    return True


def trainee_of(yard: RunningYard) -> Trainee:
    known = yard.credentials
    user = User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)
    return Trainee(user)
