"""Spot jobs fill what is idle, and give way to those that are not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, end_overdue, open_bench
from tests.unit.server.services.sagemaker.requests import describe
from trainyard.engines.contract import Capacity
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.foundation.jobs.training.transitions import interrupt
from trainyard.link.contract import CommandKind, FrameKind
from trainyard.link.folders import InstanceRef
from trainyard.link.mailbox import Mailbox
from trainyard.server.control.instances.demand import PREEMPTED
from trainyard.server.control.instances.work import KILL_TIMEOUT, LEASE, START_TIMEOUT
from trainyard.server.identity import InvalidCredential
from trainyard.server.jobs.quotas import CapacityKind, Quota, Quotas
from trainyard.server.jobs.training import PENDING_LIMIT, change_to, job_of
from trainyard.server.records.contract import Claim, Query
from trainyard.wire.fault import Fault

ONE_SLOT = Capacity.of_machine(slots=1, cpus=2.0, memory_bytes=8 * 1024**3)
S = SecondaryStatus


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Bench]:
    """A bench with room for one instance."""
    with open_bench(tmp_path, capacity=ONE_SLOT) as opened:
        yield opened


def spot(run_s: int = 3600, wait_s: int = 7200, **changed: Any) -> dict[str, Any]:
    times = {"MaxRuntimeInSeconds": run_s, "MaxWaitTimeInSeconds": wait_s}
    return {"EnableManagedSpotTraining": True, "StoppingCondition": times, **changed}


def two_instances() -> dict[str, Any]:
    return {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}}


def take_place(bench: Bench, name: str = "mnist", *, why: str = "A test did it.") -> None:
    """Interrupt a job, as others may at any time."""
    resource = bench.resource(name)
    after = interrupt(job_of(resource), why)
    assert bench.work.records.apply(resource, change_to(resource, after), now=bench.watch()) is not None


def slow_agents(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, CommandKind]]:
    """What instances are told from now on, which they do not follow at once."""
    told: list[tuple[str, CommandKind]] = []

    def command(instance: InstanceRef, kind: CommandKind, payload: object) -> None:
        told.append((instance.name, kind))

    monkeypatch.setattr(bench.engine, "command", command)
    return told


def statuses(bench: Bench, name: str = "mnist") -> list[str]:
    return [step.status for step in bench.job(name).transitions]


def interrupted(bench: Bench, name: str = "mnist", **changed: Any) -> None:
    """A spot job that ran for ten seconds and has lost its place."""
    bench.start(name, **(spot() | changed))
    bench.watch.forward(10)
    take_place(bench, name)
    assert go_on(bench) is None
    assert bench.job(name).secondary is S.INTERRUPTED


def go_on(bench: Bench) -> Claim | None:
    """Some rounds on a job whose lease has run out."""
    return bench.turn(bench.work.claim(), times=3)


def resume(bench: Bench, name: str = "mnist") -> Claim:
    placed = bench.place()
    assert placed.resource.key.name == name
    claim = bench.turn(placed, times=2)
    assert claim is not None, "the job goes on"
    return claim


def test_a_spot_job_gives_way_and_continues_when_there_is_room(yard: Bench) -> None:
    cheap = yard.start("cheap", **spot())
    yard.watch.forward(1)
    yard.create("urgent")
    assert yard.next_placement() is None
    assert yard.job("cheap").attempts[-1].interruption == PREEMPTED
    assert yard.job("cheap").secondary is S.TRAINING  # until it has gone
    assert yard.turn(cheap, times=3) is None
    assert (yard.job("cheap").status, yard.job("cheap").secondary) == (Status.IN_PROGRESS, S.INTERRUPTED)
    assert yard.next_placement() is not None
    urgent = resume(yard, "urgent")
    assert yard.next_placement() is None
    assert yard.job("urgent").attempts[-1].interruption == ""
    yard.agent("urgent").end()
    assert yard.turn(urgent) is None
    assert yard.next_placement() is not None
    cheap = resume(yard, "cheap")
    yard.agent("cheap", attempt=2).end()
    assert yard.turn(cheap) is None
    assert statuses(yard, "cheap") == [
        *("Pending", "Starting", "Downloading", "Training", "Interrupted"),
        *("Restarting", "Starting", "Downloading", "Training", "Completed"),
    ]


def test_the_instances_learn_why_they_stop(yard: Bench) -> None:
    claim = yard.start(**spot())
    take_place(yard)
    yard.turn(claim)
    (command,) = Mailbox(yard.agent().folder.mailbox).read(0)
    assert (command.kind, command.payload) == ("stop", {"reason": "interrupted"})


def test_the_attempt_is_dead_and_its_credentials_are_worthless_before_the_job_waits(yard: Bench) -> None:
    claim = yard.start(**spot())
    variables = yard.agent().spec.environment
    take_place(yard)
    yard.turn(claim, times=3)
    assert not yard.agent().is_alive
    with pytest.raises(InvalidCredential):
        yard.work.identities.resolve(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SESSION_TOKEN"], now=yard.watch())
    assert yard.work.scheduler.read_allocations() == {}


def test_an_attempt_that_cannot_be_proven_dead_keeps_its_place(yard: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = yard.start(**spot())
    take_place(yard)

    def refuse(ref: object) -> None:
        raise Unavailable("something of it still runs")

    monkeypatch.setattr(yard.engine, "end", refuse)
    with pytest.raises(Unavailable):
        yard.turn(claim, times=3)
    assert list(yard.work.scheduler.read_allocations()) == [yard.resource().id]


def test_only_as_many_give_way_as_must_and_the_youngest_first(bench: Bench) -> None:
    bench.start("older", **spot())
    bench.watch.forward(1)
    bench.start("younger", **spot())
    bench.watch.forward(1)
    bench.create("urgent")
    for _ in range(3):
        assert bench.next_placement() is None
    assert [bool(bench.job(name).attempts[-1].interruption) for name in ("older", "younger")] == [False, True]


def test_nobody_gives_way_while_another_leaves_anyway(bench: Bench) -> None:
    bench.start("cheap", **spot())
    bench.start("done")
    bench.stop("done")
    bench.create("urgent")
    assert bench.next_placement() is None
    assert bench.job("cheap").attempts[-1].interruption == ""


def test_nobody_gives_way_in_vain(bench: Bench) -> None:
    bench.start("cheap", **spot())
    bench.start("own")
    bench.create("wide", **two_instances())
    assert bench.next_placement() is None
    assert bench.job("cheap").attempts[-1].interruption == ""


def test_a_spot_job_does_not_give_way_to_another(yard: Bench) -> None:
    yard.start("cheap", **spot())
    yard.create("cheaper", **spot())
    assert yard.next_placement() is None
    assert yard.job("cheap").attempts[-1].interruption == ""


def test_spot_jobs_wait_behind_all_others_and_in_the_order_they_came(bench: Bench) -> None:
    for name, changed in {"spot-1": spot(), "own-1": {}, "spot-2": spot(), "own-2": {}}.items():
        bench.create(name, **changed)
        bench.watch.forward(1)
    order = []
    for _ in range(4):
        claim = bench.place()
        order.append(claim.resource.key.name)
        bench.engine.role = lambda agent: agent.end()
        assert bench.turn(claim, times=2) is None
    assert order == ["own-1", "own-2", "spot-1", "spot-2"]


def test_one_that_was_interrupted_waits_before_those_that_came_later(yard: Bench) -> None:
    interrupted(yard, "first")
    yard.create("second", **spot())
    resume(yard, "first")


def test_a_program_that_ended_of_itself_just_before_is_not_started_again(yard: Bench) -> None:
    claim = yard.start(**spot())
    yard.agent().end()
    take_place(yard)
    assert yard.turn(claim) is None
    assert yard.job().secondary is S.COMPLETED


def test_a_program_that_failed_just_before_has_failed(yard: Bench) -> None:
    claim = yard.start(**spot())
    yard.agent().end("failed", reason="It is wrong.")
    take_place(yard)
    assert yard.turn(claim) is None
    assert (yard.job().secondary, yard.job().failure) == (S.FAILED, "It is wrong.")


def test_an_instance_that_fails_because_another_was_interrupted_does_not_fail_the_job(bench: Bench) -> None:
    claim = bench.start(**spot(**two_instances()))
    take_place(bench)
    bench.agent(instance="algo-2").end("failed", reason="Connection reset by peer")
    bench.agent(instance="algo-1").end("stopped", reason="interrupted")
    assert bench.turn(claim, times=2) is None
    job = bench.job()
    assert (job.secondary, job.failure, dict(job.card)) == (S.INTERRUPTED, "", {})


def test_the_others_keep_their_grace_when_one_fails_while_all_give_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They store their last checkpoints in it, and nobody cuts that short."""
    orders = slow_agents(bench, monkeypatch)
    claim = bench.start(**spot(**two_instances()))
    take_place(bench)
    bench.agent(instance="algo-2").end("failed", reason="Connection reset by peer")
    held = bench.turn(claim, times=2)
    bench.watch.forward(KILL_TIMEOUT.total_seconds() * 3)
    held = bench.turn(bench.work.claim(), times=2)
    assert held is not None
    assert bench.agent(instance="algo-1").is_alive
    assert orders == [("algo-1", CommandKind.STOP)]
    bench.agent(instance="algo-1").end("stopped", reason="interrupted")
    assert bench.turn(held) is None
    assert bench.job().secondary is S.INTERRUPTED


def test_those_that_are_killed_have_their_moment_to_store_however_late_the_yard_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = slow_agents(bench, monkeypatch)
    bench.start(**spot(**two_instances()))
    bench.agent(instance="algo-2").end("failed", reason="It is wrong.")
    bench.watch.forward(1800)  # in which no yard runs
    held = bench.turn(bench.work.claim(), times=3)
    assert orders == [("algo-1", CommandKind.KILL)]
    assert bench.agent(instance="algo-1").is_alive
    assert held is not None
    bench.watch.forward(KILL_TIMEOUT.total_seconds() + 1)
    assert bench.turn(bench.work.claim(), times=2) is None
    assert not bench.agent(instance="algo-1").is_alive
    assert bench.job().secondary is S.FAILED


def test_instances_that_were_killed_for_a_failure_are_not_asked_to_give_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = slow_agents(bench, monkeypatch)
    claim = bench.start(**spot(**two_instances()))
    bench.agent(instance="algo-2").end("failed", reason="It is wrong.")
    held = bench.turn(claim)
    take_place(bench)
    bench.turn(held, times=2)
    assert orders == [("algo-1", CommandKind.KILL)]


def test_an_agent_that_dies_while_it_is_interrupted_costs_no_retry(yard: Bench) -> None:
    claim = yard.start(**spot(RetryStrategy={"MaximumRetryAttempts": 1}))
    take_place(yard)
    yard.agent().die()
    assert yard.turn(claim, times=2) is None
    assert (yard.job().secondary, yard.job().retries_used) == (S.INTERRUPTED, 0)


def test_a_job_can_be_stopped_while_it_waits_for_another_place(yard: Bench) -> None:
    interrupted(yard)
    yard.stop()
    assert statuses(yard)[-3:] == ["Interrupted", "Stopping", "Stopped"]
    assert yard.next_placement() is None
    assert describe(yard.anna)["TrainingTimeInSeconds"] == 10


def test_a_stop_that_comes_while_it_gives_way_is_a_stop(yard: Bench) -> None:
    claim = yard.start(**spot())
    take_place(yard)
    yard.stop()
    assert yard.turn(claim, times=3) is None
    assert statuses(yard)[-2:] == ["Stopping", "Stopped"]
    assert [command.payload for command in Mailbox(yard.agent().folder.mailbox).read(0)] == [{"reason": "user"}]


def test_one_that_was_not_started_yet_gives_its_place_away_unstarted(yard: Bench) -> None:
    yard.create(**spot())
    claim = yard.place()
    take_place(yard)
    assert yard.turn(claim) is None
    assert statuses(yard) == ["Pending", "Starting", "Interrupted"]
    assert not yard.agent().folder.root.exists()
    resume(yard)
    assert yard.agent(attempt=2).is_alive


def test_the_machine_gets_its_whole_patience_again_after_an_interruption(
    yard: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(yard)
    yard.watch.forward(2 * START_TIMEOUT.total_seconds())

    def refuse(specs: object) -> None:
        raise Unavailable("not now")

    monkeypatch.setattr(yard.engine, "start", refuse)
    assert yard.turn(yard.place()) is not None
    assert yard.job().status is Status.IN_PROGRESS


def test_another_yard_continues_after_a_kill_in_any_status(yard: Bench) -> None:
    yard.start(**spot())
    take_place(yard)
    yard.watch.forward(2 * LEASE.total_seconds())
    successor = yard.another_worker()
    assert list(successor.scheduler.read_allocations()) == [yard.resource().id]
    claim = successor.claim()
    while claim is not None:
        claim = successor.step(claim, is_woken=True)
    assert yard.job().secondary is S.INTERRUPTED
    assert successor.scheduler.read_allocations() == {}
    (placement,) = successor.scheduler.next_placements({})
    assert successor.place(placement) is not None
    assert statuses(yard)[-2:] == ["Interrupted", "Restarting"]
    yard.watch.forward(2 * LEASE.total_seconds())
    claim = yard.turn(yard.work.claim(), times=2)
    assert claim is not None
    assert yard.job().secondary is S.TRAINING


def test_a_job_ends_when_waiting_and_running_took_too_long_together(yard: Bench) -> None:
    yard.start(**spot(run_s=60, wait_s=100))
    yard.watch.forward(99.9)
    overdue(yard)
    assert yard.job().status is Status.IN_PROGRESS
    yard.watch.forward(0.1)
    overdue(yard)
    assert yard.job().status is Status.STOPPING
    assert go_on(yard) is None
    told = describe(yard.anna)
    assert (told["TrainingJobStatus"], told["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")
    message = told["SecondaryStatusTransitions"][-1]["StatusMessage"]
    assert message == "The job stopped because it exceeded the maximum allowed wait time."


def test_a_job_that_waits_too_long_for_another_place_ends(yard: Bench) -> None:
    interrupted(yard, **spot(run_s=60, wait_s=100))
    yard.watch.forward(90)
    overdue(yard)
    assert statuses(yard)[-3:] == ["Interrupted", "Stopping", "MaxWaitTimeExceeded"]
    assert yard.next_placement() is None
    assert yard.work.records.find(Query(PENDING_LIMIT)).resources == []


def test_a_job_that_is_overdue_when_it_is_placed_is_not_started(yard: Bench) -> None:
    interrupted(yard, **spot(run_s=60, wait_s=100))
    yard.watch.forward(3600)  # in which no yard ran
    placement = yard.next_placement()
    assert placement is not None
    assert yard.work.place(placement) is None
    assert yard.job().secondary is S.MAX_WAIT_TIME_EXCEEDED


def test_the_running_time_is_for_all_attempts_together(yard: Bench) -> None:
    interrupted(yard, **spot(run_s=60))
    yard.watch.forward(1000)
    resume(yard)
    assert yard.agent(attempt=2).spec.max_runtime_s == 50


def test_a_job_whose_running_time_is_used_up_when_it_is_interrupted_ends(yard: Bench) -> None:
    yard.start(**spot(run_s=60))
    yard.watch.forward(60)
    take_place(yard)
    assert go_on(yard) is None
    assert yard.job().secondary is S.MAX_RUNTIME_EXCEEDED


def test_the_bill_is_for_the_time_of_all_attempts_at_the_price_of_spot(yard: Bench) -> None:
    interrupted(yard)
    yard.watch.forward(1000)  # waiting costs nothing
    resume(yard)
    yard.watch.forward(30)
    yard.agent(attempt=2).end()
    assert go_on(yard) is None
    told = describe(yard.anna)
    assert (told["TrainingTimeInSeconds"], told["BillableTimeInSeconds"]) == (40, 12)
    more = yard.anna("trainyard", "DescribeJob", TrainingJobName="mnist")
    price = yard.work.catalog["ml.m5.large"]
    assert more["PricePerHour"] == price.spot_usd
    assert more["Cost"] == pytest.approx(price.spot_usd * 40 / 3600)
    assert [(each["InterruptionReason"], each["ResumedAfterInSeconds"]) for each in more["Attempts"]] == [
        ("A test did it.", 1000.0),
        (None, None),
    ]
    assert [each["TrainingTimeInSeconds"] for each in more["Attempts"]] == [10.0, 30.0]
    assert "Attempt 1 was interrupted: A test did it." in more["Notes"]
    (use,) = yard.anna("trainyard", "DescribeSpot")["Types"]
    assert (use["Jobs"], use["Interruptions"], use["TrainingTimeInSeconds"]) == (1, 1, 40)
    assert use["MedianResumeInSeconds"] == use["WorstResumeInSeconds"] == pytest.approx(1000, rel=1 / 40)


def test_metrics_of_all_attempts_count(yard: Bench) -> None:
    claim = yard.start(**spot())
    yard.agent().report(FrameKind.METRIC, name="loss", value=2.0, at_us=1, count=3)
    take_place(yard)
    assert yard.turn(claim, times=3) is None
    resume(yard)
    assert yard.job().metrics["loss"].count == 3


def test_spot_jobs_have_quotas_of_their_own_until_they_end(yard: Bench) -> None:
    Quotas(yard.work.records).put(Quota("anna", "ml.m5.large", CapacityKind.SPOT, 1), now=yard.watch())
    interrupted(yard, "first")
    with pytest.raises(Fault, match=r"ml\.m5\.large for spot training job usage"):
        yard.create("second", **spot())
    yard.create("own")
    yard.stop("first")
    yard.create("second", **spot())


def overdue(bench: Bench) -> None:
    end_overdue(bench)
