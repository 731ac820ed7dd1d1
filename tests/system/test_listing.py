"""Lists of training jobs on a real yard, read page by page while others are created and deleted."""

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.system.trainees import Trainee
from tests.system.yards import trainee_of
from trainyard.link.agent_process import find_agent_process
from trainyard.testing.yard import running_yard

JOBS = 60
SORTS = [(by, order) for by in ("Name", "CreationTime", "Status") for order in ("Ascending", "Descending")]


@pytest.fixture(scope="module")
def trainee(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainee]:
    """One with jobs that wait, because another has the only slot."""
    home = tmp_path_factory.mktemp("listing") / "yard"
    with running_yard(home, environment={"TRAINYARD_SERVER_SLOTS": "1"}) as yard:
        made = trainee_of(yard).prepare()
        made.start("blocker", "import time\ntime.sleep(3600)")
        made.reach("blocker", "Training")
        request = made.request("template", "print()")
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: create(made, request, f"first-{number:03}"), range(JOBS)))
        yield made
    for folder in home.glob("jobs/*/*/algo-1"):  # which would go on without the yard
        agent = find_agent_process(folder)
        if agent is not None and agent.is_alive:
            os.kill(agent.pid, signal.SIGKILL)


def create(trainee: Trainee, request: dict[str, Any], name: str) -> None:
    trainee.sagemaker.create_training_job(**request | {"TrainingJobName": name})


@pytest.mark.parametrize(("by", "order"), SORTS, ids=["-".join(sort) for sort in SORTS])
def test_every_job_that_was_there_is_listed_once_while_others_come(trainee: Trainee, by: str, order: str) -> None:
    with newcomers(trainee, f"{by}-{order}".lower()):
        pages = trainee.sagemaker.get_paginator("list_training_jobs").paginate(
            SortBy=by, SortOrder=order, PaginationConfig={"PageSize": 7}
        )
        found = [each["TrainingJobName"] for page in pages for each in page["TrainingJobSummaries"]]
    assert len(found) == len(set(found))
    assert {f"first-{number:03}" for number in range(JOBS)} <= set(found)


@contextmanager
def newcomers(trainee: Trainee, prefix: str) -> Iterator[None]:
    """Jobs that are created all the while, with names before, between and behind those that are there."""
    request = trainee.request("template", "print()")
    is_over, made = threading.Event(), []

    def add() -> None:
        for number, where in enumerate(itertools.cycle(("a", "first-030", "z"))):
            if is_over.is_set():
                return
            create(trainee, request, f"{where}-{prefix}-{number}")
            made.append(number)

    adding = threading.Thread(target=add)
    adding.start()
    try:
        yield
    finally:
        is_over.set()
        adding.join()
    assert made
