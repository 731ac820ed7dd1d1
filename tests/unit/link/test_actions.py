"""What actions of rules ask of an agent."""

import pytest

from trainyard.link.actions import is_stop, wants_checkpoint
from trainyard.link.contract import RuleSpec


@pytest.mark.parametrize("name", ["stoptraining", "StopTraining", "stop_training", "checkpoint-then-stop"])
def test_a_stop_is_known_however_it_is_written(name: str) -> None:
    assert is_stop(RuleSpec("a", "AllZero", actions=({"name": name},)), "mnist-7")


def test_only_one_that_says_so_wants_a_checkpoint() -> None:
    assert wants_checkpoint(RuleSpec("a", "AllZero", actions=({"name": "checkpointthenstop"},)), "mnist-7")
    assert not wants_checkpoint(RuleSpec("a", "AllZero", actions=({"name": "stoptraining"},)), "mnist-7")


@pytest.mark.parametrize(
    "rule",
    [
        RuleSpec("a", "AllZero"),
        RuleSpec("a", "AllZero", actions=({"name": "email", "endpoint": "a@b"},)),
        RuleSpec("a", "AllZero", actions=({"name": "stoptraining"},), is_dry=True),
        RuleSpec("a", "AllZero", actions=({"name": "stoptraining", "training_job_prefix": "cifar"},)),
    ],
)
def test_others_stop_nothing(rule: RuleSpec) -> None:
    assert not is_stop(rule, "mnist-7")
