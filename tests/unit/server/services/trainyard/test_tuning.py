from dataclasses import replace
from typing import Any

import pytest

from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.tuning.requests import (
    RATE,
    change_tuning,
    config,
    create_tuning,
    end_tuning,
    study,
)
from trainyard.wire.fault import Fault

TAGS = [
    {"Key": "trainyard:early-stopping", "Value": "curve"},
    {"Key": "trainyard:prune-on", "Value": "NotANumber"},
]


def describe(user: As, name: str = "tune") -> dict[str, Any]:
    return user("trainyard", "DescribeTuningJob", HyperParameterTuningJobName=name)


def test_what_aws_has_no_words_for_is_told(accounts: Accounts, anna: As) -> None:
    ranges = {"ContinuousParameterRanges": [{**RATE, "MaxValue": "0.001"}]}
    create_tuning(anna, Tags=TAGS, HyperParameterTuningJobConfig=config(RandomSeed=2**40, ParameterRanges=ranges))
    told = describe(accounts.admin, "TUNE")
    assert (told["UserName"], told["Status"], told["StopReason"]) == ("anna", "InProgress", None)
    assert (told["EarlyStopping"], told["PruningRules"], told["RandomSeed"]) == ("Curve", ["NotANumber"], 2**40)
    assert any("has one value only" in note for note in told["Notes"])
    end_tuning(anna, t1=0.5)
    change_tuning(anna, replace(study(anna), stop_reason="All were begun.", failure="x" * 2000))
    told = describe(anna)
    assert (told["PlannedJobs"], told["MeasuredJobs"], told["StopReason"]) == (1, 1, "All were begun.")
    assert len(told["FailureReason"]) == 2000


def test_a_tuning_job_of_another_user_is_not_found(accounts: Accounts, anna: As) -> None:
    create_tuning(anna)
    with pytest.raises(Fault) as caught:
        describe(accounts.ben)
    assert caught.value.code == "ResourceNotFound"
