import asyncio
import errno
import json
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench
from tests.unit.server.control.profiling.profiles import COMPUTING_NS, Profiled, rule, waiting_rule
from tests.unit.server.services.sagemaker.requests import create, describe
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.objects.contract import StorageFull
from trainyard.server.control.controller import Controller
from trainyard.server.control.profiling import conclusions
from trainyard.server.control.profiling.kind import FIRST_AFTER, INTERVAL, LONGEST_WAIT
from trainyard.server.control.profiling.report_storage import ReportStorage
from trainyard.server.control.worker_process import AnswerTimeout
from trainyard.server.jobs.profile_evaluations import KIND as EVALUATION
from trainyard.server.jobs.profiled_runs import KIND as RUN
from trainyard.server.jobs.rule_actions import KIND as ACTION
from trainyard.server.jobs.rule_actions import action_of
from trainyard.server.records.contract import Query
from trainyard.testing.eventually import eventually
from trainyard.wire.fault import Fault

REPORT = "output/mnist/rule-output/report/profiler-output"
SPOT: dict[str, Any] = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
}
STOP = json.dumps([{"name": "stoptraining"}]).replace('"', '\\"')
MAIL = json.dumps([{"name": "email", "endpoint": "anna@example.com"}]).replace('"', '\\"')


def actions(profiled: Profiled) -> list[tuple[str, str]]:
    found = profiled.bench.work.records.find(Query(ACTION, parent=profiled.bench.resource().id)).resources
    return [(action_of(each).name, each.status) for each in found]


def test_a_job_is_evaluated_soon_after_its_training_began_and_then_at_intervals(profiled: Profiled) -> None:
    profiled.start(rule("report", "ProfilerReport"))
    profiled.bench.watch.forward(2)
    assert profiled.evaluate() == 0
    profiled.bench.watch.forward((FIRST_AFTER - timedelta(seconds=3)).total_seconds())
    assert profiled.evaluate() == 0
    profiled.bench.watch.forward(1)
    assert profiled.evaluate() == 1
    profiled.bench.watch.forward(INTERVAL.total_seconds() - 1)
    assert profiled.evaluate() == 0
    # What the evaluation cost is paid in time.
    profiled.bench.watch.forward(INTERVAL.total_seconds())
    assert profiled.evaluate() == 1


def test_an_evaluation_that_costs_much_makes_the_next_one_wait(
    profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = profiled.process.ask
    # The cost cannot be produced within a test.
    monkeypatch.setattr(profiled.process, "ask", lambda *asked: {**answer(*asked), "cpu_s": 9.0})
    profiled.start(rule("report", "ProfilerReport"))
    profiled.evaluate_first()
    profiled.bench.watch.forward(899)
    assert profiled.evaluate() == 0
    profiled.bench.watch.forward(1)
    assert profiled.evaluate() == 1


def test_rules_stay_in_progress_until_the_job_has_ended_and_settle_after_it(profiled: Profiled) -> None:
    claim = profiled.start(rule("report", "ProfilerReport"), waiting_rule("cpu"), rule("gpus", "LowGPUUtilization"))
    profiled.write(phases_ns=COMPUTING_NS)
    profiled.evaluate_first()
    assert profiled.statuses() == dict.fromkeys(("report", "cpu", "gpus"), "InProgress")
    profiled.end(claim)
    assert describe(profiled.bench.anna)["TrainingJobStatus"] == "Completed"
    assert profiled.statuses()["report"] == "InProgress"
    assert profiled.evaluate() == 1
    assert profiled.statuses() == dict.fromkeys(("report", "cpu", "gpus"), "NoIssuesFound")
    assert profiled.waiting == 0


def test_a_rule_that_finds_something_says_so_while_the_job_runs(profiled: Profiled) -> None:
    claim = profiled.start(waiting_rule("cpu"))
    profiled.evaluate_first()
    (told,) = describe(profiled.bench.anna)["ProfilerRuleEvaluationStatuses"]
    assert told["RuleEvaluationStatus"] == "IssuesFound"
    assert "waits for data" in told["StatusDetails"]
    assert any("Rule cpu found an issue" in note for note in profiled.bench.job().notes)
    events = [each for each in profiled.bench.work.records.events() if each.kind == "training-job.rule"]
    assert [(each.body["rule"], each.body["status"]) for each in events] == [("cpu", "IssuesFound")]
    profiled.end(claim)
    profiled.evaluate()
    assert profiled.statuses() == {"cpu": "IssuesFound"}


def test_the_report_is_on_s3_while_the_job_runs_and_belongs_to_its_owner(profiled: Profiled) -> None:
    claim = profiled.start(rule("report", "ProfilerReport"), waiting_rule("cpu"))
    profiled.evaluate_first()
    names = {each.removeprefix(f"{REPORT}/") for each in profiled.stored(REPORT)}
    assert {"profiler-report.html", "profiler-report.ipynb", "profiler-reports/CPUBottleneck.json"} <= names
    before = profiled.read(f"{REPORT}/profiler-report.html")
    assert b"mnist" in before
    own = json.loads(profiled.read("output/mnist/rule-output/cpu/profiler-output/profiler-reports/CPUBottleneck.json"))
    assert own["RuleTriggered"] == 1
    profiled.end(claim)
    profiled.evaluate()
    assert profiled.read(f"{REPORT}/profiler-report.html") != before


def test_the_files_of_the_report_do_not_stay_in_the_folder_of_the_job(profiled: Profiled) -> None:
    profiled.end(profiled.start(rule("report", "ProfilerReport")))
    profiled.bench.watch.forward(2)
    profiled.evaluate()
    folder = profiled.bench.anna.yard.compute.jobs / profiled.bench.resource().id / "profile"
    assert [each.name for each in folder.iterdir()] == ["conclusion.json"]


def test_a_rule_stops_the_job_and_its_actions_are_requested_once(profiled: Profiled) -> None:
    claim = profiled.start(waiting_rule("cpu", action_json=STOP))
    profiled.evaluate_first()
    job = profiled.bench.job()
    assert (job.status, job.stop_reason) == (Status.STOPPING, "rule")
    assert "Rule cpu stops the training job" in job.transitions[-1].message
    assert profiled.woken == [profiled.bench.resource().id]
    profiled.turn(claim)
    assert profiled.bench.job().status is Status.STOPPED
    profiled.evaluate()
    assert actions(profiled) == [("stoptraining", "Done")]
    assert profiled.statuses() == {"cpu": "IssuesFound"}


def test_a_finding_after_the_end_has_nothing_to_stop(profiled: Profiled) -> None:
    profiled.end(profiled.start(waiting_rule("cpu", action_json=STOP)))
    profiled.bench.watch.forward(2)
    profiled.evaluate()
    assert profiled.bench.job().status is Status.COMPLETED
    assert actions(profiled) == [("stoptraining", "Done")]


def test_a_dry_rule_only_reports(profiled: Profiled) -> None:
    profiled.start(waiting_rule("cpu", action_json=STOP, dry_run="true"))
    profiled.evaluate_first()
    assert profiled.bench.job().status is Status.IN_PROGRESS
    assert actions(profiled) == [("stoptraining", "DryRun")]


def test_a_yard_that_is_killed_before_it_stored_the_states_evaluates_again_and_asks_for_nothing_twice(
    profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiled.start(waiting_rule("cpu", action_json=STOP))
    profiled.bench.watch.forward(2)
    profiled.evaluate()
    profiled.bench.watch.forward(FIRST_AFTER.total_seconds())

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        # Nothing is stored any more, as after kill -9.
        patched.setattr(type(profiled.bench.work.records), "apply", die)
        with pytest.raises(KeyboardInterrupt):
            profiled.evaluate()
    assert actions(profiled) == [("stoptraining", "Done")]
    assert profiled.bench.job().status is Status.IN_PROGRESS
    profiled.kind = profiled.new_kind("another")
    profiled.bench.watch.forward(60)
    assert profiled.evaluate() == 1
    assert actions(profiled) == [("stoptraining", "Done")]
    assert profiled.bench.job().status is Status.STOPPING


def test_a_yard_that_was_killed_finds_the_jobs_that_ended_meanwhile_at_once(profiled: Profiled) -> None:
    claim = profiled.start(rule("report", "ProfilerReport"))
    profiled.evaluate_first()
    profiled.kind = profiled.new_kind("another")
    profiled.end(claim)
    assert profiled.evaluate() == 1
    assert profiled.statuses() == {"report": "IssuesFound"}


def test_a_job_that_waits_for_capacity_is_looked_at_when_it_begins_to_train(profiled: Profiled) -> None:
    profiled.bench.create(ProfilerRuleConfigurations=[rule("report", "ProfilerReport")])
    profiled.bench.watch.forward(2)
    profiled.evaluate()
    profiled.bench.watch.forward(5 * LONGEST_WAIT.total_seconds())
    profiled.evaluate()
    profiled.bench.watch.forward(1)
    profiled.bench.turn(profiled.bench.place(), times=2)
    profiled.write()
    profiled.evaluate()
    profiled.bench.watch.forward(FIRST_AFTER.total_seconds())
    assert profiled.evaluate() == 1


def test_a_job_that_was_interrupted_is_looked_at_again_soon(profiled: Profiled) -> None:
    claim = profiled.start(rule("report", "ProfilerReport"), **SPOT)
    profiled.evaluate_first()
    anna = profiled.bench.anna.at(profiled.bench.watch())
    anna("trainyard", "InterruptJob", TrainingJobName="mnist")
    profiled.turn(claim)
    assert profiled.bench.job().secondary is SecondaryStatus.INTERRUPTED
    profiled.bench.watch.forward(INTERVAL.total_seconds())
    assert profiled.evaluate() == 0
    profiled.bench.turn(profiled.bench.place(), times=2)
    profiled.bench.watch.forward(INTERVAL.total_seconds())
    assert profiled.evaluate() == 1
    (question,) = [each["profile"] for each in profiled.process.questions[-1:]]
    assert len(question["sources"]) == 2


def test_a_job_that_failed_is_evaluated_like_any_other(profiled: Profiled) -> None:
    claim = profiled.start(waiting_rule("cpu"))
    profiled.bench.agent().end("failed", reason="The program ended with exit code 1.", card={"class": "user error"})
    profiled.turn(claim)
    assert profiled.bench.job().status is Status.FAILED
    profiled.bench.watch.forward(2)
    profiled.evaluate()
    assert profiled.statuses() == {"cpu": "IssuesFound"}


def test_a_job_that_never_ran_has_nothing_to_evaluate(profiled: Profiled) -> None:
    profiled.bench.create(ProfilerRuleConfigurations=[rule("report", "ProfilerReport")])
    profiled.bench.stop()
    profiled.bench.watch.forward(2)
    assert profiled.evaluate() == 0
    assert profiled.waiting == 0
    assert profiled.statuses() == {"report": "Stopped"}


def test_a_job_without_rules_is_not_evaluated_while_it_runs(profiled: Profiled) -> None:
    profiled.bench.start()
    assert profiled.waiting == 0


def run_without_rules(profiled: Profiled, name: str, *, seconds: float = 300, **profile: Any) -> int:
    """Run a job that nobody looks at, and return how many questions its end took."""
    claim = profiled.start(name=name)
    profiled.write(name=name, **profile)
    profiled.bench.watch.forward(seconds)
    profiled.end(claim, name)
    profiled.bench.watch.forward(2)
    return profiled.evaluate()


def test_a_job_without_rules_leaves_a_summary_that_later_runs_are_compared_with(profiled: Profiled) -> None:
    assert run_without_rules(profiled, "net-1", phases_ns=COMPUTING_NS) == 1
    assert list(profiled.process.questions[-1]) == ["run"]
    run_without_rules(profiled, "net-2", phases_ns=(900_000_000, *COMPUTING_NS[1:]))
    assert profiled.waiting == 0
    described = profiled.anna("trainyard", "DescribeProfile", TrainingJobName="net-2")
    assert described["Verdict"]["regression"]["since_job"] == "net-1"
    runs = profiled.bench.work.records.find(Query(RUN)).resources
    assert len(runs) == 2


def test_short_jobs_and_jobs_without_steps_ask_nothing(profiled: Profiled) -> None:
    assert run_without_rules(profiled, "short", seconds=1) == 0
    assert run_without_rules(profiled, "stepless", steps=0) == 0
    trial = {"TRAINYARD_TRIAL_STEPS": "200"}
    claim = profiled.start(name="trial", Environment=trial)
    profiled.bench.watch.forward(300)
    profiled.end(claim, "trial")
    assert profiled.waiting == 0


def test_a_yard_that_is_killed_at_the_end_of_a_job_summarizes_it_later(
    profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = profiled.start()
    profiled.bench.watch.forward(300)
    profiled.bench.agent().end()
    apply = type(profiled.bench.work.records).apply_claimed

    def die_at_the_end(records: Any, claim: Any, change: Any, **more: Any) -> Any:
        if change.status is Status.COMPLETED:
            raise KeyboardInterrupt
        return apply(records, claim, change, **more)

    with monkeypatch.context() as patched:
        # The end is not stored, as after kill -9.
        patched.setattr(type(profiled.bench.work.records), "apply_claimed", die_at_the_end)
        with pytest.raises(KeyboardInterrupt):
            profiled.turn(claim)
    assert not profiled.bench.job().is_final
    profiled.kind = profiled.new_kind("another")
    profiled.bench.watch.forward(60)
    assert profiled.evaluate() == 0
    profiled.turn(claim)
    assert profiled.bench.job().is_final
    assert profiled.evaluate() == 1
    assert len(profiled.bench.work.records.find(Query(RUN)).resources) == 1


def test_a_summary_that_fails_is_tried_again_and_then_given_up(profiled: Profiled) -> None:
    profiled.process.failures = [Unavailable("It died.")] * 3
    assert run_without_rules(profiled, "mnist") == 1
    for _ in range(2):
        assert profiled.waiting == 1
        profiled.bench.watch.forward(60)
        profiled.evaluate()
    assert profiled.waiting == 0
    assert profiled.bench.job().status is Status.COMPLETED


def test_a_job_that_gets_rules_while_it_runs_is_evaluated(profiled: Profiled) -> None:
    profiled.bench.start()
    profiled.write()
    anna = profiled.bench.anna.at(profiled.bench.watch())
    given = [rule("report", "ProfilerReport")]
    anna("sagemaker", "UpdateTrainingJob", TrainingJobName="mnist", ProfilerRuleConfigurations=given)
    assert profiled.waiting == 1
    assert profiled.evaluate_first() == 1


def test_the_evaluation_of_a_job_that_was_not_created_or_is_deleted_goes_away(profiled: Profiled) -> None:
    bench = profiled.bench
    bench.create(ProfilerRuleConfigurations=[rule("report", "ProfilerReport")])
    with pytest.raises(Fault):
        create(bench.anna, ProfilerRuleConfigurations=[rule("report", "ProfilerReport")])
    assert profiled.waiting == 1
    bench.work.records.delete(bench.resource(), now=bench.watch())
    bench.watch.forward(2)
    profiled.evaluate()
    # The job might have been about to be stored.
    assert profiled.waiting == 1
    bench.watch.forward(100)
    profiled.evaluate()
    assert profiled.waiting == 0


def test_a_process_that_dies_is_asked_again_later_and_after_the_end_the_rules_become_errors(profiled: Profiled) -> None:
    claim = profiled.start(rule("report", "ProfilerReport"))
    profiled.process.failures = [AnswerTimeout("It took too long."), Unavailable("It died."), Unavailable("Again.")]
    profiled.evaluate_first()
    assert profiled.statuses() == {"report": "InProgress"}
    profiled.end(claim)
    profiled.evaluate()
    assert profiled.statuses() == {"report": "InProgress"}
    profiled.bench.watch.forward(60)
    profiled.evaluate()
    (told,) = describe(profiled.bench.anna)["ProfilerRuleEvaluationStatuses"]
    assert (told["RuleEvaluationStatus"], told["StatusDetails"]) == ("Error", "Again.")
    assert profiled.waiting == 0


def test_a_full_disk_is_no_reason_to_evaluate_again_at_once(
    profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = profiled.start(rule("report", "ProfilerReport"))

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    # A test cannot fill a disk in the middle of a step.
    monkeypatch.setattr(ReportStorage, "store", fail)
    assert profiled.evaluate_first() == 1
    profiled.bench.watch.forward(INTERVAL.total_seconds() - 1)
    assert profiled.evaluate() == 0
    profiled.end(claim)
    for _ in range(3):
        profiled.evaluate()
        profiled.bench.watch.forward(60)
    (told,) = describe(profiled.bench.anna)["ProfilerRuleEvaluationStatuses"]
    assert (told["RuleEvaluationStatus"], profiled.waiting) == ("Error", 0)
    assert "No space left on device" in told["StatusDetails"]


def test_a_yard_without_the_packages_says_which_ones_to_install(
    profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiled.end(profiled.start(rule("report", "ProfilerReport")))
    # They cannot be uninstalled for a test.
    monkeypatch.setattr(conclusions, "missing_module", lambda _: "msgspec")
    profiled.bench.watch.forward(2)
    profiled.evaluate()
    (told,) = describe(profiled.bench.anna)["ProfilerRuleEvaluationStatuses"]
    assert told["RuleEvaluationStatus"] == "Error"
    assert "pip install 'trainyard[profiler]'" in told["StatusDetails"]


def test_a_full_quota_is_an_error_of_the_rule_and_of_nothing_else(profiled: Profiled) -> None:
    profiled.end(profiled.start(rule("report", "ProfilerReport"), waiting_rule("cpu")))
    profiled.write(phases_ns=COMPUTING_NS)
    objects = profiled.bench.anna.yard.objects
    assert hasattr(objects, "set_limit"), "this store has quotas"
    objects.set_limit(profiled.bench.anna.account, 1)
    profiled.bench.watch.forward(2)
    profiled.evaluate()
    assert describe(profiled.bench.anna)["TrainingJobStatus"] == "Completed"
    told = describe(profiled.bench.anna)["ProfilerRuleEvaluationStatuses"]
    assert [each["RuleEvaluationStatus"] for each in told] == ["Error", "Error"]
    assert "could not be stored" in told[0]["StatusDetails"]
    assert StorageFull.__name__ not in told[0]["StatusDetails"]


def test_a_later_run_of_the_same_job_is_compared_with_earlier_ones(profiled: Profiled) -> None:
    profiled.end(profiled.start(rule("report", "ProfilerReport"), name="net-1"), "net-1")
    profiled.bench.watch.forward(100)
    profiled.evaluate()
    claim = profiled.start(rule("report", "ProfilerReport"), name="net-2")
    profiled.write(name="net-2", phases_ns=(900_000_000, *COMPUTING_NS[1:]))
    profiled.bench.watch.forward(300)
    profiled.end(claim, "net-2")
    profiled.evaluate()
    described = profiled.anna("trainyard", "DescribeProfile", TrainingJobName="net-2")
    assert described["Verdict"]["regression"]["since_job"] == "net-1"


def test_the_evaluations_are_driven_until_the_yard_closes(profiled: Profiled) -> None:
    profiled.end(profiled.start(rule("report", "ProfilerReport")))
    profiled.bench.watch.forward(2)

    async def drive() -> None:
        controller = Controller(profiled.kind)
        running = asyncio.create_task(controller.run())
        await asyncio.to_thread(eventually, lambda: profiled.waiting == 0)
        controller.close()
        await running

    asyncio.run(drive())
    assert profiled.statuses() == {"report": "IssuesFound"}


def test_a_look_at_jobs_that_wait_reads_none_of_them(bench: Bench, profiled: Profiled) -> None:
    for number in range(3):
        bench.create(f"job-{number}", ProfilerRuleConfigurations=[rule("report", "ProfilerReport")])
    bench.watch.forward(2)
    profiled.evaluate()
    bench.watch.forward(5)
    assert list(profiled.kind.claim_due()) == []
    assert bench.work.records.first_due(EVALUATION, now=bench.watch()) is None
