import re
from typing import Any

import pytest

from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import channel, create, describe
from trainyard.engines.catalog import InstanceType
from trainyard.foundation.jobs.training.plan import InstanceGroupPlan
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import ResourceKey
from trainyard.server.services.sagemaker.training.instances import billed_share, groups_of
from trainyard.wire.fault import Fault

TWO = [
    {"InstanceGroupName": "gpu", "InstanceType": "ml.g4dn.xlarge", "InstanceCount": 1},
    {"InstanceGroupName": "data", "InstanceType": "ml.c5.xlarge", "InstanceCount": 2},
]


def grouped(*groups: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"InstanceGroups": list(groups or TWO), "VolumeSizeInGB": 1, **others}


def test_the_instances_of_all_groups_are_numbered_through(anna: As) -> None:
    create(anna, ResourceConfig=grouped())
    plan = job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist"))).plan

    assert plan.instance_count == 3
    assert plan.instance_types == ("ml.g4dn.xlarge", "ml.c5.xlarge", "ml.c5.xlarge")
    assert (plan.group_of("algo-1").name, plan.group_of("algo-3").name) == ("gpu", "data")
    assert describe(anna)["ResourceConfig"]["InstanceGroups"] == TWO


def test_a_job_of_one_type_is_one_group_with_the_name_of_aws() -> None:
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2}
    assert groups_of(resources) == (InstanceGroupPlan("homogeneousCluster", "ml.m5.large", 2),)


def test_each_type_counts_against_its_own_quota(anna: As) -> None:
    create(anna, ResourceConfig=grouped())
    used = {each.name: each.value for each in anna.yard.records.counters(anna.account)}
    assert used == {
        "training-instances/on-demand": 3,
        "training-instances/on-demand/ml.g4dn.xlarge": 1,
        "training-instances/on-demand/ml.c5.xlarge": 2,
    }


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("type beside", grouped(InstanceType="ml.m5.large"), "leave InstanceType out"),
    ("count beside", grouped(InstanceCount=2), "leave InstanceCount out"),
    ("twice", grouped(TWO[0], TWO[0]), 'InstanceGroupName "gpu" is used more than once'),
    ("none", grouped(TWO[0] | {"InstanceCount": 0}), "of all InstanceGroups together is 0"),
    ("too many", grouped(TWO[0] | {"InstanceCount": 60}, TWO[1] | {"InstanceCount": 41}), "together is 101"),
    ("type", grouped(TWO[0] | {"InstanceType": "ml.nope"}), '"ml.nope" is not an instance type'),
    ("pool", grouped(KeepAlivePeriodInSeconds=60), "leave KeepAlivePeriodInSeconds out"),
]


@pytest.mark.parametrize(("resources", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_groups_that_make_no_sense_are_refused(anna: As, resources: dict[str, Any], words: str) -> None:
    with pytest.raises(Fault, match=re.escape(words)) as caught:
        create(anna, ResourceConfig=resources)
    assert caught.value.code == "ValidationException"


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (grouped(), 'for the instance group "tpu"; the job has gpu, data'),
        ({"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}, "the job has no InstanceGroups"),
        (grouped({**TWO[0], "InstanceGroupName": "tpu", "InstanceCount": 0}, TWO[1]), "without instances"),
    ],
    ids=["unknown", "no groups", "empty"],
)
def test_a_channel_can_only_be_for_groups_that_the_job_has(anna: As, resources: dict[str, Any], words: str) -> None:
    with pytest.raises(Fault, match=re.escape(words)):
        create(
            anna,
            ResourceConfig=resources,
            InputDataConfig=[channel("a", "s3://data/train", InstanceGroupNames=["tpu"])],
        )


def test_the_billed_share_on_spot_is_the_ratio_of_the_prices_of_all_instances() -> None:
    large = InstanceType("large", 2, 8, 0, on_demand_usd=0.3, spot_usd=0.1)
    small = InstanceType("small", 1, 4, 0, on_demand_usd=0.1, spot_usd=0.1)
    free = InstanceType("local", None, None, 0, on_demand_usd=0.0, spot_usd=0.0)

    assert billed_share([large, small], is_spot=True) == pytest.approx(0.5)
    assert billed_share([large, small], is_spot=False) == 1.0
    assert billed_share([free], is_spot=True) == 1.0
