"""Runs a yard through a day of a simulated cluster, with its real records, control and services."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from benchmarks.scale.workload import ACCOUNTS, Outage, Planned
from tests.simulated_compute import simulated_compute
from tests.unit.server.services.accounts import As, open_accounts
from tests.unit.server.services.sagemaker import requests
from trainyard.engines.contract import Node
from trainyard.engines.engine_set import EngineSet
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.link.contract import InstanceSpec, ObjectsSpec
from trainyard.link.doorbell import Doorbell, ring
from trainyard.server.control.controller import Controller, WakeSignal
from trainyard.server.control.instances import kind as kind_module
from trainyard.server.control.instances import work as training_module
from trainyard.server.control.instances.demand import SchedulableInstanceJobs
from trainyard.server.control.instances.kind import InstanceJobKind
from trainyard.server.control.instances.views import JobViews
from trainyard.server.control.instances.yard_context import YardContext
from trainyard.server.control.scheduling.scheduler import Scheduler
from trainyard.server.control.training import limits as waiting_module
from trainyard.server.control.training.limits import WaitingLimitKind
from trainyard.server.control.training.specs import SpecMaker
from trainyard.server.control.training.work import TrainingWork
from trainyard.server.jobs import training
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Query
from trainyard.server.services.contract import Call, Yard
from trainyard.server.services.registry import service
from trainyard.testing.engines.simulated_cluster import SimulatedCluster, SimulatedProgram
from trainyard.testing.simulated_time import SimulatedTime
from trainyard.wire.http import Headers, HttpRequest

# Between two checks whether all jobs have ended.
_LOOK_S = 300.0
_TELL_S = 3 * 3600.0
# Between two calls of a user.
_ASK_S = 600.0
_LATEST_S = 4 * 86_400.0

# Every change rings the doorbell here, so polling would find nothing new. No yard is killed, so there are no leases of
# dead yards to take over.
_RARE = timedelta(minutes=30)


@dataclass
class CallTimes:
    """The durations of calls, in milliseconds of processor time."""

    took: dict[str, list[float]] = field(default_factory=dict)
    # For each job that was placed, the time of its placement and of all scheduling passes before it.
    placing: list[float] = field(default_factory=list)
    _scheduling: float = 0.0

    def add(self, name: str, took: float, *, has_placed: bool) -> None:
        self.took.setdefault(name, []).append(took)
        if name not in ("claim", "next_placements", "place"):
            return
        self._scheduling += took
        if name == "place" and has_placed:
            self.placing.append(self._scheduling)
            self._scheduling = 0.0


@dataclass
class Timed:
    """Wraps the work on jobs or its scheduler and measures each call."""

    target: TrainingWork | Scheduler
    times: CallTimes

    def __getattr__(self, name: str) -> Any:
        called = getattr(self.target, name)
        if isinstance(called, Scheduler):
            return Timed(called, self.times)
        if not callable(called):
            return called

        def timed(*arguments: Any, **options: Any) -> Any:
            started = time.process_time()
            result = called(*arguments, **options)
            took = (time.process_time() - started) * 1000
            self.times.add(name, took, has_placed=result is not None)
            return result

        return timed


@dataclass
class Day:
    """The results. Times of calls are in milliseconds of processor time; `real_s` is wall-clock time."""

    jobs: Mapping[str, TrainingJob]
    began_at: datetime
    real_s: float
    took: Mapping[str, Sequence[float]]
    placing: Sequence[float]
    asked: Mapping[str, Sequence[float]]
    created: Sequence[float]


def live(
    folder: Path,
    planned: Sequence[Planned],
    *,
    cluster: Sequence[Node],
    outages: Sequence[Outage],
    tell: Callable[[str], None] = lambda _: None,
) -> Day:
    """Create the jobs, let the nodes fail, and wait until every job has ended. `tell` receives the progress."""
    with _rare_looks(), _yard(folder, planned, cluster=cluster) as (yard, engine, users, clock):
        wake_signal = WakeSignal()
        yard = replace(yard, compute=replace(yard.compute, wake=wake_signal.send))
        world = _World(
            yard, engine, {name: replace(user, yard=yard) for name, user in users.items()}, clock, wake_signal, tell
        )
        begun, began_at = time.monotonic(), clock()
        clock.run(world.live(planned, outages))
        found = {job.name: job for job in world.jobs()}
        real_s = time.monotonic() - begun
        return Day(found, began_at, real_s, world.times.took, world.times.placing, world.asked, world.created)


@dataclass
class _World:
    yard: Yard
    engine: SimulatedCluster
    users: Mapping[str, As]
    clock: SimulatedTime
    wake_signal: WakeSignal
    tell: Callable[[str], None]
    asked: dict[str, list[float]] = field(default_factory=dict)
    created: list[float] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    rung: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.times = CallTimes()
        self.work = Timed(_training_work(self.yard, self.engine, self.clock), self.times)
        self.engine.tell = self._hear
        self.doorbell = self.yard.compute.jobs.parent / "doorbell"

    async def live(self, planned: Sequence[Planned], outages: Sequence[Outage]) -> None:
        doorbell = Doorbell(self.doorbell)
        training = Controller(InstanceJobKind([cast(TrainingWork, self.work)], doorbell), self.wake_signal)
        limits = Controller(WaitingLimitKind(self.yard.records, self.clock, worker="bench"))
        running = [asyncio.create_task(training.run()), asyncio.create_task(limits.run())]
        endless = [
            asyncio.create_task(self._play()),
            asyncio.create_task(self._fail(outages)),
            asyncio.create_task(self._ask(planned)),
            asyncio.create_task(self._tell()),
        ]
        await self._send(planned)
        await self._all_done()
        for task in endless:
            task.cancel()
        training.close()
        limits.close()
        await asyncio.gather(*running)
        doorbell.close()

    def jobs(self) -> Iterator[TrainingJob]:
        after: str | None = ""
        while after is not None:
            page = self.yard.records.find(Query(KIND, limit=1000, after=after))
            yield from map(job_of, page.resources)
            after = page.next_after

    async def _play(self) -> None:
        """Let the simulated agents act when their time comes."""
        while True:
            at = self.engine.next_at
            pause_s = None if at is None else max(0.0, (at - self.clock()).total_seconds())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), pause_s)
            self.news.clear()
            self.rung.clear()
            self.engine.play()

    def _hear(self, job_id: str) -> None:
        """Ring as an agent does, once for all instances of a job that have news at the same time."""
        self.news.set()
        if job_id not in self.rung:
            self.rung.add(job_id)
            ring(self.doorbell, job_id)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_TELL_S)
            running, done = len(self.engine.works), self.yard.records.count(Query(KIND, status="Completed"))
            hour = self.clock.passed_s / 3600
            self.tell(f"hour {hour:.0f}: {len(self.created):,} sent, {done:,} completed, {running:,} instances run")

    async def _send(self, planned: Sequence[Planned]) -> None:
        for each in planned:
            await asyncio.sleep(max(0.0, each.at_s - self.clock.passed_s))
            user = self.users[each.account].at(self.clock())
            begun = time.process_time()
            requests.create(user, each.name, **_request(each))
            self.created.append((time.process_time() - begun) * 1000)

    async def _fail(self, outages: Sequence[Outage]) -> None:
        known = {node.name: node for node in self.engine.capacity().nodes}
        moments = [(each.at_s, each.node, False) for each in outages]
        moments += [(each.until_s, each.node, True) for each in outages]
        for at_s, name, is_back in sorted(moments):
            await asyncio.sleep(max(0.0, at_s - self.clock.passed_s))
            if is_back:
                self.engine.join(known[name])
            else:
                self.engine.cut_off(name)
            self.wake_signal.send("")
        await asyncio.Event().wait()

    async def _ask(self, planned: Sequence[Planned]) -> None:
        """Make the calls of a user who watches meanwhile."""
        number = 0
        while True:
            await asyncio.sleep(_ASK_S)
            each = planned[min(len(self.created), len(planned)) - 1 - number % max(1, len(self.created))]
            user = self.users[each.account].at(self.clock())
            if self.created:
                self._time(user, "ListTrainingJobs", MaxResults=100)
                self._time(user, "DescribeTrainingJob", TrainingJobName=each.name)
            number += 7

    def _time(self, user: As, operation: str, **asked: Any) -> None:
        call = Call(self.yard, user.caller, "eu-west-3", "REQUEST", user.now, HttpRequest("POST", "/", "", Headers()))
        begun = time.process_time()
        service("sagemaker").operations[operation](call, asked)
        self.asked.setdefault(operation, []).append((time.process_time() - begun) * 1000)

    async def _all_done(self) -> None:
        while self.clock.passed_s < _LATEST_S:
            await asyncio.sleep(_LOOK_S)
            counts = [self.yard.records.count(Query(KIND, status=status)) for status in ("InProgress", "Stopping")]
            if not any(counts):
                return
        raise AssertionError("some jobs have not ended three days after the last was created")


@contextlib.contextmanager
def _rare_looks() -> Iterator[None]:
    changed = [
        (kind_module, "POLL_INTERVAL", _RARE),
        (kind_module, "SHORTEST_PAUSE_S", _RARE.total_seconds()),
        (kind_module, "LONGEST_PAUSE_S", _RARE.total_seconds()),
        (waiting_module, "POLL_INTERVAL", timedelta(minutes=5)),
        (training_module, "LEASE", timedelta(days=30)),
        # Otherwise, a retried job would wait for the next infrequent poll.
        (training_module, "START_RETRY_PAUSE", timedelta()),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changed]
    for module, name, value in changed:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


@contextlib.contextmanager
def _yard(
    folder: Path, planned: Sequence[Planned], *, cluster: Sequence[Node]
) -> Iterator[tuple[Yard, SimulatedCluster, Mapping[str, As], SimulatedTime]]:
    plots = {each.name: SimulatedProgram(timedelta(seconds=each.length_s), each.code) for each in planned}

    def plot(spec: InstanceSpec) -> SimulatedProgram:
        return plots[spec.job_name]

    with open_accounts(folder) as accounts:
        clock = SimulatedTime(accounts.admin.now)
        engine = SimulatedCluster(folder / "jobs", nodes=cluster, plot=plot, clock=clock)
        yard = replace(accounts.yard, compute=simulated_compute(folder, engine=engine))
        users = {"anna": accounts.anna, "ben": accounts.ben}
        for name in ACCOUNTS:
            if name not in users:
                key = yard.identities.add_user(name, now=clock()).key
                assert key is not None, "the new user has no key"
                users[name] = As(yard, yard.identities.resolve(key.id, None, now=clock()).caller, key)
        prepared = {name: requests.prepare(replace(user, yard=yard)) for name, user in users.items()}
        yield yard, engine, prepared, clock


def _training_work(yard: Yard, engine: SimulatedCluster, clock: SimulatedTime) -> TrainingWork:
    jobs, engines = yard.compute.jobs, EngineSet([engine])
    schedulable = SchedulableInstanceJobs(training, yard.records, yard.compute.catalog, clock, site="")
    context = YardContext(
        "http://127.0.0.1:4780",
        ObjectsSpec(str(jobs.parent / "objects")),
        (jobs.parent,),
        environments=jobs.parent / "environments",
        warm=None,
        warm_idle=timedelta(minutes=10),
    )
    return TrainingWork(
        records=yard.records,
        identities=yard.identities,
        engines=engines,
        catalog=yard.compute.catalog,
        scheduler=Scheduler(yard.records, engines, {KIND: schedulable}, clock),
        specs=SpecMaker(yard.objects, yard.compute.images, yard.compute.file_systems, context),
        views=JobViews(
            yard.records,
            jobs=jobs,
            logs=yard.logs,
            metrics=yard.metrics,
            log_group=training.LOG_GROUP,
            dimension=training.METRIC_DIMENSION,
        ),
        clock=clock,
        worker="bench",
        site="",
        runs_as_root=False,
    )


def _request(each: Planned) -> dict[str, Any]:
    limits = {"MaxRuntimeInSeconds": 5 * 86_400}
    return {
        "ResourceConfig": {"InstanceType": each.instance_type, "InstanceCount": each.count, "VolumeSizeInGB": 30},
        "StoppingCondition": limits | ({"MaxWaitTimeInSeconds": 6 * 86_400} if each.is_spot else {}),
        "EnableManagedSpotTraining": each.is_spot,
        "RetryStrategy": {"MaximumRetryAttempts": 30},
        **({"CheckpointConfig": {"S3Uri": f"s3://data/ck/{each.name}"}} if each.is_spot else {}),
    }
