from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, with_changes
from tests.unit.server.services.sagemaker.requests import channel, describe
from trainyard.engines.contract import AttemptRef, InstanceRef, SpoolRead
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.jobs.attempts import OutcomeKind
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.foundation.locations import BucketRef
from trainyard.link.contract import CommandKind, FrameKind
from trainyard.link.mailbox import Mailbox
from trainyard.server.control.instances.work import KILL_TIMEOUT, LEASE, START_TIMEOUT
from trainyard.server.identity import InvalidCredential
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import Query, QueueState
from trainyard.testing.engines import complete, fail, vanish


def two_instances(**changed: Any) -> dict[str, Any]:
    return {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}, **changed}


def secondaries(bench: Bench, name: str = "mnist") -> list[str]:
    return [step.status for step in bench.job(name).transitions]


def test_a_job_goes_through_all_statuses_to_its_end(bench: Bench) -> None:
    bench.engine.role = complete
    bench.create()
    assert bench.turn(bench.place(), times=5) is None
    assert secondaries(bench) == ["Pending", "Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert bench.resource().status == "Completed"
    assert all(step.ended_at is not None for step in bench.job().transitions)


def test_an_ended_job_is_never_due_again(bench: Bench) -> None:
    bench.engine.role = complete
    bench.create()
    bench.turn(bench.place(), times=5)
    bench.watch.forward(3600)
    assert bench.work.claim() is None
    assert bench.next_placement() is None
    assert bench.work.scheduler.read_allocations() == {}


def test_an_attempt_is_remembered_before_anything_of_it_exists(bench: Bench) -> None:
    job = bench.create()
    bench.place()
    assert bench.job().secondary is SecondaryStatus.STARTING
    assert not bench.agent().folder.root.exists()
    assert list(bench.work.scheduler.read_allocations()) == [job.id]


def test_a_strict_yard_fails_a_job_that_it_would_have_refused_had_it_reached_its_engine(bench: Bench) -> None:
    large = {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1}
    bench.create("large", ResourceConfig=large)
    strict = replace(bench.work, is_strict=True)
    placement = bench.next_placement()
    assert placement is not None
    assert strict.place(placement) is None
    told = describe(bench.anna, "large")
    assert told["TrainingJobStatus"] == "Failed"
    assert "Each ml.p5.48xlarge gets" in told["FailureReason"]
    assert "This yard is strict" in told["FailureReason"]
    bench.create("small")
    placement = bench.next_placement()
    assert placement is not None
    assert strict.place(placement) is not None


def test_a_program_gets_credentials_that_are_worthless_after_its_end(bench: Bench) -> None:
    claim = bench.start()
    variables = bench.agent().spec.environment
    key, token = variables["AWS_ACCESS_KEY_ID"], variables["AWS_SESSION_TOKEN"]
    caller = bench.work.identities.resolve(key, token, now=bench.watch()).caller
    assert (caller.account, caller.session, caller.is_admin) == (bench.anna.account, "mnist", False)
    bench.agent().end()
    bench.turn(claim, times=2)
    with pytest.raises(InvalidCredential):
        bench.work.identities.resolve(key, token, now=bench.watch())


def test_the_spec_tells_an_instance_what_the_request_asked_for(bench: Bench) -> None:
    bench.start(Environment={"COLOUR": "blue"})
    spec = bench.agent().spec
    assert spec.program.entry_point == "train.py"
    assert spec.program.submit_directory == "s3://data/code/sourcedir.tar.gz"
    assert spec.hyperparameters["epochs"] == "3"
    assert spec.environment["COLOUR"] == "blue"
    assert spec.environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4780"
    assert [(each.name, each.bucket, each.prefix, list(each.keys)) for each in spec.channels] == [
        ("train", "data", "train/", ["train/1.csv", "train/2.csv", "train/3.csv"])
    ]
    assert spec.max_runtime_s == 3600
    assert spec.limits.cpus == 2


def test_frames_count_once_whoever_reads_them(bench: Bench) -> None:
    claim = bench.start()
    bench.agent().report(FrameKind.METRIC, name="loss", value=0.5, at_us=1, count=7)
    held = bench.work.step(claim)
    assert held is not None
    cursor = bench.job().attempts[-1].instances[0].cursor
    assert cursor == bench.agent().folder.spool.stat().st_size
    assert bench.work.step(held) is held
    assert bench.job().metrics["loss"].count == 7


def test_a_yard_that_was_killed_is_taken_over_when_its_lease_is_over(bench: Bench) -> None:
    bench.start()
    other = bench.another_worker()
    assert other.claim() is None
    bench.watch.forward(LEASE.total_seconds())
    claim = other.claim()
    assert claim is not None
    bench.agent().end()
    assert other.step(claim) is None
    assert bench.job().status is Status.COMPLETED
    assert len(bench.job().attempts) == 1


def test_a_yard_that_lost_the_lease_changes_nothing(bench: Bench) -> None:
    claim = bench.start()
    bench.watch.forward(LEASE.total_seconds())
    bench.another_worker().claim()
    bench.agent().end()
    before = bench.resource()
    assert bench.work.step(claim) is None
    assert bench.resource() == before


@pytest.mark.parametrize("has_started", [False, True])
def test_a_kill_between_placing_and_remembering_the_start_starts_nothing_twice(bench: Bench, has_started: bool) -> None:
    job = bench.create()
    placed = bench.place()
    if has_started:  # and died before it could remember
        bench.engine.start(bench.work._make_specs(AttemptRef(job.id, 1), bench.job()))
        bench.agent().report(FrameKind.NOTE, text="I am the first.")
    assert placed.resource.id == job.id
    bench.watch.forward(LEASE.total_seconds())
    claim = bench.another_worker().claim()
    bench.turn(claim, times=2)
    assert bench.job().secondary is SecondaryStatus.TRAINING
    assert bench.job().notes.count("I am the first.") == has_started
    assert len(list((bench.agent().folder.root.parent.parent).iterdir())) == 1


def test_a_job_that_ends_while_it_is_looked_at_is_not_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = bench.start()
    reports = bench.engine.reports

    def end_after_reading(instance: InstanceRef, offset: int) -> SpoolRead:
        read = reports(instance, offset)
        if not read.frames and bench.agent().is_alive:
            bench.agent().end()
        return read

    monkeypatch.setattr(bench.engine, "reports", end_after_reading)
    assert bench.turn(claim, times=3) is None
    assert bench.job().secondary is SecondaryStatus.COMPLETED, bench.job().failure


def test_an_agent_that_died_without_its_last_word_fails_the_job_with_a_reason(bench: Bench) -> None:
    bench.engine.role = vanish
    bench.create()
    assert bench.turn(bench.place(), times=3) is None
    job = bench.job()
    assert job.status is Status.FAILED
    assert "The agent of algo-1 died" in job.failure
    assert job.attempts[-1].instances[0].outcome is OutcomeKind.LOST


def test_the_last_frames_of_a_dead_agent_are_read(bench: Bench) -> None:
    claim = bench.start()
    bench.agent().report(FrameKind.METRIC, name="loss", value=0.25, at_us=2, count=1)
    bench.agent().end("failed", reason="ValueError: bad batch", card={"class": "user error"})
    assert bench.turn(claim) is None
    job = bench.job()
    assert (job.status, job.failure, job.card["class"]) == (Status.FAILED, "ValueError: bad batch", "user error")
    assert job.metrics["loss"].value == 0.25


def test_a_stop_reaches_the_instances_and_ends_in_stopped(bench: Bench) -> None:
    claim = bench.start()
    bench.stop()
    assert bench.job().status is Status.STOPPING
    assert bench.turn(claim, times=2) is None
    assert [command.kind for command in Mailbox(bench.agent().folder.mailbox).read(0)] == [CommandKind.STOP]
    assert secondaries(bench)[-2:] == ["Stopping", "Stopped"]


def update_profiler(bench: Bench, **config: Any) -> None:
    bench.anna.at(bench.watch())("sagemaker", "UpdateTrainingJob", TrainingJobName="mnist", ProfilerConfig=config)


def profiler_commands(bench: Bench, instance: str = "algo-1") -> list[Mapping[str, Any]]:
    commands = Mailbox(bench.agent(instance=instance).folder.mailbox).read(0)
    assert {command.kind for command in commands} <= {CommandKind.PROFILE}
    return [command.payload for command in commands]


def test_running_instances_are_sent_how_to_profile_once_that_has_changed(bench: Bench) -> None:
    claim = bench.start(**two_instances())
    bench.turn(claim, times=2)
    assert profiler_commands(bench) == []
    windows = {"DetailedProfilingConfig": '{"StartStep": 9}'}
    update_profiler(bench, ProfilingIntervalInMilliseconds=100, ProfilingParameters=windows)
    bench.turn(claim, times=2)
    expected = {
        "is_enabled": True,
        "interval_ms": 100,
        "is_exported": False,
        "uri": "s3://data/output/mnist/profiler-output",
        "parameters": windows,
    }
    assert profiler_commands(bench) == profiler_commands(bench, "algo-2") == [expected]
    update_profiler(bench, DisableProfiler=True)
    bench.turn(claim, times=2)
    assert profiler_commands(bench)[1:] == [expected | {"is_enabled": False}]
    assert bench.job().status is Status.IN_PROGRESS


def test_a_yard_that_is_killed_before_it_stores_what_it_sent_sends_it_again(bench: Bench) -> None:
    claim = bench.start()
    update_profiler(bench, ProfilingIntervalInMilliseconds=100)
    ref = AttemptRef(bench.resource().id, 1)
    sent = bench.work.send_changes(ref, bench.job())
    assert sent.attempts[0].profiler_version == 1
    bench.turn(claim, times=2)
    first, second = profiler_commands(bench)
    assert first == second


def test_an_attempt_that_starts_after_an_update_profiles_by_it(bench: Bench) -> None:
    bench.create()
    update_profiler(bench, ProfilingIntervalInMilliseconds=100)
    bench.turn(bench.place(), times=3)
    spec = bench.agent().spec
    assert spec.profiler is not None
    assert spec.profiler.interval_ms == 100
    assert all(payload["interval_ms"] == 100 for payload in profiler_commands(bench))


def test_a_stop_wins_over_an_apply_that_did_not_know_of_it(bench: Bench) -> None:
    claim = bench.start()
    bench.agent().end()
    bench.stop()  # after the controller loaded the job
    held = bench.work.step(claim)
    assert held is not None
    assert bench.job().status is Status.STOPPING
    assert bench.work.step(held) is None
    assert secondaries(bench)[-2:] == ["Stopping", "Stopped"]


def test_a_job_whose_worker_was_killed_before_it_was_placed_is_found_again(bench: Bench) -> None:
    job = bench.create()
    records, state = bench.work.records, QueueState.WAITING
    assert records.claim_next(KIND, worker="killed", lease=LEASE, now=bench.watch(), state=state) is not None
    assert bench.next_placement() is None
    bench.watch.forward(60)
    assert bench.another_worker().claim() is None  # which looks for such
    assert [placement.id for placement in bench.another_worker().scheduler.next_placements({})] == [job.id]


def test_a_job_that_waits_is_stopped_at_once(bench: Bench) -> None:
    bench.create()
    bench.stop()
    assert secondaries(bench) == ["Pending", "Stopping", "Stopped"]
    assert bench.next_placement() is None


def test_a_stop_just_before_the_placing_starts_nothing(bench: Bench) -> None:
    bench.create()
    placement = bench.next_placement()
    assert placement is not None
    bench.stop()
    assert bench.work.place(placement) is None
    assert bench.job().attempts == ()
    assert bench.job().status is Status.STOPPED


def test_a_stop_of_a_placed_job_that_never_started_starts_nothing(bench: Bench) -> None:
    bench.create()
    claim = bench.place()
    bench.stop()
    assert bench.turn(claim) is None
    assert bench.job().status is Status.STOPPED
    assert not bench.agent().folder.root.exists()


def test_a_job_completes_when_all_its_instances_have(bench: Bench) -> None:
    claim: Any = bench.start(**two_instances())
    bench.agent(instance="algo-1").end()
    claim = bench.turn(claim)
    assert bench.job().secondary is SecondaryStatus.TRAINING
    bench.agent(instance="algo-2").end()
    assert bench.turn(claim) is None
    assert bench.job().status is Status.COMPLETED


def test_the_first_instance_that_fails_fails_the_job_and_ends_the_others(bench: Bench) -> None:
    claim = bench.start(**two_instances())
    bench.agent(instance="algo-2").end("failed", reason="algo-2 ran out of memory")
    assert bench.turn(claim, times=2) is None
    job = bench.job()
    assert (job.status, job.failure) == (Status.FAILED, "algo-2 ran out of memory")
    assert not bench.agent(instance="algo-1").is_alive
    assert [command.kind for command in Mailbox(bench.agent().folder.mailbox).read(0)] == [CommandKind.KILL]


def test_instances_that_do_not_end_beside_a_failed_one_are_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = bench.start(**two_instances())
    agent = bench.agent(instance="algo-2")
    agent.end("failed", reason="boom")
    # This agent is deaf: the command lies in its mailbox, and nothing happens.
    monkeypatch.setattr(
        bench.engine, "command", lambda ref, kind, payload: Mailbox(bench.agent().folder.mailbox).put(kind, payload)
    )
    held = bench.turn(claim, times=2)
    assert held is not None
    assert bench.agent(instance="algo-1").is_alive
    bench.watch.forward(KILL_TIMEOUT.total_seconds() + 1)
    held = bench.work.claim()
    assert bench.turn(held) is None
    assert not bench.agent(instance="algo-1").is_alive
    assert bench.job().status is Status.FAILED


def test_a_time_limit_is_distinguished_from_a_stop(bench: Bench) -> None:
    claim = bench.start()
    bench.agent().end("stopped", reason="max_runtime")
    bench.turn(claim)
    assert (bench.job().secondary, bench.job().status) == (SecondaryStatus.MAX_RUNTIME_EXCEEDED, Status.STOPPED)


def test_sharded_channels_give_each_instance_its_part(bench: Bench) -> None:
    sharded = channel("train", "s3://data/train", S3DataDistributionType="ShardedByS3Key")
    bench.start(**two_instances(InputDataConfig=[sharded]))
    first, second = (bench.agent(instance=name).spec.channels[0].keys for name in ("algo-1", "algo-2"))
    assert sorted([*first, *second]) == ["train/1.csv", "train/2.csv", "train/3.csv"]
    assert len(first) == 2


def test_only_the_first_instance_uploads_the_model(bench: Bench) -> None:
    bench.start(**two_instances())
    assert [bench.agent(instance=name).spec.uploads for name in ("algo-1", "algo-2")] == [True, False]


def test_jobs_start_in_the_order_they_came_and_nobody_overtakes(bench: Bench) -> None:
    first = bench.start("first")
    bench.watch.forward(0.1)
    bench.create("wide", **two_instances())
    bench.watch.forward(0.1)
    bench.create("narrow")
    assert bench.next_placement() is None
    bench.agent("first").end()
    assert bench.turn(first) is None
    assert bench.next_placement() is not None
    assert bench.place().resource.key.name == "wide"


def test_a_job_larger_than_the_machine_runs_alone(bench: Bench) -> None:
    large = {"ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 3, "VolumeSizeInGB": 1}}
    bench.start("huge", **large)
    assert [bench.agent("huge", name).is_alive for name in ("algo-1", "algo-2", "algo-3")] == [True] * 3
    bench.create("next")
    assert bench.next_placement() is None
    assert any("p4d.24xlarge" in note for note in bench.job("huge").notes)


def test_data_that_is_gone_at_the_start_fails_the_job_with_its_name(bench: Bench) -> None:
    bench.create()
    bucket = BucketRef(bench.anna.account, "data")
    bench.anna.yard.objects.delete_many(bucket, ["train/1.csv", "train/2.csv", "train/3.csv"])
    assert bench.turn(bench.place()) is None
    assert "train/" in bench.job().failure
    assert bench.job().status is Status.FAILED


def test_a_machine_that_refuses_for_now_is_asked_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.create()
    start = bench.engine.start
    monkeypatch.setattr(bench.engine, "start", refuse)
    claim = bench.turn(bench.place())
    assert [attempt.number for attempt in bench.job().attempts] == [1, 2]
    assert bench.turn(claim, times=3) is not None
    assert len(bench.job().attempts) == 2
    monkeypatch.setattr(bench.engine, "start", start)
    bench.watch.forward(3)
    bench.turn(claim, times=3)
    assert bench.job().secondary is SecondaryStatus.TRAINING
    assert bench.agent(attempt=2).is_alive


def test_a_machine_that_keeps_refusing_fails_the_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.create()
    monkeypatch.setattr(bench.engine, "start", refuse)
    claim = bench.turn(bench.place())
    for _ in range(int(START_TIMEOUT / timedelta(seconds=3)) + 1):
        bench.watch.forward(3)
        claim = bench.turn(claim)
    assert bench.job().status is Status.FAILED
    assert bench.job().failure == "no more processes"


def test_each_instance_has_a_log_stream_in_its_folder(bench: Bench) -> None:
    bench.start(**two_instances())
    streams = bench.work.records.find(Query("log-stream", account=bench.anna.account)).resources
    names = sorted(stream.key.name for stream in streams)
    epoch = int(bench.watch().timestamp())
    assert names == [f"/aws/sagemaker/TrainingJobs:mnist/algo-{number}-{epoch}" for number in (1, 2)]
    assert {(bench.anna.yard.logs / stream.body["folder"]).resolve() for stream in streams} == {
        bench.agent(instance=f"algo-{number}").folder.logs.resolve() for number in (1, 2)
    }


def test_times_are_those_of_the_instances(bench: Bench) -> None:
    bench.start()
    started = bench.watch()
    bench.watch.forward(10)
    bench.agent().end()
    bench.watch.forward(3600)  # nobody looks for an hour
    held = bench.work.claim()
    assert bench.turn(held) is None
    told = describe(bench.anna)
    assert told["TrainingStartTime"] == started
    assert told["TrainingEndTime"] == started + timedelta(seconds=10)
    assert told["TrainingTimeInSeconds"] == told["BillableTimeInSeconds"] == 10


def test_every_change_of_status_is_an_event(bench: Bench) -> None:
    bench.engine.role = fail
    bench.create()
    bench.turn(bench.place(), times=3)
    told = [event.body["status"] for event in bench.work.records.events() if event.kind == "training-job.status"]
    assert told == ["Starting", "Downloading", "Training", "Failed"]


def test_a_root_yard_gives_each_account_a_uid_of_its_own(bench: Bench) -> None:
    bench.work = replace(bench.work, runs_as_root=True)
    bench.start()
    uid = bench.agent().spec.uid
    assert uid is not None
    assert uid > 1_000_000


def refuse(specs: object) -> None:
    raise Unavailable("no more processes")


def test_a_job_waits_for_the_yard_that_has_its_data(bench: Bench) -> None:
    of_a_yard_alone = bench.create("first")  # which may have got a name since
    far = replace(bench.anna.yard, compute=replace(bench.anna.yard.compute, site="far"))
    bench.watch.forward(1)
    theirs = bench.create("theirs", by=replace(bench.anna, yard=far))

    def offered(site: str) -> list[str]:
        return [placement.id for placement in with_changes(bench.work, site=site).scheduler.next_placements({})]

    assert offered("far") == offered("another") == [of_a_yard_alone.id]
    bench.stop("first")
    assert (offered("far"), offered("another"), offered("")) == ([theirs.id], [], [])


def test_a_job_of_another_yard_is_left_alone(bench: Bench) -> None:
    bench.create()
    bench.work.release(bench.place())
    assert with_changes(bench.work, site="another").claim() is None
    assert bench.work.claim() is not None
