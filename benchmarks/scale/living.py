"""A yard that lives through a day of a simulated cluster: its real records, its real control, its real services."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from benchmarks.scale.workload import ACCOUNTS, Outage, Planned
from tests.unit.server.services.accounts import As, open_accounts
from tests.unit.server.services.sagemaker import requests
from trainyard.engines.contract import Node
from trainyard.engines.several import Engines
from trainyard.foundation.jobs import TrainingJob
from trainyard.link.contract import InstanceSpec, ObjectsSpec
from trainyard.link.doorbell import Doorbell, ring
from trainyard.server.control import loop as loop_module
from trainyard.server.control import training as training_module
from trainyard.server.control import waiting as waiting_module
from trainyard.server.control.bell import Bell
from trainyard.server.control.loop import TrainingLoop
from trainyard.server.control.showing import JobViews
from trainyard.server.control.specs import SpecMaker, Surroundings
from trainyard.server.control.training import TrainingWork
from trainyard.server.control.waiting import Waiting
from trainyard.server.jobs import KIND, job_of
from trainyard.server.records.contract import Query
from trainyard.server.services.contract import Call, Yard
from trainyard.server.services.registry import service
from trainyard.testing.engines.simulated_cluster import Plot, SimulatedCluster
from trainyard.testing.simulated_time import SimulatedTime
from trainyard.testing.workshop import simulated_workshop
from trainyard.wire.http import Headers, HttpRequest

_LOOK_S = 300.0  # between two looks whether all is done
_TELL_S = 3 * 3600.0
_ASK_S = 600.0  # between two questions of a user
_LATEST_S = 4 * 86_400.0

# News are rung for here, so that looks without a ring would only find again what is known. What a yard that was killed
# holds is of no concern where none is.
_RARE = timedelta(minutes=30)


@dataclass
class Timed:
    """Stands for the work on jobs, and counts how long each of its calls takes, in milliseconds of the processor."""

    work: TrainingWork
    took: dict[str, list[float]] = field(default_factory=dict)
    placing: list[float] = field(default_factory=list)  # for each job that was placed, with all looks before
    _looking: float = 0.0

    def __getattr__(self, name: str) -> Any:
        called = getattr(self.work, name)
        if not callable(called):
            return called

        def timed(*arguments: Any, **options: Any) -> Any:
            begun = time.process_time()
            given = called(*arguments, **options)
            took = (time.process_time() - begun) * 1000
            self.took.setdefault(name, []).append(took)
            self._note(name, took, has_placed=given is not None)
            return given

        return timed

    def _note(self, name: str, took: float, *, has_placed: bool) -> None:
        if name not in ("claim", "offers", "place"):
            return
        self._looking += took
        if name == "place" and has_placed:
            self.placing.append(self._looking)
            self._looking = 0.0


@dataclass
class Day:
    """What came of it. Times of calls are in milliseconds of the processor, `real_s` is by the clock on the wall."""

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
    """Send the jobs, let the nodes fail, and wait until every job has ended. `tell` hears how far it has come."""
    with _rare_looks(), _yard(folder, planned, cluster=cluster) as (yard, engine, users, clock):
        bell = Bell()
        yard = replace(yard, workshop=replace(yard.workshop, wake=bell.ring))
        world = _World(
            yard, engine, {name: replace(user, yard=yard) for name, user in users.items()}, clock, bell, tell
        )
        begun, began_at = time.monotonic(), clock()
        clock.run(world.live(planned, outages))
        found = {job.name: job for job in world.jobs()}
        real_s = time.monotonic() - begun
        return Day(found, began_at, real_s, world.work.took, world.work.placing, world.asked, world.created)


@dataclass
class _World:
    yard: Yard
    engine: SimulatedCluster
    users: Mapping[str, As]
    clock: SimulatedTime
    bell: Bell
    tell: Callable[[str], None]
    asked: dict[str, list[float]] = field(default_factory=dict)
    created: list[float] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    rung: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.work = Timed(_training_work(self.yard, self.engine, self.clock))
        self.engine.tell = self._hear
        self.doorbell = self.yard.workshop.jobs.parent / "doorbell"

    async def live(self, planned: Sequence[Planned], outages: Sequence[Outage]) -> None:
        doorbell = Doorbell(self.doorbell)
        loop = TrainingLoop(cast(TrainingWork, self.work), self.bell, doorbell)
        waiting = Waiting(self.yard.records, self.clock, worker="bench")
        moving = asyncio.create_task(loop.run())
        endless = [
            asyncio.create_task(self._play()),
            asyncio.create_task(waiting.watch()),
            asyncio.create_task(self._fail(outages)),
            asyncio.create_task(self._ask(planned)),
            asyncio.create_task(self._tell()),
        ]
        await self._send(planned)
        await self._all_done()
        for task in endless:
            task.cancel()
        loop.close()
        await moving
        doorbell.close()

    def jobs(self) -> Iterator[TrainingJob]:
        after: str | None = ""
        while after is not None:
            page = self.yard.records.find(Query(KIND, limit=1000, after=after))
            yield from map(job_of, page.resources)
            after = page.next_after

    async def _play(self) -> None:
        """Let the played agents do what is due, when it is due."""
        while True:
            at = self.engine.next_at
            pause_s = None if at is None else max(0.0, (at - self.clock()).total_seconds())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), pause_s)
            self.news.clear()
            self.rung.clear()
            self.engine.play()

    def _hear(self, job_id: str) -> None:
        """Ring as an agent does, and once for all instances of a job that have news at one moment."""
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
            self.bell.ring("")
        await asyncio.Event().wait()

    async def _ask(self, planned: Sequence[Planned]) -> None:
        """What a user looks at meanwhile."""
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
        raise AssertionError("some jobs have not ended three days after the last was sent")


@contextlib.contextmanager
def _rare_looks() -> Iterator[None]:
    changed = [
        (loop_module, "IDLE", _RARE),
        (loop_module, "QUICKEST", _RARE.total_seconds()),
        (loop_module, "SLOWEST", _RARE.total_seconds()),
        (waiting_module, "INTERVAL", timedelta(minutes=5)),
        (training_module, "LEASE", timedelta(days=30)),
        (training_module, "START_PAUSE", timedelta()),  # or a job that is tried again would wait for the next rare look
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
    plots = {each.name: Plot(timedelta(seconds=each.length_s), each.code) for each in planned}

    def plot(spec: InstanceSpec) -> Plot:
        return plots[spec.job_name]

    with open_accounts(folder) as accounts:
        clock = SimulatedTime(accounts.admin.now)
        engine = SimulatedCluster(folder / "jobs", nodes=cluster, plot=plot, clock=clock)
        yard = replace(accounts.yard, workshop=simulated_workshop(folder, engine=engine))
        users = {"anna": accounts.anna, "ben": accounts.ben}
        for name in ACCOUNTS:
            if name not in users:
                key = yard.identities.add_user(name, now=clock()).key
                assert key is not None, "a user gets a key"
                users[name] = As(yard, yard.identities.resolve(key.id, None, now=clock()).caller, key)
        prepared = {name: requests.prepare(replace(user, yard=yard)) for name, user in users.items()}
        yield yard, engine, prepared, clock


def _training_work(yard: Yard, engine: SimulatedCluster, clock: SimulatedTime) -> TrainingWork:
    jobs = yard.workshop.jobs
    surroundings = Surroundings(
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
        engines=Engines([engine]),
        catalog=yard.workshop.catalog,
        specs=SpecMaker(yard.objects, yard.workshop.images, yard.workshop.file_systems, surroundings),
        views=JobViews(yard.records, jobs=jobs, logs=yard.logs, metrics=yard.metrics),
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
