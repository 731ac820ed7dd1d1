"""A yard whose controller a test turns by hand, with agents that it plays itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.simulated_compute import simulated_compute
from tests.unit.server.services.accounts import NOON, Accounts, As, open_accounts
from tests.unit.server.services.sagemaker import requests
from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import AttemptRef, Capacity, InstanceRef
from trainyard.engines.engine_set import EngineSet
from trainyard.foundation.clock import Clock
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.link.contract import ObjectsSpec
from trainyard.server.control.instances.demand import SchedulableInstanceJobs
from trainyard.server.control.instances.views import JobViews
from trainyard.server.control.instances.yard_context import YardContext
from trainyard.server.control.processing.specs import ProcessingSpecMaker
from trainyard.server.control.processing.work import ProcessingWork
from trainyard.server.control.scheduling.contract import Placement, SchedulableJobs
from trainyard.server.control.scheduling.scheduler import Scheduler
from trainyard.server.control.training.limits import WaitingLimitKind
from trainyard.server.control.training.specs import SpecMaker
from trainyard.server.control.training.work import TrainingWork
from trainyard.server.jobs import processing, training
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Claim, Records, Resource, ResourceKey
from trainyard.server.services.contract import Yard
from trainyard.testing.engines import SimulatedAgent, SimulatedEngine, run

TWO_SLOTS = Capacity.of_machine(slots=2, cpus=4.0, memory_bytes=16 * 1024**3)


class Watch:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Bench:
    accounts: Accounts
    anna: As
    engine: SimulatedEngine
    work: TrainingWork
    # Shares the scheduler with the work on training jobs.
    processing: ProcessingWork
    watch: Watch

    def create(self, name: str = "mnist", *, by: As | None = None, **changed: Any) -> Resource:
        user = by or self.anna
        requests.create(user.at(self.watch()), name, **changed)
        return self.work.records.load(ResourceKey(user.account, KIND, name))

    def resource(self, name: str = "mnist") -> Resource:
        return self.work.records.load(ResourceKey(self.anna.account, KIND, name))

    def job(self, name: str = "mnist") -> TrainingJob:
        return job_of(self.resource(name))

    def stop(self, name: str = "mnist") -> None:
        self.anna.at(self.watch())("sagemaker", "StopTrainingJob", TrainingJobName=name)

    def place(self) -> Claim:
        """Place the next job."""
        placement = self.next_placement()
        assert placement is not None, "no waiting job fits"
        placed = self.work.place(placement)
        assert placed is not None, "the job was not placed"
        return placed

    def next_placement(self) -> Placement | None:
        """Return the next job that can start; there is one engine."""
        placements = next_placements(self.work)
        return placements[0] if placements else None

    def turn(self, claim: Claim | None, *, times: int = 1) -> Claim | None:
        """Take some steps, as long as the claim is held."""
        for _ in range(times):
            if claim is None:
                break
            claim = self.work.step(claim, is_woken=True)
        return claim

    def start(self, name: str = "mnist", **changed: Any) -> Claim:
        """Create a job and let its instances run until they report Training."""
        self.create(name, **changed)
        claim = self.turn(self.place(), times=2)
        assert claim is not None, "the job is running"
        return claim

    def agent(self, name: str = "mnist", instance: str = "algo-1", *, attempt: int = 1) -> SimulatedAgent:
        return self.engine.agent(InstanceRef(AttemptRef(self.resource(name).id, attempt), instance))

    def another_worker(self) -> TrainingWork:
        """The controller of a yard that was started after this one had been killed."""
        return replace(self.work, worker="another")


@contextmanager
def open_bench(
    folder: Path, *, capacity: Capacity = TWO_SLOTS, records_url: str = "", more: Sequence[SimulatedEngine] = ()
) -> Iterator[Bench]:
    with open_accounts(folder, records_url=records_url) as accounts:
        watch = Watch()
        engine = SimulatedEngine(folder / "jobs", role=run, capacity=capacity, clock=watch)
        yard = replace(accounts.yard, compute=simulated_compute(folder, engine=engine, more=more))
        anna = requests.prepare(replace(accounts.anna, yard=yard))
        context = YardContext(
            "http://127.0.0.1:4780",
            ObjectsSpec(str(folder / "objects")),
            (folder,),
            environments=folder / "environments",
            warm=None,
            warm_idle=timedelta(minutes=10),
        )
        work = TrainingWork(
            records=yard.records,
            identities=yard.identities,
            engines=yard.compute.engines,
            catalog=yard.compute.catalog,
            scheduler=_scheduler(
                yard.records, yard.compute.engines, catalog=yard.compute.catalog, clock=watch, site=""
            ),
            specs=SpecMaker(yard.objects, yard.compute.images, yard.compute.file_systems, context),
            views=JobViews(
                yard.records,
                jobs=folder / "jobs",
                logs=yard.logs,
                metrics=yard.metrics,
                log_group=training.LOG_GROUP,
                dimension=training.METRIC_DIMENSION,
            ),
            clock=watch,
            worker="bench",
            site="",
            runs_as_root=False,
        )
        yield Bench(accounts, anna, engine, work, _processing_work(work, yard, context), watch)


def _processing_work(beside: TrainingWork, yard: Yard, context: YardContext) -> ProcessingWork:
    return ProcessingWork(
        records=beside.records,
        identities=beside.identities,
        engines=beside.engines,
        catalog=beside.catalog,
        scheduler=beside.scheduler,
        specs=ProcessingSpecMaker(yard.objects, yard.compute.images, yard.compute.file_systems, context),
        views=replace(beside.views, log_group=processing.LOG_GROUP, dimension=processing.METRIC_DIMENSION),
        clock=beside.clock,
        worker=beside.worker,
        site=beside.site,
        runs_as_root=beside.runs_as_root,
    )


def next_placements(work: TrainingWork) -> Sequence[Placement]:
    """Return the jobs that can start now, one of each queue."""
    return work.scheduler.next_placements(work.scheduler.read_allocations())


def with_changes(work: TrainingWork, **changes: Any) -> TrainingWork:
    """Return the work of a yard that differs in some things, with a scheduler of its own."""
    changed = replace(work, **changes)
    scheduler = _scheduler(
        changed.records, changed.engines, catalog=changed.catalog, clock=changed.clock, site=changed.site
    )
    return replace(changed, scheduler=scheduler)


def _scheduler(records: Records, engines: EngineSet, *, catalog: Catalog, clock: Clock, site: str) -> Scheduler:
    jobs: dict[str, SchedulableJobs] = {
        KIND: SchedulableInstanceJobs(training, records, catalog, clock, site=site),
        processing.KIND: SchedulableInstanceJobs(processing, records, catalog, clock, site=site),
    }
    return Scheduler(records, engines, jobs, clock, site=site)


def end_overdue(bench: Bench, *, worker: str = "bench") -> None:
    """Take the step of every reminder of a waiting limit that is due."""
    limits = WaitingLimitKind(bench.work.records, bench.watch, worker=worker)
    for reminder in limits.claim_due():
        limits.step(reminder, ())
