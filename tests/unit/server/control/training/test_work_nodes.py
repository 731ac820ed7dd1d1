"""What becomes of jobs whose nodes go away."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.services.sagemaker.requests import describe
from trainyard.engines.contract import AttemptRef, Capacity, InstanceRef, Node
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.link.mailbox import Mailbox
from trainyard.server.control.instances.work import KILL_TIMEOUT, START_TIMEOUT
from trainyard.server.records.contract import Claim

GIB = 1024**3
S = SecondaryStatus


def nodes(*names: str) -> Capacity:
    return Capacity(tuple(Node(name, 4, 2.0, 8 * GIB, reserves=True) for name in names))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Bench]:
    """A bench with two nodes, each for one ml.m5.large."""
    with open_bench(tmp_path, capacity=nodes("a", "b")) as opened:
        yield opened


def two(**changed: Any) -> dict[str, Any]:
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    return {"ResourceConfig": resources, **changed}


def spot(**changed: Any) -> dict[str, Any]:
    times = {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200}
    return {"EnableManagedSpotTraining": True, "StoppingCondition": times, **changed}


def take(bench: Bench, instance: str, *, left: Capacity) -> None:
    """A node goes away, and with it an instance."""
    bench.agent(instance=instance).die()
    bench.engine.lost_nodes.add(InstanceRef(AttemptRef(bench.resource().id, 1), instance))
    bench.engine.offered = left


def statuses(bench: Bench) -> list[str]:
    return [step.status for step in bench.job().transitions]


def go_on(bench: Bench) -> Claim | None:
    return bench.turn(bench.place(), times=4)


def test_a_spot_job_whose_node_was_lost_is_interrupted_and_continues_elsewhere(cluster: Bench) -> None:
    claim = cluster.start(**spot(), RetryStrategy={"MaximumRetryAttempts": 1})
    take(cluster, "algo-1", left=nodes("b"))
    assert cluster.turn(claim, times=2) is None
    job = cluster.job()
    assert (job.secondary, job.retries_used, job.failure) == (S.INTERRUPTED, 0, "")
    assert job.attempts[-1].interruption == 'The node "a" of algo-1 went away.'

    assert go_on(cluster) is not None
    assert cluster.agent(attempt=2).spec.node == "b"
    assert statuses(cluster)[4:] == ["Interrupted", "Restarting", "Starting", "Downloading", "Training"]


def test_the_other_instances_of_an_interrupted_job_get_their_grace(cluster: Bench) -> None:
    claim = cluster.start(**two(**spot()))
    take(cluster, "algo-2", left=nodes("a"))
    cluster.turn(claim, times=3)
    (command,) = Mailbox(cluster.agent().folder.mailbox).read(0)
    assert (command.kind, command.payload) == ("stop", {"reason": "interrupted"})
    assert cluster.job().secondary is S.INTERRUPTED
    assert cluster.next_placement() is not None  # of what is less, because a node is gone
    assert go_on(cluster) is not None
    assert any("ml.m5.large gets 1 of 2 CPUs" in note for note in cluster.job().notes)


def test_an_instance_that_fails_because_another_was_taken_does_not_fail_a_spot_job(cluster: Bench) -> None:
    claim = cluster.start(**two(**spot()))
    cluster.agent(instance="algo-1").end("failed", reason="peer is gone", card={"is_consequence": True})
    take(cluster, "algo-2", left=nodes("a"))
    cluster.turn(claim, times=3)
    assert (cluster.job().secondary, cluster.job().failure) == (S.INTERRUPTED, "")


def test_a_failure_of_its_own_fails_a_spot_job_though_a_node_is_gone(cluster: Bench) -> None:
    claim = cluster.start(**two(**spot()))
    cluster.agent(instance="algo-1").end("failed", reason="ValueError: bad batch", card={"kind": "user error"})
    take(cluster, "algo-2", left=nodes("a"))
    assert cluster.turn(claim, times=3) is None
    assert (cluster.job().status, cluster.job().failure) == (Status.FAILED, "ValueError: bad batch")


def test_other_jobs_fail_with_the_name_of_the_node(cluster: Bench) -> None:
    claim = cluster.start()
    take(cluster, "algo-1", left=nodes("b"))
    assert cluster.turn(claim, times=2) is None
    assert describe(cluster.anna)["FailureReason"] == ('InternalServerError: The node "a" of algo-1 went away.')
    assert "RetryStrategy" in str(cluster.job().card["advice"])


def test_a_retry_goes_to_another_node_when_there_is_room(cluster: Bench) -> None:
    claim: Claim | None = cluster.start(RetryStrategy={"MaximumRetryAttempts": 1})
    take(cluster, "algo-1", left=nodes())
    assert cluster.turn(claim, times=2) is None
    assert (cluster.job().secondary, cluster.job().retries_used) == (S.RESTARTING, 1)
    assert cluster.next_placement() is None
    cluster.engine.offered = nodes("new")
    claim = cluster.place()
    cluster.watch.forward(3)
    claim = cluster.turn(claim, times=3)
    assert cluster.agent(attempt=2).spec.node == "new"
    cluster.agent(attempt=2).end()
    assert cluster.turn(claim) is None
    assert cluster.job().status is Status.COMPLETED
    assert statuses(cluster)[3:] == ["Training", "Restarting", "Starting", "Downloading", "Training", "Completed"]
    assert any('The node "a" of algo-1 went away' in note for note in cluster.job().notes)


def test_a_job_that_waits_for_a_node_again_can_be_stopped(cluster: Bench) -> None:
    claim = cluster.start(RetryStrategy={"MaximumRetryAttempts": 1})
    take(cluster, "algo-1", left=nodes())
    cluster.turn(claim, times=2)
    cluster.stop()
    assert statuses(cluster)[-3:] == ["Restarting", "Stopping", "Stopped"]


def test_a_node_that_went_before_the_start_costs_no_retry(cluster: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create()
    claim = cluster.place()
    cluster.engine.offered = nodes("b")

    def refuse(specs: object) -> None:
        raise Unavailable("there is no such node")

    with monkeypatch.context() as patched:
        patched.setattr(cluster.engine, "start", refuse)
        assert cluster.turn(claim) is None
    assert (cluster.job().secondary, cluster.job().retries_used) == (S.RESTARTING, 0)
    claim = cluster.place()
    cluster.watch.forward(3)
    cluster.turn(claim, times=3)
    assert (cluster.job().secondary, cluster.agent(attempt=2).spec.node) == (S.TRAINING, "b")


def test_the_time_in_line_is_not_time_for_which_a_node_refused(cluster: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice a node goes between the placing and the start, and minutes pass in between."""
    cluster.create(RetryStrategy={"MaximumRetryAttempts": 1})

    def refuse(specs: object) -> None:
        raise Unavailable("there is no such node")

    for _ in range(2):
        cluster.engine.offered = nodes("a")
        claim = cluster.place()
        cluster.engine.offered = nodes()
        cluster.watch.forward(3)
        with monkeypatch.context() as patched:
            patched.setattr(cluster.engine, "start", refuse)
            assert cluster.turn(claim) is None
        assert (cluster.job().secondary, cluster.job().retries_used) == (S.RESTARTING, 0)
        cluster.watch.forward(START_TIMEOUT.total_seconds() * 5)
    cluster.engine.offered = nodes("b")
    claim = cluster.place()
    cluster.watch.forward(3)
    cluster.turn(claim, times=3)
    assert (cluster.job().secondary, cluster.agent(attempt=3).spec.node) == (S.TRAINING, "b")


def test_a_retry_that_is_refused_for_too_long_is_followed_by_the_next(
    cluster: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(RetryStrategy={"MaximumRetryAttempts": 2})

    def refuse(specs: object) -> None:
        raise Unavailable("the node does not answer")

    claim: Claim | None = cluster.place()
    with monkeypatch.context() as patched:
        patched.setattr(cluster.engine, "start", refuse)
        while cluster.job().retries_used < 2:
            cluster.watch.forward(3)
            claim = cluster.turn(claim)
            assert claim is not None, "it goes on"
    cluster.watch.forward(3)
    cluster.turn(claim, times=3)
    assert cluster.job().secondary is S.TRAINING
    assert statuses(cluster)[:4] == ["Pending", "Starting", "Restarting", "Starting"]
    assert sum("starts the job again" in note for note in cluster.job().notes) == 2


def test_a_cut_off_instance_is_lost_once_it_is_certainly_dead(cluster: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others fail at once, but only the end of its lease tells what became of the instance on a node cut off."""
    claim: Claim | None = cluster.start(**two(**spot()))
    cluster.agent(instance="algo-1").end("failed", reason="peer is gone", card={"is_consequence": True})
    end = cluster.engine.end

    def refuse(ref: AttemptRef) -> None:
        raise Unavailable("the node does not answer")

    monkeypatch.setattr(cluster.engine, "end", refuse)
    monkeypatch.setattr(cluster.engine, "command", lambda *_: None)
    claim = cluster.turn(claim)
    cluster.watch.forward(4)
    claim = cluster.turn(claim)
    cluster.watch.forward(KILL_TIMEOUT.total_seconds() + 1)
    held = cluster.work.claim()
    with pytest.raises(Unavailable):
        cluster.turn(held)
    assert cluster.job().secondary is S.TRAINING

    def prove(ref: AttemptRef) -> None:
        take(cluster, "algo-2", left=nodes("a"))
        end(ref)

    monkeypatch.setattr(cluster.engine, "end", prove)
    assert cluster.turn(held) is None
    assert (cluster.job().secondary, cluster.job().failure) == (S.INTERRUPTED, "")
