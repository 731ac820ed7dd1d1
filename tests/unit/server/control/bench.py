"""A yard whose controller a test turns by hand, with agents that it plays itself."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.unit.server.services.accounts import NOON, Accounts, As, open_accounts
from tests.unit.server.services.sagemaker import requests
from trainyard.engines.contract import AttemptRef, Capacity, InstanceRef
from trainyard.foundation.jobs import TrainingJob
from trainyard.link.contract import ObjectsSpec
from trainyard.server.control.lines import Offer
from trainyard.server.control.showing import JobViews
from trainyard.server.control.specs import SpecMaker, Surroundings
from trainyard.server.control.training import TrainingWork
from trainyard.server.jobs import KIND, job_of
from trainyard.server.records.contract import Claim, Resource, ResourceKey
from trainyard.testing.engines import PlayedAgent, SimulatedEngine, run
from trainyard.testing.workshop import simulated_workshop

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
        """Place who is next."""
        offer = self.offer()
        assert offer is not None, "nobody waits for whom there is room"
        placed = self.work.place(offer)
        assert placed is not None, "it was not to be"
        return placed

    def offer(self) -> Offer | None:
        """Who is next, where there is one engine."""
        offers = self.work.offers(self.work.running())
        return offers[0] if offers else None

    def turn(self, claim: Claim | None, *, times: int = 1) -> Claim | None:
        """Some rounds, as long as the claim is held."""
        for _ in range(times):
            if claim is None:
                break
            claim = self.work.step(claim, is_woken=True)
        return claim

    def start(self, name: str = "mnist", **changed: Any) -> Claim:
        """A job whose instances run and report Training."""
        self.create(name, **changed)
        claim = self.turn(self.place(), times=2)
        assert claim is not None, "the job goes on"
        return claim

    def agent(self, name: str = "mnist", instance: str = "algo-1", *, attempt: int = 1) -> PlayedAgent:
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
        yard = replace(accounts.yard, workshop=simulated_workshop(folder, engine=engine, more=more))
        anna = requests.prepare(replace(accounts.anna, yard=yard))
        surroundings = Surroundings(
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
            engines=yard.workshop.engines,
            catalog=yard.workshop.catalog,
            specs=SpecMaker(yard.objects, yard.workshop.images, yard.workshop.file_systems, surroundings),
            views=JobViews(yard.records, jobs=folder / "jobs", logs=yard.logs, metrics=yard.metrics),
            clock=watch,
            worker="bench",
            site="",
            runs_as_root=False,
        )
        yield Bench(accounts, anna, engine, work, watch)
