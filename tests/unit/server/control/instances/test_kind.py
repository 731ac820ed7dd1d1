import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, with_changes
from tests.unit.server.services.sagemaker.processing import requests
from trainyard.engines.contract import InstanceRef
from trainyard.foundation.clock import utc_now
from trainyard.foundation.jobs.status import Status
from trainyard.link.contract import FrameKind, InstanceSpec
from trainyard.link.doorbell import Doorbell, ring
from trainyard.server.control.controller import Controller, WakeSignal
from trainyard.server.control.instances import kind, work
from trainyard.server.control.instances.kind import InstanceJobKind
from trainyard.server.control.scheduling.contract import Allocations, Placement
from trainyard.server.control.scheduling.scheduler import Scheduler
from trainyard.server.jobs.training import job_of
from trainyard.server.records.contract import Query
from trainyard.testing.engines import SimulatedEngine, complete

Scene = Callable[[WakeSignal], Awaitable[None]]


def play(bench: Bench, scene: Scene, *, doorbell: Doorbell | None = None) -> None:
    """Run the loop while a scene goes on, and close it after."""

    async def run() -> None:
        signal = WakeSignal()
        controller = Controller(InstanceJobKind([with_changes(bench.work, clock=utc_now)], doorbell), signal)
        running = asyncio.create_task(controller.run())
        try:
            await asyncio.wait_for(scene(signal), 60)
        finally:
            controller.close()
            await running

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def statuses(bench: Bench) -> list[Status]:
    return [job_of(each).status for each in bench.work.records.find(Query("training-job")).resources]


def test_all_jobs_come_to_their_end_however_many_wait(bench: Bench) -> None:
    bench.engine.role = complete

    async def scene(signal: WakeSignal) -> None:
        for number in range(7):
            signal.send((await asyncio.to_thread(bench.create, f"job-{number}")).id)
        await until(lambda: statuses(bench) == [Status.COMPLETED] * 7)

    play(bench, scene)


def test_jobs_of_all_kinds_share_the_slots_and_one_controller(bench: Bench) -> None:
    """Each ended job makes room for one of the other kind, which starts at once."""
    work = with_changes(bench.work, clock=utc_now)
    processing = replace(bench.processing, clock=utc_now, scheduler=work.scheduler)
    bench.engine.role = complete

    def ended() -> int:
        found = [bench.work.records.find(Query(each)).resources for each in ("training-job", "processing-job")]
        return sum(resource.status == "Completed" for resources in found for resource in resources)

    async def run() -> None:
        signal = WakeSignal()
        controller = Controller(InstanceJobKind([work, processing]), signal)
        running = asyncio.create_task(controller.run())
        for number in range(3):
            signal.send((await asyncio.to_thread(bench.create, f"train-{number}")).id)
            await asyncio.to_thread(requests.create, bench.anna.at(bench.watch()), f"clean-{number}")
            signal.send("")
        await asyncio.wait_for(until(lambda: ended() == 6), 60)
        controller.close()
        await running
        assert work.scheduler.table.snapshot() == {}

    asyncio.run(run())


def test_no_more_run_at_once_than_there_are_slots(bench: Bench) -> None:
    for number in range(4):
        bench.create(f"job-{number}")
        bench.watch.forward(0.001)

    def alive() -> list[int]:
        jobs = [job_of(each) for each in bench.work.records.find(Query("training-job")).resources]
        return [number for number, job in enumerate(jobs) if job.attempt is not None and job.secondary == "Training"]

    async def scene(signal: WakeSignal) -> None:
        await until(lambda: alive() == [0, 1])
        bench.agent("job-0").end()
        await until(lambda: alive() == [1, 2])
        bench.agent("job-2").end()
        await until(lambda: alive() == [1, 3])

    play(bench, scene)


def test_a_stop_takes_effect_while_the_job_runs(bench: Bench) -> None:
    job = bench.create()

    async def scene(signal: WakeSignal) -> None:
        await until(lambda: bench.job().secondary == "Training")
        bench.stop()
        signal.send(job.id)
        await until(lambda: bench.job().status is Status.STOPPED)

    play(bench, scene)


def test_spot_jobs_give_way_and_come_back_by_themselves(bench: Bench) -> None:
    times = {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 10**9}
    spot: dict[str, Any] = {"EnableManagedSpotTraining": True, "StoppingCondition": times}
    for number in range(2):
        bench.create(f"spot-{number}", **spot)
        bench.watch.forward(0.001)

    def trains(name: str) -> bool:
        return bench.job(name).secondary == "Training" and bench.job(name).attempt is not None

    async def scene(signal: WakeSignal) -> None:
        await until(lambda: trains("spot-0") and trains("spot-1"))
        bench.create("urgent")
        signal.send("urgent")
        await until(lambda: trains("urgent"))
        assert sorted(bench.job(f"spot-{number}").secondary for number in range(2)) == ["Interrupted", "Training"]
        bench.agent("urgent").end()
        await until(lambda: trains("spot-0") and trains("spot-1"))
        for number in range(2):
            bench.agent(f"spot-{number}", attempt=len(bench.job(f"spot-{number}").attempts)).end()
        await until(lambda: statuses(bench) == [Status.COMPLETED] * 3)

    play(bench, scene)
    assert sorted(len(bench.job(f"spot-{number}").attempts) for number in range(2)) == [1, 2]


def test_a_closed_loop_holds_nothing_and_its_successor_continues_at_once(bench: Bench) -> None:
    bench.create()

    async def begin(signal: WakeSignal) -> None:
        await until(lambda: bench.job().secondary == "Training")

    async def go_on(signal: WakeSignal) -> None:
        bench.agent().end()
        await until(lambda: bench.job().status is Status.COMPLETED)

    play(bench, begin)
    assert bench.agent().is_alive
    play(bench, go_on)
    assert len(bench.job().attempts) == 1


def test_a_job_of_another_yard_on_the_same_database_is_left_alone(bench: Bench) -> None:
    bench.work = with_changes(bench.work, site="elsewhere")
    bench.start("theirs")
    bench.agent("theirs").die()  # as seen from here
    bench.watch.forward(3600)
    bench.work = with_changes(bench.work, site="here")
    bench.create("ours")

    async def scene(signal: WakeSignal) -> None:
        await until(lambda: bench.job("ours").secondary == "Training")

    play(bench, scene)
    assert bench.job("theirs").secondary == "Training"
    assert bench.agent("ours").is_alive


def test_news_of_running_jobs_start_no_scheduling_pass(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "POLL_INTERVAL", timedelta(hours=1))
    passes: list[Allocations] = []
    next_placements = Scheduler.next_placements

    def count(scheduler: Scheduler, running: Allocations) -> Sequence[Placement]:
        passes.append(running)
        return next_placements(scheduler, running)

    monkeypatch.setattr(Scheduler, "next_placements", count)
    job = bench.create()

    async def scene(signal: WakeSignal) -> None:
        await until(lambda: bench.job().secondary == "Training" and passes[-1:] != [{}])
        known = len(passes)
        bench.agent().report(FrameKind.METRIC, name="loss", value=0.5, at_us=1, count=1)
        signal.send(job.id)
        await until(lambda: "loss" in bench.job().metrics)
        assert len(passes) == known
        signal.send((await asyncio.to_thread(bench.create, "other")).id)
        await until(lambda: bench.job("other").secondary == "Training")

    play(bench, scene)


def test_news_of_a_job_is_read_when_its_agent_rings(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "SHORTEST_PAUSE_S", 3600.0)
    monkeypatch.setattr(kind, "LONGEST_PAUSE_S", 3600.0)
    job = bench.create()

    async def scene(signal: WakeSignal) -> None:
        await until(lambda: any(attempt.is_started for attempt in bench.job().attempts))
        ring(tmp_path / "doorbell", job.id)
        await until(lambda: bench.job().secondary == "Training")
        bench.agent().end()
        ring(tmp_path / "doorbell", "nobody knows this one")
        ring(tmp_path / "doorbell", job.id)
        await until(lambda: bench.job().status is Status.COMPLETED)

    with closing(Doorbell(tmp_path / "doorbell")) as doorbell:
        play(bench, scene, doorbell=doorbell)


def test_a_job_is_held_for_as_long_as_its_start_takes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = timedelta(seconds=0.6)
    for module in (kind, work):
        monkeypatch.setattr(module, "LEASE", lease)
    begun, other = threading.Event(), with_changes(bench.work, clock=utc_now, worker="another")

    def start_slowly(specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        begun.set()
        time.sleep(3 * lease.total_seconds())
        return SimulatedEngine.start(bench.engine, specs)

    monkeypatch.setattr(bench.engine, "start", start_slowly)

    async def scene(signal: WakeSignal) -> None:
        signal.send((await asyncio.to_thread(bench.create)).id)
        await asyncio.to_thread(begun.wait)
        found = []
        while not bench.job().attempts[0].is_started:
            found.append(await asyncio.to_thread(other.claim))
        assert len(found) > 1
        assert found == [None] * len(found)

    play(bench, scene)
