import asyncio
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, end_overdue
from tests.unit.server.services.sagemaker.requests import create, describe
from trainyard.foundation.clock import utc_now
from trainyard.foundation.jobs.status import Status
from trainyard.server.control.controller import Controller
from trainyard.server.control.training.limits import WaitingLimitKind
from trainyard.server.jobs.training import PENDING_LIMIT
from trainyard.server.records.contract import Query
from trainyard.wire.fault import Fault


def patient(seconds: int = 1800) -> dict[str, Any]:
    return {"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": seconds}}


def reminders(bench: Bench) -> int:
    return len(bench.work.records.find(Query(PENDING_LIMIT)).resources)


def test_a_job_that_waited_too_long_is_stopped_with_nothing_started(bench: Bench) -> None:
    bench.create(**patient())
    bench.watch.forward(1799.9)
    end_overdue(bench)
    assert bench.job().status is Status.IN_PROGRESS
    bench.watch.forward(0.1)
    end_overdue(bench)
    told = describe(bench.anna)
    assert (told["TrainingJobStatus"], told["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert "MaxPendingTimeInSeconds" in told["SecondaryStatusTransitions"][-1]["StatusMessage"]
    assert "TrainingStartTime" not in told
    assert bench.job().attempts == ()
    assert reminders(bench) == 0


def test_a_job_behind_others_gives_up_too_and_those_before_it_stay(bench: Bench) -> None:
    bench.create("first")
    bench.watch.forward(1)
    bench.create("second", **patient())
    bench.watch.forward(1800)
    end_overdue(bench)
    assert (bench.job("first").status, bench.job("second").status) == (Status.IN_PROGRESS, Status.STOPPED)
    assert bench.place().resource.key.name == "first"
    assert bench.next_placement() is None  # the one that gave up is due no more


def test_a_job_that_was_placed_in_time_is_left_alone(bench: Bench) -> None:
    bench.start(**patient())
    bench.watch.forward(1800)
    end_overdue(bench)
    assert bench.job().status is Status.IN_PROGRESS
    assert reminders(bench) == 0


def test_a_job_whose_time_was_over_before_any_yard_looked_is_not_started(bench: Bench) -> None:
    bench.create(**patient())
    bench.watch.forward(1800)
    placement = bench.next_placement()
    assert placement is not None
    assert bench.work.place(placement) is None
    assert (bench.job().status, bench.job().attempts) == (Status.STOPPED, ())
    end_overdue(bench)
    assert (bench.next_placement(), reminders(bench)) == (None, 0)


def test_a_job_that_is_about_to_be_placed_is_either_placed_or_stopped(bench: Bench) -> None:
    bench.create(**patient())
    bench.watch.forward(1800)
    placement = bench.next_placement()
    assert placement is not None
    end_overdue(bench)
    assert bench.work.place(placement) is None
    assert (bench.job().status, bench.job().attempts) == (Status.STOPPED, ())


def test_a_job_of_the_name_of_one_that_is_gone_has_its_own_patience(bench: Bench) -> None:
    bench.create(**patient())
    bench.stop()
    bench.anna("sagemaker", "DeleteTrainingJob", TrainingJobName="mnist")
    bench.watch.forward(1000)
    bench.create(**patient())
    bench.watch.forward(800)
    end_overdue(bench)
    assert bench.job().status is Status.IN_PROGRESS
    bench.watch.forward(1000)
    end_overdue(bench)
    assert bench.job().status is Status.STOPPED


def test_a_create_that_is_refused_leaves_no_reminder(bench: Bench) -> None:
    bench.create(**patient())
    with pytest.raises(Fault, match="already exists"):
        create(bench.anna, **patient())
    assert reminders(bench) == 1


def test_a_look_at_those_that_wait_reads_none_of_them(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        bench.create(f"job-{number}", **patient())
    monkeypatch.setattr(bench.work.records, "load", lambda key: pytest.fail(f"{key} was read"))
    monkeypatch.setattr(bench.work.records, "find", lambda query: pytest.fail(f"{query} was asked"))
    end_overdue(bench)


def test_those_that_wait_are_watched_until_the_yard_closes(bench: Bench) -> None:
    bench.create(**patient())  # long ago, by the clock of this machine

    async def watch() -> None:
        controller = Controller(WaitingLimitKind(bench.work.records, utc_now, worker="bench"))
        running = asyncio.create_task(controller.run())
        while bench.job().status is not Status.STOPPED:
            await asyncio.sleep(0)
        controller.close()
        await running

    asyncio.run(asyncio.wait_for(watch(), 60))
