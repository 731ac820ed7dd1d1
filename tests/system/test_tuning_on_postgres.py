"""Tuning jobs of two yards whose records are in one PostgreSQL database."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.postgres import PostgresMissing, PostgresServer, postgres_server
from tests.system.trainees import Trainee
from tests.system.tuners import Tuner, numbers_of
from tests.system.watching import folders_of
from tests.system.yards import trainee_of
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard, start_yard

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

TRIALS = 12
PARABOLA = 'x = float(tuned["x"])\nreport((x - 0.3) ** 2)\ntime.sleep(0.2)\n'


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


def test_each_yard_runs_its_own_study_and_a_killed_one_continues_its_own(
    settings: dict[str, str], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        killed = start_yard(tmp_path / "one", environment=settings)
        stack.callback(killed.kill)
        other = stack.enter_context(running_yard(tmp_path / "two", environment=settings))
        tuners = {"one": _tuner(killed, "one"), "two": _tuner(other, "two")}
        for name, tuner in tuners.items():
            tuner.start(name, PARABOLA, ranges={"x": [0.0, 1.0]}, trials=TRIALS)
        eventually(lambda: len(tuners["one"].trials("one")) >= TRIALS // 3)
        killed.kill()
        assert tuners["two"].finish("two")["TrainingJobStatusCounters"]["Completed"] == TRIALS
        again = stack.enter_context(running_yard(tmp_path / "one", environment=settings))
        resumed = Tuner(trainee_of(again))
        assert resumed.finish("one")["TrainingJobStatusCounters"]["Completed"] == TRIALS
        for name, here, elsewhere in (("one", again, other), ("two", other, again)):
            trials = resumed.trials(name)
            assert numbers_of(trials) == list(range(1, TRIALS + 1))
            jobs = [trial["TrainingJobName"] for trial in trials]
            assert [len(folders_of(here, job)) for job in jobs] == [1] * TRIALS
            assert [len(folders_of(elsewhere, job)) for job in jobs] == [0] * TRIALS


def _tuner(yard: RunningYard, bucket: str) -> Tuner:
    return Tuner(Trainee(trainee_of(yard).user, bucket=bucket).prepare())
