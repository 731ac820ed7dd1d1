from dataclasses import replace
from typing import Any

import pytest

from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import create, describe, fill_bucket
from tests.unit.server.services.sagemaker.rules import EVALUATOR, actions, hook, judged, rule
from trainyard.foundation.jobs.training.plan import DebuggerPlan
from trainyard.server.gateways import Gateways
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import ResourceKey
from trainyard.wire.fault import Fault

GATEWAYS = Gateways(
    smtp_url="smtp://127.0.0.1:2525",
    smtp_from="yard@example.com",
    sms_url="http://127.0.0.1:1/sms",
    webhook_hosts=("hooks.example.com", "127.0.0.1:8080"),
    commands={"page": ("/bin/true",)},
)


def with_gateways(user: As, gateways: Gateways = GATEWAYS) -> As:
    return replace(user, yard=replace(user.yard, compute=replace(user.yard.compute, gateways=gateways)))


def plan_of(user: As, name: str = "mnist") -> DebuggerPlan:
    plan = job_of(user.yard.records.load(ResourceKey(user.account, KIND, name))).plan.debugger
    assert plan is not None
    return plan


def test_a_job_without_a_hook_captures_nothing(anna: As) -> None:
    create(anna)
    assert job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist"))).plan.debugger is None
    assert "DebugRuleEvaluationStatuses" not in describe(anna)


def test_the_hook_that_the_sdk_sends_unasked_captures_to_where_the_sdk_looks(anna: As) -> None:
    create(anna, DebugHookConfig={"S3OutputPath": "s3://data/debug/", "CollectionConfigurations": []})
    plan = plan_of(anna)
    assert (plan.uri, plan.path, plan.rules) == ("s3://data/debug/mnist/debug-output", "/opt/ml/output/tensors", ())
    assert plan.hook["CollectionConfigurations"] == []


def test_a_rule_is_in_progress_from_the_create_on_with_an_arn_of_its_own(anna: As) -> None:
    asked = judged(rule(threshold="1e-6"), rule() | {"RuleConfigurationName": "another one!"})
    create(anna, **asked)
    told = describe(anna)
    first, second = told["DebugRuleEvaluationStatuses"]
    assert (first["RuleConfigurationName"], first["RuleEvaluationStatus"]) == ("VanishingGradient", "InProgress")
    assert first["LastModifiedTime"] == told["CreationTime"]
    arn = f"arn:aws:sagemaker:eu-west-3:{anna.account}:processing-job/mnist-vanishinggradient-"
    assert first["RuleEvaluationJobArn"].startswith(arn)
    assert second["RuleEvaluationJobArn"] != first["RuleEvaluationJobArn"]
    # AWS adds the volume.
    assert told["DebugRuleConfigurations"] == [
        {"VolumeSizeInGB": 0, **each} for each in asked["DebugRuleConfigurations"]
    ]


def test_parameters_for_the_yard_are_not_passed_to_the_rule(anna: As) -> None:
    stop = actions({"name": "stoptraining", "training_job_prefix": "mnist"})
    create(anna, **judged(rule(threshold="1e-6", action_json=stop, dry_run="True")))
    (planned,) = plan_of(anna).rules
    assert planned.parameters == {"threshold": "1e-6"}
    assert planned.actions == ({"name": "stoptraining", "training_job_prefix": "mnist"},)
    assert planned.is_dry


def test_where_a_rule_is_evaluated_is_known_from_the_create_on(anna: As) -> None:
    create(anna, **judged(rule(), rule("StalledTrainingRule")))
    assert [planned.is_beside for planned in plan_of(anna).rules] == [False, True]


def test_a_collection_given_twice_saves_what_either_asks_for(anna: As) -> None:
    asked = hook(
        ("losses", {}),
        ("losses", {"save_interval": "500"}),
        ("weights", {"save_interval": "100", "include_regex": "a"}),
        ("weights", {"save_interval": "20", "include_regex": "b", "save_histogram": "True"}),
        HookParameters={"train.save_interval": "1", "eval.save_interval": "5"},
    )
    create(anna, DebugHookConfig=asked)
    told: Any = plan_of(anna).hook["CollectionConfigurations"]
    assert {each["CollectionName"]: each["CollectionParameters"] for each in told} == {
        "losses": {"train.save_interval": "1", "eval.save_interval": "5", "save_interval": "500"},
        "weights": {"save_interval": "20", "include_regex": "a,b", "save_histogram": "True"},
    }


def test_a_rule_of_ones_own_is_a_class_in_a_file_on_s3(anna: As) -> None:
    fill_bucket(anna.yard, anna.account, {"rules/mine.py": b"class Mine: ..."}, bucket="own")
    custom = rule(
        "Mine",
        image=EVALUATOR,
        source_s3_uri="s3://own/rules/mine.py",
        limit="3",
        other_trial_0="s3://own/a",
        other_trial_1="s3://own/b",
    )
    create(anna, **judged(custom | {"InstanceType": "ml.m5.large", "VolumeSizeInGB": 30}))
    (planned,) = plan_of(anna).rules
    assert (planned.rule, planned.source) == ("Mine", "s3://own/rules/mine.py")
    assert planned.parameters == {"limit": "3", "other_trials": "s3://own/a,s3://own/b"}
    notes = job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist"))).notes
    assert any("InstanceType and VolumeSizeInGB of a rule are not used" in note for note in notes)


def test_a_collection_that_only_a_script_can_fill_is_noted(anna: As) -> None:
    create(anna, DebugHookConfig=hook(("mine", {}), ("relus", {"include_regex": "relu"}), ("losses", {})))
    notes = job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist"))).notes
    assert [note for note in notes if "include_regex" in note] == [
        'The collection "mine" has no include_regex, so it has only the tensors that the script adds.'
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"name": "Email", "endpoint": "Anna.B+x@mail.example.co.uk"}, "email"),
        ({"name": "sms", "endpoint": "+4915112345678"}, "sms"),
        ({"name": "webhook", "endpoint": "https://hooks.example.com/a?b=c"}, "webhook"),
        ({"name": "slack", "endpoint": "http://127.0.0.1:8080/services/T0"}, "slack"),
        ({"name": "command", "endpoint": "page"}, "command"),
        ({"name": "stoptraining"}, "stoptraining"),
        ({"name": "CheckpointThenStop"}, "checkpointthenstop"),
    ],
)
def test_actions_with_a_gateway_are_accepted(anna: As, given: dict[str, str], kept: str) -> None:
    checkpoints = {"CheckpointConfig": {"S3Uri": "s3://data/ck"}}
    create(with_gateways(anna), **judged(rule(action_json=actions(given)), **checkpoints))
    (planned,) = plan_of(anna).rules
    assert planned.actions == ({**given, "name": kept},)


def test_actions_are_read_as_plain_json_and_one_by_one_too(anna: As) -> None:
    create(anna, **judged(rule(action_json='{"name": "stoptraining"}')))
    assert plan_of(anna).rules[0].actions == ({"name": "stoptraining"},)


def test_a_stalled_training_can_be_stopped_by_a_parameter_of_its_rule(anna: As) -> None:
    create(anna, **judged(rule("StalledTrainingRule", stop_training_on_fire="True", training_job_name_prefix="mnist")))
    assert plan_of(anna).rules[0].actions == ({"name": "stoptraining"},)


def test_more_actions_fit_into_a_parameter_than_on_aws(anna: As) -> None:
    mails = [{"name": "email", "endpoint": f"someone-{number}@mail.example.com"} for number in range(9)]
    create(with_gateways(anna), **judged(rule(action_json=actions(*mails))))
    assert len(plan_of(anna).rules[0].actions) == 9


def refused_action(**given: str) -> dict[str, Any]:
    return judged(rule(action_json=actions(given)))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no hook", {"DebugRuleConfigurations": [rule()]}, "without a DebugHookConfig none are captured"),
    ("bucket", {"DebugHookConfig": {"S3OutputPath": "s3://nowhere"}}, '"nowhere" of DebugHookConfig.S3OutputPath'),
    ("path", {"DebugHookConfig": hook(LocalPath="/proc/x")}, "DebugHookConfig.LocalPath"),
    (
        "hook word",
        {"DebugHookConfig": hook(HookParameters={"interval": "1"})},
        'HookParameters has the unknown parameter "interval"',
    ),
    ("interval", {"DebugHookConfig": hook(HookParameters={"train.save_interval": "0"})}, "1 or more"),
    ("steps", {"DebugHookConfig": hook(("losses", {"save_steps": "1;2"}))}, '"losses".save_steps is "1;2"'),
    ("regex", {"DebugHookConfig": hook(("x", {"include_regex": "a,("}))}, "invalid regular expression"),
    ("reduction", {"DebugHookConfig": hook(("x", {"reductions": "min,median"}))}, 'has "median"; use min'),
    ("truth", {"DebugHookConfig": hook(("x", {"save_histogram": "maybe"}))}, 'must be "True" or "False"'),
    ("window", {"DebugHookConfig": hook(("x", {"start_step": "5", "end_step": "5"}))}, "no step would be saved"),
    ("workers", {"DebugHookConfig": hook(HookParameters={"include_workers": "some"})}, '"one" or "all"'),
    ("budget", {"DebugHookConfig": hook(HookParameters={"overhead_budget": "-1"})}, "percentage of a step"),
    ("no name", {"DebugHookConfig": {"S3OutputPath": "s3://data", "CollectionConfigurations": [{}]}}, "number 1 needs"),
    ("twice", judged(rule(), rule()), '"VanishingGradient" twice'),
    ("many", judged(*[rule() for _ in range(21)]), "less than or equal to 20"),
    ("unknown rule", judged(rule("VanishingGradients")), "did you mean VanishingGradient"),
    ("no rule", judged(rule("") | {"RuleConfigurationName": "x"}), 'The rule "x" needs the parameter rule_to_invoke'),
    ("parameter", judged(rule(thresholds="1")), 'has no parameter "thresholds"'),
    ("value", judged(rule(threshold="tiny")), '"threshold" of rule VanishingGradient is "tiny"'),
    ("source", judged(rule(source_s3_uri="s3://data/train/1.csv")), "the image of the built-in rules"),
    ("no source", judged(rule("Mine", image="mine:1")), 'has the image "mine:1"'),
    ("file gone", judged(rule("Mine", image=EVALUATOR, source_s3_uri="s3://data/none.py")), "no object at"),
    ("class", judged(rule("a b", image=EVALUATOR, source_s3_uri="s3://data/train/1.csv")), "valid class name"),
    ("output", judged(rule() | {"S3OutputPath": "s3://nowhere/x"}), '"nowhere" of The rule'),
    ("dry run", judged(rule(dry_run="perhaps")), "dry_run"),
    ("no json", judged(rule(action_json="stop")), "not a JSON list of actions"),
    ("action", refused_action(name="sendpigeon"), 'the unknown action "sendpigeon"; use one of stoptraining'),
    ("prefix", refused_action(name="stoptraining", training_job_prefix="a_b"), "letters, digits and hyphens"),
    ("member", refused_action(name="stoptraining", when="now"), 'stoptraining has the unknown member "when"'),
    ("checkpoints", refused_action(name="checkpointthenstop"), "give it a CheckpointConfig"),
    ("address", refused_action(name="email", endpoint="anna"), "such as you@example.com"),
    ("mail", refused_action(name="email", endpoint="a@b.de"), "setting smtp_url"),
    ("number", refused_action(name="sms", endpoint="0151"), r"a number such as \+49"),
    ("sms", refused_action(name="sms", endpoint="+49151"), "setting sms_url"),
    ("webhook", refused_action(name="webhook", endpoint="https://x.org"), "setting webhook_hosts"),
    ("command", refused_action(name="command", endpoint="page"), "setting action_commands"),
]


@pytest.mark.parametrize(("changed", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_invalid_hooks_and_rules_are_refused_by_name(anna: As, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(Fault, match=message) as caught:
        create(anna, **changed)
    assert caught.value.code == "ValidationException"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "webhook", "endpoint": "https://169.254.169.254/latest"}, "can go by http or https to hooks.example"),
        ({"name": "slack", "endpoint": "http://127.0.0.1:22/"}, "An administrator adds hosts"),
        ({"name": "webhook", "endpoint": "file:///etc/passwd"}, "by http or https"),
        ({"name": "webhook", "endpoint": "https://hooks.example.com:port/"}, "by http or https"),
        ({"name": "command", "endpoint": "/bin/sh"}, "the commands of this yard are page"),
    ],
)
def test_a_user_reaches_no_host_and_no_command_that_is_not_listed(
    anna: As, given: dict[str, str], message: str
) -> None:
    with pytest.raises(Fault, match=message):
        create(with_gateways(anna), **judged(rule(action_json=actions(given))))
