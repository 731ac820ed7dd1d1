"""Training jobs of yards whose records are in PostgreSQL: one yard alone, and two on one database."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.postgres import PostgresMissing, PostgresServer, postgres_server
from tests.system.trainees import ENDED, Trainee
from tests.system.watching import folders_of, processes_of
from tests.system.yards import trainee_of
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard, start_yard

pytestmark = pytest.mark.postgres

COUNT = """
import os, time
for number in range(10):
    os.write(1, b"line %d\\n" % number)
    time.sleep(0.1)
open("/opt/ml/model/weights", "w").write("w")
"""
WAIT = "import time\nprint('ready', flush=True)\ntime.sleep(600)"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    try:
        with postgres_server() as running:
            yield running
    except PostgresMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def settings(server: PostgresServer) -> Iterator[dict[str, str]]:
    with server.database() as url:
        yield {"TRAINYARD_SERVER_RECORDS": url, "TRAINYARD_SERVER_SLOTS": "2"}


def test_jobs_run_are_stopped_and_survive_a_kill(settings: dict[str, str], tmp_path: Path) -> None:
    yard = start_yard(tmp_path / "yard", environment=settings)
    try:
        trainee = trainee_of(yard).prepare()
        for name in ("first", "second"):
            trainee.start(name, COUNT)
        for name in ("first", "second"):
            assert_completed(yard, trainee, name)
        trainee.start("stopped", WAIT)
        trainee.await_line("stopped", "ready")
        trainee.sagemaker.stop_training_job(TrainingJobName="stopped")
        assert trainee.reach("stopped", *ENDED)["TrainingJobStatus"] == "Stopped"
        trainee.start("killed", COUNT)
        trainee.await_line("killed", "line 2")
    finally:
        yard.kill()
    with running_yard(tmp_path / "yard", environment=settings) as again:
        assert_completed(again, trainee_of(again), "killed")
        statuses = trainee_of(again).sagemaker.list_training_jobs()["TrainingJobSummaries"]
        assert len(statuses) == 4


def test_two_yards_on_one_database_run_each_job_once(settings: dict[str, str], tmp_path: Path) -> None:
    with (
        running_yard(tmp_path / "one", environment=settings) as one,
        running_yard(tmp_path / "two", environment=settings) as two,
    ):
        yards = {"one": one, "two": two}
        trainees = {name: Trainee(trainee_of(yard).user, bucket=name).prepare() for name, yard in yards.items()}
        names = [(f"job-{number}", ("one", "two")[number % 2]) for number in range(8)]
        for name, where in names:
            trainees[where].start(name, COUNT)
        for name, where in names:
            assert_completed(yards[where], trainees[where], name)
        attempts = [len(folders_of(one, name)) + len(folders_of(two, name)) for name, _ in names]
        assert attempts == [1] * len(names)


@pytest.mark.slow
def test_a_job_waits_for_its_own_yard_to_come_back(settings: dict[str, str], tmp_path: Path) -> None:
    """Only the yard that started it can reach its instances."""
    one = start_yard(tmp_path / "one", environment=settings)
    with running_yard(tmp_path / "two", environment=settings) as two:
        try:
            trainee = trainee_of(one).prepare()
            trainee.start("orphan", COUNT)
            trainee.await_line("orphan", "line 1")
        finally:
            one.kill()
        other = trainee_of(two)
        finished = timedelta(seconds=4)
        assert eventually(lambda: other.describe("orphan")["SecondaryStatus"] == "Training", within=finished)
        with running_yard(tmp_path / "one", environment=settings) as again:
            assert_completed(again, trainee_of(again), "orphan")
        assert other.describe("orphan")["TrainingJobStatus"] == "Completed"


def assert_completed(yard: RunningYard, trainee: Trainee, name: str) -> None:
    told = trainee.reach(name, *ENDED)
    assert told["TrainingJobStatus"] == "Completed", told
    assert trainee.printed(name) == [f"line {number}" for number in range(10)]
    assert trainee.keys(f"out/{name}/") == [f"out/{name}/output/model.tar.gz"]
    assert processes_of(yard, name) == []
