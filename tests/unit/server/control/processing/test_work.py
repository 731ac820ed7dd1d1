"""The work on processing jobs: their life, and a yard that is killed before any call that it makes."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.services.sagemaker.processing import requests
from trainyard.engines.contract import AttemptRef, InstanceRef
from trainyard.engines.engine_set import EngineSet
from trainyard.foundation.jobs.processing.job import ProcessingJob
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.link.contract import CommandKind, FrameKind, OutputSpec, ProcessingSpec
from trainyard.link.mailbox import Mailbox
from trainyard.server.control.instances.work import LEASE
from trainyard.server.control.processing.work import ProcessingWork
from trainyard.server.identity import InvalidCredential
from trainyard.server.jobs.processing import KIND, job_of
from trainyard.server.records.contract import Claim, Resource, ResourceKey
from trainyard.testing.engines import SimulatedAgent, complete, fail, vanish

TWO = requests.cluster(InstanceCount=2)


def create(bench: Bench, name: str = "clean", **changed: Any) -> Resource:
    requests.create(bench.anna.at(bench.watch()), name, **changed)
    return bench.work.records.load(ResourceKey(bench.anna.account, KIND, name))


def job(bench: Bench, name: str = "clean") -> ProcessingJob:
    return job_of(bench.work.records.load(ResourceKey(bench.anna.account, KIND, name)))


def agent(bench: Bench, instance: str = "algo-1") -> SimulatedAgent:
    resource = bench.work.records.load(ResourceKey(bench.anna.account, KIND, "clean"))
    return bench.engine.agent(InstanceRef(AttemptRef(resource.id, 1), instance))


def place(bench: Bench, work: ProcessingWork | None = None) -> Claim:
    placement = bench.next_placement()
    assert placement is not None, "the job does not fit"
    assert placement.kind == KIND
    claim = (work or bench.processing).place(placement)
    assert claim is not None, "the job was not placed"
    return claim


def turn(work: ProcessingWork, claim: Claim | None, *, times: int = 1) -> Claim | None:
    for _ in range(times):
        if claim is None:
            break
        claim = work.step(claim, is_woken=True)
    return claim


def start(bench: Bench, **changed: Any) -> Claim:
    create(bench, **changed)
    claim = turn(bench.processing, place(bench), times=2)
    assert claim is not None, "the job is running"
    return claim


def test_a_job_goes_through_all_statuses_to_its_end(bench: Bench) -> None:
    bench.engine.role = complete
    create(bench)
    assert turn(bench.processing, place(bench), times=5) is None
    steps = [step.status for step in job(bench).transitions]
    assert steps == ["Pending", "Starting", "Downloading", "Processing", "Uploading", "Completed"]
    assert bench.processing.claim() is None
    assert bench.work.scheduler.read_allocations() == {}


def test_the_spec_tells_each_instance_its_part_of_what_the_request_asked_for(bench: Bench) -> None:
    path, sharded = "/opt/ml/processing/in", {"S3DataDistributionType": "ShardedByS3Key"}
    data = requests.input_of("data", "s3://data/train/", path, **sharded)
    start(bench, ProcessingInputs=[data], ProcessingResources=TWO, Environment={"COLOUR": "blue"})
    first, second = (agent(bench, name).spec for name in ("algo-1", "algo-2"))
    assert first.program.command == ("python3", f"{requests.CODE}/clean.py")
    assert [(each.path, each.keys) for each in first.channels] == [(path, ("train/1.csv", "train/3.csv"))]
    assert [each.keys for each in second.channels] == [("train/2.csv",)]
    assert first.processing == ProcessingSpec((OutputSpec("out", "s3://data/out", "/opt/ml/processing/out"),))
    assert first.environment["COLOUR"] == "blue"
    assert (first.request["ProcessingJobName"], first.uploads, first.max_runtime_s) == ("clean", False, 86400)


def test_what_programs_leave_is_the_exit_message_and_their_credentials_are_worthless(bench: Bench) -> None:
    claim = start(bench, ProcessingResources=TWO)
    variables = agent(bench).spec.environment
    agent(bench).end(message="one, ")
    agent(bench, "algo-2").end(message="two")
    assert turn(bench.processing, claim, times=2) is None
    told = requests.describe(bench.anna)
    assert (told["ProcessingJobStatus"], told["ExitMessage"]) == ("Completed", "one, two")
    key, token = variables["AWS_ACCESS_KEY_ID"], variables["AWS_SESSION_TOKEN"]
    with pytest.raises(InvalidCredential):
        bench.work.identities.resolve(key, token, now=bench.watch())


def test_the_first_instance_that_fails_fails_the_job_and_ends_the_others(bench: Bench) -> None:
    claim = start(bench, ProcessingResources=TWO)
    agent(bench, "algo-2").report(FrameKind.EXITED, code=3, signal=None, is_oom=False)
    agent(bench, "algo-2").end("failed", reason="AlgorithmError: exit code: 3", message="out of luck")
    assert turn(bench.processing, claim, times=2) is None
    told = requests.describe(bench.anna)
    assert (told["FailureReason"], told["ExitMessage"]) == ("AlgorithmError: exit code: 3", "out of luck")
    assert [command.kind for command in Mailbox(agent(bench).folder.mailbox).read(0)] == [CommandKind.KILL]


def test_a_stop_reaches_the_instances_and_ends_in_stopped(bench: Bench) -> None:
    claim = start(bench)
    bench.anna.at(bench.watch())("sagemaker", "StopProcessingJob", ProcessingJobName="clean")
    assert job(bench).status is Status.STOPPING
    assert turn(bench.processing, claim, times=2) is None
    assert [step.status for step in job(bench).transitions][-2:] == ["Stopping", "Stopped"]
    assert "FailureReason" not in requests.describe(bench.anna)


def test_a_lost_instance_fails_the_job_with_a_reason_and_advice(bench: Bench) -> None:
    bench.engine.role = vanish
    create(bench)
    assert turn(bench.processing, place(bench), times=3) is None
    assert "The agent of algo-1 died" in job(bench).failure
    assert job(bench).card["advice"] == "Create the job again under another name when this happens."


def test_both_kinds_of_jobs_wait_in_one_queue_in_the_order_of_their_creation(bench: Bench) -> None:
    waiting = []
    for name in ("a", "b"):
        waiting.append(create(bench, f"clean-{name}").id)
        bench.watch.forward(1)
        waiting.append(bench.create(f"train-{name}").id)
        bench.watch.forward(1)
    placed = []
    while (placement := bench.next_placement()) is not None:
        assert (bench.work if placement.kind == "training-job" else bench.processing).place(placement) is not None
        placed.append(placement.id)
    assert placed == waiting[:2]


class Killed(BaseException):
    """The yard dies here."""


@dataclass
class Mortal:
    """Passes every call on until it is the `fatal` one, before which the yard is killed."""

    behind: Any
    calls: Iterator[int]
    fatal: int
    _passed: set[str] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.behind, name)
        if not callable(value):
            return value

        def call(*given: Any, **named: Any) -> Any:
            if next(self.calls) == self.fatal:
                raise Killed(name)
            return value(*given, **named)

        return call


def mortal_work(bench: Bench, *, fatal: int) -> ProcessingWork:
    calls = count(1)
    engine = Mortal(bench.engine, calls, fatal)
    records: Any = Mortal(bench.work.records, calls, fatal)
    identities: Any = Mortal(bench.work.identities, calls, fatal)
    engines = EngineSet([engine])
    return replace(bench.processing, records=records, identities=identities, engines=engines, worker=f"mortal-{fatal}")


@pytest.mark.parametrize(("role", "end"), [(complete, "Completed"), (fail, "Failed")], ids=["completes", "fails"])
def test_a_yard_that_is_killed_before_any_of_its_calls_leaves_a_job_that_ends_as_it_should(
    tmp_path: Path, role: Any, end: str
) -> None:
    for fatal in count(1):
        folder = tmp_path / str(fatal)
        folder.mkdir()
        with open_bench(folder) as bench:
            bench.engine.role = role
            create(bench)
            work, was_killed = mortal_work(bench, fatal=fatal), False
            try:
                assert turn(work, place(bench, work), times=6) is None
            except Killed:
                was_killed = True
            finish(bench)
            ended = job(bench)
            assert (ended.status, len(ended.attempts)) == (end, 1), f"killed before call {fatal}"
            assert all(value.value == 0 for value in bench.work.records.counters(bench.anna.account))
            assert ended.secondary is (SecondaryStatus.COMPLETED if end == "Completed" else SecondaryStatus.FAILED)
        if not was_killed:
            assert fatal > 10, "a job takes more calls than that"
            return


def finish(bench: Bench) -> None:
    """Take the job to its end as the next yard does, whatever the one before has left of it."""
    bench.watch.forward(LEASE.total_seconds())
    work = replace(bench.processing, worker="next")
    claim = work.claim()
    if claim is None and (placement := bench.next_placement()) is not None:
        claim = work.place(placement)
    assert turn(work, claim, times=8) is None
