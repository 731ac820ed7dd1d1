"""A job whose instances were lost is tried again, when it asked for that."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench
from tests.unit.server.services.sagemaker.requests import describe
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.link.contract import FrameKind
from trainyard.server.control.instances.work import LEASE, START_TIMEOUT
from trainyard.server.identity import InvalidCredential
from trainyard.server.metric_series import MetricId
from trainyard.server.records.contract import Claim, Query
from trainyard.testing.engines import complete, fail, run, vanish


def retries(count: int, **changed: Any) -> dict[str, Any]:
    return {"RetryStrategy": {"MaximumRetryAttempts": count}, **changed}


def go_on(bench: Bench, claim: Claim | None, *, times: int = 3) -> Claim | None:
    """The rounds after the pause that is made before another try."""
    bench.watch.forward(3)
    return bench.turn(claim, times=times)


def lose(bench: Bench, claim: Claim, *, attempt: int = 1) -> Claim | None:
    bench.agent(attempt=attempt).die()
    return bench.turn(claim)


def test_a_lost_job_starts_again_and_completes(bench: Bench) -> None:
    claim = lose(bench, bench.start(**retries(2)))
    assert bench.job().secondary is SecondaryStatus.RESTARTING
    claim = go_on(bench, claim)
    assert bench.job().secondary is SecondaryStatus.TRAINING
    bench.agent(attempt=2).end()
    assert bench.turn(claim) is None
    told = [step.status for step in bench.job().transitions]
    assert told == [
        *("Pending", "Starting", "Downloading", "Training", "Restarting"),
        *("Starting", "Downloading", "Training", "Completed"),
    ]
    assert "FailureReason" not in describe(bench.anna)
    assert describe(bench.anna)["RetryStrategy"] == {"MaximumRetryAttempts": 2}


def test_the_last_attempt_is_dead_and_its_credentials_are_worthless_before_the_next_exists(bench: Bench) -> None:
    claim = bench.start(**retries(1))
    variables = bench.agent().spec.environment
    lose(bench, claim)
    assert not bench.agent().is_alive
    assert not bench.agent(attempt=2).folder.root.exists()
    with pytest.raises(InvalidCredential):
        bench.work.identities.resolve(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SESSION_TOKEN"], now=bench.watch())


def test_an_attempt_that_cannot_be_proven_dead_is_not_followed_by_another(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = bench.start(**retries(1))
    bench.agent().die()

    def refuse(ref: object) -> None:
        raise Unavailable("something of it still runs")

    monkeypatch.setattr(bench.engine, "end", refuse)
    with pytest.raises(Unavailable):
        bench.turn(claim)
    assert len(bench.job().attempts) == 1


def test_retries_come_to_an_end_with_the_reason_of_the_last(bench: Bench) -> None:
    bench.engine.role = vanish
    bench.create(**retries(2))
    claim = bench.turn(bench.place(), times=2)
    for _ in range(3):
        claim = go_on(bench, claim)
    job = bench.job()
    assert claim is None
    assert (job.status, len(job.attempts)) == (Status.FAILED, 3)
    assert job.failure.startswith("InternalServerError")
    assert [note.split(".")[1] for note in job.notes if note.startswith("Attempt")] == [
        " Retry 1 of 2 starts the job again",
        " Retry 2 of 2 starts the job again",
    ]
    told = [event.body["text"] for event in bench.work.records.events() if event.kind == "training-job.note"]
    assert sum("starts the job again" in text for text in told) == 2


def test_a_failure_of_the_program_ends_the_job_at_once(bench: Bench) -> None:
    bench.engine.role = fail
    bench.create(**retries(30))
    assert bench.turn(bench.place(), times=3) is None
    assert (bench.job().status, len(bench.job().attempts)) == (Status.FAILED, 1)


def test_a_stop_ends_a_job_that_is_about_to_be_tried_again(bench: Bench) -> None:
    claim = lose(bench, bench.start(**retries(1)))
    bench.stop()
    assert go_on(bench, claim) is None
    assert bench.job().status is Status.STOPPED
    assert not bench.agent(attempt=2).folder.root.exists()


def test_a_stop_that_came_first_leaves_no_credentials_of_an_attempt_that_never_was(bench: Bench) -> None:
    claim = bench.start(**retries(1))
    bench.agent().die()
    bench.stop()  # after the controller loaded the job
    before = set(_keys(bench))
    held = bench.work.step(claim)
    assert bench.job().status is Status.STOPPING
    assert set(_keys(bench)) < before  # that of the attempt that is dead is gone, and no other came
    assert bench.turn(held) is None
    assert bench.job().status is Status.FAILED


def test_a_kill_after_the_last_attempt_was_ended_tries_again_once(bench: Bench) -> None:
    bench.start(**retries(3))
    bench.agent().die()
    bench.watch.forward(LEASE.total_seconds())
    other = bench.another_worker()
    claim = other.claim()
    assert claim is not None
    other.step(claim)  # and is killed
    bench.watch.forward(LEASE.total_seconds())
    held = bench.work.claim()
    bench.turn(held, times=3)
    assert [attempt.number for attempt in bench.job().attempts] == [1, 2]
    assert bench.job().secondary is SecondaryStatus.TRAINING


def test_a_peer_that_failed_because_another_was_lost_does_not_keep_the_job_from_its_retry(bench: Bench) -> None:
    two = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    claim = bench.start(**retries(1, ResourceConfig=two))
    bench.agent(instance="algo-2").die()
    bench.agent(instance="algo-1").end("failed", reason="connection reset", card={"kind": "user error"})
    bench.turn(claim, times=2)
    assert bench.job().secondary is SecondaryStatus.RESTARTING


def test_each_attempt_has_log_streams_of_its_own_also_within_a_second(bench: Bench) -> None:
    claim = lose(bench, bench.start(**retries(1)))
    go_on(bench, claim)
    streams = bench.work.records.find(Query("log-stream", account=bench.anna.account)).resources
    epoch = int(bench.job().attempts[0].placed_at.timestamp())
    assert sorted(stream.key.name for stream in streams) == [
        f"/aws/sagemaker/TrainingJobs:mnist/algo-1-{second}" for second in (epoch, epoch + 1)
    ]


def test_metrics_of_all_attempts_are_one_series(bench: Bench) -> None:
    claim: Claim | None = bench.start(**retries(1))
    bench.agent().report(FrameKind.METRIC, name="loss", value=0.5, at_us=1, count=7)
    claim = bench.turn(claim)
    assert claim is not None
    claim = go_on(bench, lose(bench, claim))
    assert bench.job().metrics["loss"].value == 0.5
    bench.agent(attempt=2).report(FrameKind.METRIC, name="loss", value=0.25, at_us=2, count=1)
    bench.turn(claim)
    assert (bench.job().metrics["loss"].value, bench.job().metrics["loss"].count) == (0.25, 8)
    metric = MetricId("/aws/sagemaker/TrainingJobs", "loss", (("TrainingJobName", "mnist"),))
    known = bench.work.records.find(Query("metric", name=metric.record_name)).resources[0]
    folders = [(bench.anna.yard.metrics / folder).resolve() for folder in known.body["folders"]]
    assert folders == [bench.agent(attempt=number).folder.metrics.resolve() for number in (1, 2)]


def test_the_time_of_all_attempts_is_billed_and_limited(bench: Bench) -> None:
    claim: Claim | None = bench.start(**retries(1, StoppingCondition={"MaxRuntimeInSeconds": 100}))
    bench.watch.forward(3)
    claim = lose(bench, bench.work.records.renew(claim, lease=LEASE, now=bench.watch()) or claim)  # type: ignore[arg-type]
    claim = go_on(bench, claim)
    assert bench.agent(attempt=2).spec.max_runtime_s == 97
    bench.watch.forward(2)
    bench.agent(attempt=2).end()
    assert bench.turn(claim) is None
    told = describe(bench.anna)
    assert (told["TrainingTimeInSeconds"], told["BillableTimeInSeconds"]) == (5, 5)
    assert (told["TrainingEndTime"] - told["TrainingStartTime"]) == timedelta(seconds=8)


def test_a_machine_that_refuses_for_too_long_counts_as_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(specs: object) -> None:
        raise Unavailable("no more processes")

    bench.create(**retries(1))
    start = bench.engine.start
    monkeypatch.setattr(bench.engine, "start", refuse)
    claim = bench.turn(bench.place())
    for _ in range(int(START_TIMEOUT / timedelta(seconds=3)) + 1):
        claim = go_on(bench, claim, times=1)
    assert bench.job().secondary is SecondaryStatus.RESTARTING
    monkeypatch.setattr(bench.engine, "start", start)
    bench.engine.role = complete
    assert go_on(bench, claim, times=3) is None
    assert bench.job().status is Status.COMPLETED


def test_a_job_that_is_tried_again_keeps_its_place(bench: Bench) -> None:
    claim = lose(bench, bench.start("mnist", **retries(1)))
    before = bench.work.scheduler.read_allocations()
    bench.create("other")
    assert bench.work.scheduler.read_allocations() == before
    bench.engine.role = run
    go_on(bench, claim)
    assert list(bench.work.scheduler.read_allocations()) == list(before)


def _keys(bench: Bench) -> list[str]:
    rows = bench.work.records.export()
    return [str(row["id"]) for table, row in rows if table == "access_keys"]
