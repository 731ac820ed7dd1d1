import re
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench
from tests.unit.server.services.sagemaker.requests import describe
from tests.unit.server.services.sagemaker.rules import actions, judged, rule
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.link.contract import CommandKind, FrameKind, RuleSpec, SyncSpec
from trainyard.link.mailbox import Mailbox
from trainyard.server.control.actions.triggers import request_actions
from trainyard.server.jobs.rule_actions import KIND, RuleAction, action_of
from trainyard.server.records.contract import Query
from trainyard.testing.engines import SimulatedAgent

FINDING = {
    "step": 7,
    "mode": "TRAIN",
    "worker": "worker_0",
    "tensor": "fc.weight",
    "message": "It vanishes.",
    "value": 0.0,
}
TWO = {"InstanceType": "local", "InstanceCount": 2, "VolumeSizeInGB": 1}


def find(agent: SimulatedAgent, status: str = "IssuesFound", **changed: Any) -> None:
    told = {"details": "It vanishes.", "finding": FINDING, "judged": 8, "dropped": 0, **changed}
    agent.report(FrameKind.RULE, rule="VanishingGradient", status=status, **told)


def asked(bench: Bench) -> list[tuple[str, RuleAction]]:
    found = bench.work.records.find(Query(KIND, parent=bench.resource().id)).resources
    return [(each.status, action_of(each)) for each in found]


def stopping(**changed: str) -> dict[str, Any]:
    return judged(rule(action_json=actions({"name": "stoptraining", "training_job_prefix": "mnist"}), **changed))


def test_every_spec_says_what_to_capture_and_which_rules_evaluate_it(bench: Bench) -> None:
    bench.start(**stopping(threshold="1e-6"), ResourceConfig=TWO)
    for instance in ("algo-1", "algo-2"):
        debugger = bench.agent(instance=instance).spec.debugger
        assert debugger is not None
        assert debugger.tensors == SyncSpec("s3://data/debug/mnist/debug-output", "/opt/ml/output/tensors")
        assert debugger.hook["LocalPath"] == "/opt/ml/output/tensors"
        stop = {"name": "stoptraining", "training_job_prefix": "mnist"}
        assert list(debugger.rules) == [
            RuleSpec("VanishingGradient", "VanishingGradient", {"threshold": "1e-6"}, (stop,))
        ]


def test_reports_on_a_rule_are_in_the_description_and_in_the_events(bench: Bench) -> None:
    claim = bench.start(**judged(rule()))
    find(bench.agent(), dropped=3)
    bench.turn(claim)
    (told,) = describe(bench.anna)["DebugRuleEvaluationStatuses"]
    assert told["RuleEvaluationStatus"] == "IssuesFound"
    assert told["StatusDetails"] == "It vanishes. 3 steps were dropped and not evaluated."
    (event,) = [each for each in bench.work.records.events() if each.kind == "training-job.rule"]
    assert event.body["findings"] == [FINDING]
    assert event.body["dropped"] == 3


def test_nan_and_infinity_are_stored_as_words(bench: Bench) -> None:
    claim = bench.start(**judged(rule()))
    find(
        bench.agent(),
        finding={**FINDING, "value": float("nan"), "evidence": [{"label": "l", "values": [1.0, float("inf")]}]},
    )
    bench.turn(claim)
    found = bench.job().attempts[-1].instances[0].rules["VanishingGradient"].findings[0]
    assert (found["value"], found["evidence"]) == ("nan", [{"label": "l", "steps": [], "values": [1.0, "inf"]}])


def test_invented_reports_of_a_program_about_its_rules_are_ignored(bench: Bench) -> None:
    claim = bench.start(**judged(rule()))
    agent = bench.agent()
    find(agent, "Excellent")
    agent.report(FrameKind.RULE, rule="Other", status="IssuesFound", finding="none", judged="many")
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    strange = {"message": "x" * 50_000, "evidence": ["y"] * 9, "tensor": deep, "more": "z" * 99}
    find(agent, "InProgress", finding=strange, details="z" * 5000)
    bench.turn(claim)
    (told,) = describe(bench.anna)["DebugRuleEvaluationStatuses"]
    assert told["RuleEvaluationStatus"] == "InProgress"
    assert len(told["StatusDetails"]) == 1024
    (finding,) = bench.job().attempts[-1].instances[0].rules["VanishingGradient"].findings
    assert finding == {"tensor": "", "message": "x" * 4096, "evidence": []}


def test_a_rule_that_stops_the_job_stops_its_other_instances(bench: Bench) -> None:
    claim = bench.start(**stopping(), ResourceConfig=TWO)
    find(bench.agent())
    bench.turn(claim)
    job = bench.job()
    assert (job.status, job.stop_reason) == (Status.STOPPING, "rule")
    assert job.transitions[-1].message == "Rule VanishingGradient stops the training job: It vanishes."
    commands = Mailbox(bench.agent(instance="algo-2").folder.mailbox).read(0)
    assert [command.kind for command in commands] == [CommandKind.STOP]
    ((status, action),) = asked(bench)
    assert (status, action.name, action.told) == (
        "Done",
        "stoptraining",
        "The instance that found the issue carries it out.",
    )


def test_a_job_that_its_agent_stopped_for_a_rule_is_stopped(bench: Bench) -> None:
    claim = bench.start(**stopping())
    agent = bench.agent()
    find(agent)
    agent.end("stopped", reason="rule")
    bench.turn(claim, times=2)
    assert bench.job().secondary is SecondaryStatus.STOPPED
    (told,) = describe(bench.anna)["DebugRuleEvaluationStatuses"]
    assert told["RuleEvaluationStatus"] == "IssuesFound"


@pytest.mark.parametrize("action", ["stoptraining", "checkpointthenstop"])
def test_a_job_whose_agent_reports_between_the_stop_for_a_rule_and_its_end_is_stopped_by_the_rule(
    bench: Bench, action: str
) -> None:
    claim = bench.start(
        **judged(rule(action_json=actions({"name": action})), CheckpointConfig={"S3Uri": "s3://data/ck"})
    )
    agent = bench.agent()
    find(agent)
    agent.report(FrameKind.EXITED, code=None, signal=15, is_oom=False)
    claim = bench.turn(claim) or claim
    agent.end("stopped", reason="Rule VanishingGradient found an issue and stopped the training.")
    bench.turn(claim, times=2)
    assert (bench.job().secondary, bench.job().stop_reason) == (SecondaryStatus.STOPPED, "rule")


def test_a_job_whose_time_is_over_is_not_stopped_by_a_rule_that_found_something_then(bench: Bench) -> None:
    claim = bench.start(**stopping())
    agent = bench.agent()
    agent.report(FrameKind.EXITED, code=None, signal=15, is_oom=False)
    find(agent)
    claim = bench.turn(claim) or claim
    agent.end("stopped", reason="max_runtime")
    bench.turn(claim, times=2)
    assert (bench.job().secondary, bench.job().stop_reason) == (SecondaryStatus.MAX_RUNTIME_EXCEEDED, "")


def test_a_rule_that_finds_something_at_the_very_end_stops_nothing(bench: Bench) -> None:
    claim = bench.start(**stopping())
    agent = bench.agent()
    agent.report(FrameKind.EXITED, code=0, signal=None, is_oom=False)
    find(agent)
    agent.end()
    bench.turn(claim, times=2)
    assert bench.job().secondary is SecondaryStatus.COMPLETED


def test_an_agent_learns_only_of_the_actions_that_it_carries_out(bench: Bench) -> None:
    then_stop = {"name": "checkpointthenstop"}
    given = actions({"name": "stoptraining", "training_job_prefix": "another"}, then_stop)
    bench.start(**judged(rule(action_json=given), CheckpointConfig={"S3Uri": "s3://data/ck"}))
    debugger = bench.agent().spec.debugger
    assert debugger is not None
    assert list(debugger.rules[0].actions) == [then_stop]


def test_a_job_that_saves_a_checkpoint_first_is_not_stopped_from_here(bench: Bench) -> None:
    then_stop = actions({"name": "checkpointthenstop"})
    claim = bench.start(**judged(rule(action_json=then_stop), CheckpointConfig={"S3Uri": "s3://data/ck"}))
    find(bench.agent())
    claim = bench.turn(claim) or claim
    assert bench.job().status is Status.IN_PROGRESS
    bench.agent().end("stopped", reason="The rule found an issue and stopped the training.")
    bench.turn(claim, times=2)
    assert bench.job().secondary is SecondaryStatus.STOPPED


def test_an_instance_on_a_node_has_the_others_stopped_when_its_checkpoint_is_saved(bench: Bench) -> None:
    then_stop = rule(action_json=actions({"name": "checkpointthenstop"}))
    claim = bench.start(**judged(then_stop, CheckpointConfig={"S3Uri": "s3://data/ck"}), ResourceConfig=TWO)
    find(bench.agent())
    claim = bench.turn(claim) or claim
    assert bench.job().status is Status.IN_PROGRESS

    find(bench.agent(), finding=None, stops=True)
    bench.turn(claim)

    assert bench.job().status is Status.STOPPING
    for instance in ("algo-1", "algo-2"):
        (command,) = Mailbox(bench.agent(instance=instance).folder.mailbox).read(0)
        assert (command.kind, command.payload) == (CommandKind.STOP, {"reason": "rule"})


def test_a_dry_run_tells_and_does_nothing(bench: Bench) -> None:
    claim = bench.start(**stopping(dry_run="true"))
    find(bench.agent())
    bench.turn(claim)
    assert bench.job().status is Status.IN_PROGRESS
    ((status, action),) = asked(bench)
    assert (status, action.told) == ("DryRun", "Not carried out: the rule has dry_run.")


def test_an_action_is_requested_once_however_often_its_finding_is_reported(bench: Bench) -> None:
    other = actions({"name": "stoptraining", "training_job_prefix": "another"})
    claim = bench.start(**judged(rule(action_json=other)))
    find(bench.agent())
    # A yard that is killed after it asked, before it remembered what it had heard.
    heard = bench.work._advance_attempt(claim.resource.id, bench.job())
    request_actions(bench.work.records, claim.resource.id, bench.job(), after=heard, now=bench.watch())
    bench.turn(claim)
    find(bench.agent(), details="It still vanishes.")
    bench.turn(bench.turn(claim))
    ((status, action),) = asked(bench)
    assert status == "Due"
    assert re.fullmatch(f"{bench.resource().id}-[0-9a-f]{{12}}-1", action.key)


def test_requested_actions_are_described_with_the_rule(bench: Bench) -> None:
    claim = bench.start(**stopping())
    find(bench.agent())
    bench.turn(claim)
    (told,) = bench.anna("trainyard", "DescribeJob", TrainingJobName="mnist")["Rules"]
    assert (told["Name"], told["Status"], told["StepsJudged"]) == ("VanishingGradient", "IssuesFound", 8)
    (finding,), (action,) = told["Findings"], told["Actions"]
    assert (finding["Step"], finding["Tensor"], finding["Message"]) == (7, "fc.weight", "It vanishes.")
    assert (action["Name"], action["Endpoint"], action["Status"]) == ("stoptraining", "mnist", "Done")
