"""Which instances share a machine, and what the actions of rules ask of an agent."""

from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.link.contract import RuleSpec
from trainyard.link.spec_queries import (
    is_first_on_machine,
    is_spread,
    remote_hosts,
    stops_training,
    wants_checkpoint,
)
from trainyard.testing.engines.samples import SampleEnvironment, attempt_specs

SPECS = attempt_specs(SampleEnvironment(Path("/nowhere")), count=4)
SPREAD = [replace(spec, addresses=("10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2")) for spec in SPECS]


def test_without_addresses_all_lie_on_one_machine() -> None:
    assert not any(map(is_spread, SPECS))
    assert [remote_hosts(spec) for spec in SPECS] == [()] * 4
    assert [is_first_on_machine(spec) for spec in SPECS] == [True, False, False, False]


def test_instances_with_one_address_lie_on_one_machine() -> None:
    assert all(map(is_spread, SPREAD))
    assert [remote_hosts(spec) for spec in SPREAD] == [["algo-2", "algo-4"], ["algo-1", "algo-3"]] * 2
    assert [is_first_on_machine(spec) for spec in SPREAD] == [True, True, False, False]


@pytest.mark.parametrize("name", ["stoptraining", "StopTraining", "stop_training", "checkpoint-then-stop"])
def test_a_stop_is_known_however_it_is_written(name: str) -> None:
    assert stops_training(RuleSpec("a", "AllZero", actions=({"name": name},)), "mnist-7")


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
    assert not stops_training(rule, "mnist-7")
