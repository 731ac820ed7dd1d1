"""Custom rules over what a hook has saved."""

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
import smdebug.pytorch as smd
from smdebug.exceptions import NoMoreData, RuleEvaluationConditionMet, TensorUnavailable
from smdebug.rules import Rule, invoke_rule
from smdebug.rules.action import Actions
from smdebug.rules.action.stop_training_action import StopTrainingAction
from smdebug.trials import Trial, create_trial

from tests.unit.instance.compat.smdebug.programs import every, registered, train


class AtSteps(Rule):  # type: ignore[misc]  # mypy does not read smdebug
    """Meets its condition at given steps, which come as a string."""

    def __init__(self, base_trial: Trial, found: str = "2", **options: Any) -> None:
        super().__init__(base_trial, **options)
        self.found = [int(step) for step in found.split(",")]
        self.asked: list[int] = []

    def invoke_at_step(self, step: int) -> bool:
        self.asked.append(step)
        assert not self.base_trial.dynamic_refresh, "a step is judged on what is there when it begins"
        return step in self.found


class Requiring(AtSteps):
    """Requires tensors."""

    def set_required_tensors(self, step: int) -> None:
        self.req_tensors.add("Net_.*weight", steps=[step], should_match_regex=True)
        self.req_tensors.add("MSELoss_output_0", steps=[0, step])


@pytest.fixture
def trial(out: str) -> Trial:
    hook = smd.Hook(out, save_config=every(2), include_collections=["weights"])
    train(*registered(hook), steps=5)
    hook.close()
    return create_trial(out)


def test_a_rule_evaluates_the_saved_steps_until_no_more_come(trial: Trial) -> None:
    rule = AtSteps(trial)
    with pytest.raises(NoMoreData):
        invoke_rule(rule)
    assert rule.asked == [0, 2, 4]
    assert trial.dynamic_refresh


def test_a_met_condition_is_raised_on_request(trial: Trial) -> None:
    with pytest.raises(RuleEvaluationConditionMet) as raised:
        invoke_rule(AtSteps(trial), raise_eval_cond=True)
    assert (raised.value.rule_name, raised.value.step, raised.value.end_of_rule) == ("AtSteps", 2, False)


def test_steps_are_evaluated_in_a_half_open_range(trial: Trial) -> None:
    rule = AtSteps(trial, found="0")
    invoke_rule(rule, start_step=1, end_step=4)
    assert rule.asked == [2]


def test_a_rule_may_end_itself(trial: Trial) -> None:
    class Ending(AtSteps):
        def invoke(self, step: int) -> None:
            self.asked.append(step)
            raise RuleEvaluationConditionMet(self.rule_name, step, end_of_rule=True)

    rule = Ending(trial)
    invoke_rule(rule)
    assert rule.asked == [0]


def test_required_tensors_are_fetched_before_a_step_is_evaluated(trial: Trial) -> None:
    rule = Requiring(trial)
    rule.invoke(4)
    assert sorted(rule.req_tensors.get_names()) == ["MSELoss_output_0", "Net_again.weight", "Net_fc.weight"]
    assert rule.req_tensors.get_tensor_steps("MSELoss_output_0") == [0, 4]
    assert {tensor.name for tensor in rule.req_tensors.get()} == set(rule.req_tensors.get_names())
    with pytest.raises(TensorUnavailable):
        rule.req_tensors.add("nothing", steps=[0])


def test_a_rule_knows_its_trials_and_keeps_a_report(trial: Trial, out: str) -> None:
    other = create_trial(out, name="other")
    rule = AtSteps(trial, other_trials=[other], action_str="")
    assert rule.trials == [trial, other]
    assert rule.other_trials == [other]
    rule.req_tensors.add("Net_fc.weight", steps=[0], trial=other)
    assert list(rule.req_tensors.get_names(trial=other)) == ["Net_fc.weight"]
    assert list(rule.req_tensors.get_names()) == []
    assert rule.report == {"RuleTriggered": 0, "Violations": 0, "Details": {}, "Datapoints": 0, "RuleParameters": ""}


class Jobs:
    """Answers like a yard with these jobs running, as unit tests have no yard."""

    def __init__(self, *names: str) -> None:
        self.names, self.stopped = names, list[str]()

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        assert service == "sagemaker"
        if operation == "StopTrainingJob":
            self.stopped.append(params["TrainingJobName"])
            return {}
        assert params["StatusEquals"] == "InProgress"
        found = [name for name in self.names if params["NameContains"].lower() in name.lower()]
        return {"TrainingJobSummaries": [{"TrainingJobName": name} for name in found]}

    def stream(self, service: str, operation: str, **params: Any) -> Any:
        raise AssertionError


def test_the_one_job_that_begins_with_the_prefix_is_stopped() -> None:
    jobs = Jobs("Digits-7", "more-Digits", "other")
    StopTrainingAction("R", "Digits", api=jobs).invoke()
    assert jobs.stopped == ["Digits-7"], "whatever the case of its letters"


def test_no_job_is_stopped_if_several_begin_with_the_prefix(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("smdebug").propagate = True
    jobs = Jobs("digits-7", "digits-8")
    StopTrainingAction("R", "digits", api=jobs).invoke()
    assert jobs.stopped == []
    assert "digits-7, digits-8" in caplog.text


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({"name": "StopTraining"}, "needs a training_job_prefix"),
        ([{"name": "email"}, "sms"], "sms and email an endpoint"),
        ({"name": "telegram", "endpoint": "x"}, "is not a valid action"),
    ],
)
def test_an_invalid_action_is_logged_and_left_out(
    told: Mapping[str, str], complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("smdebug").propagate = True
    Actions(json.dumps(told), rule_name="R").invoke()
    assert complaint in caplog.text


def test_a_message_action_says_that_the_yard_sends_messages(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("smdebug").propagate = True
    Actions('{"name": "Email", "endpoint": "Someone@Example.com"}', rule_name="R").invoke("look")
    assert "R sends no email to Someone@Example.com (look)" in caplog.text
    assert "Rule.custom" in caplog.text
