from typing import Any

import pytest

from tests.unit.server.control.bench import Bench
from tests.unit.server.services.sagemaker.requests import IMAGE, describe
from trainyard.server.control.training.pools import KIND
from trainyard.server.records.contract import Query
from trainyard.testing.engines import complete, vanish


def kept(seconds: int = 60, **changed: Any) -> dict[str, Any]:
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1, **changed}
    return {"ResourceConfig": resources | {"KeepAlivePeriodInSeconds": seconds}}


def train(bench: Bench, name: str, **changed: Any) -> None:
    """A whole job."""
    bench.engine.role = complete
    bench.create(name, **changed)
    assert bench.turn(bench.place(), times=3) is None


def pool(bench: Bench, name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = describe(bench.anna.at(bench.watch()), name).get("WarmPoolStatus")
    return found


def test_a_matching_job_takes_over_the_pool_of_the_one_before(bench: Bench) -> None:
    train(bench, "first", **kept())
    bench.watch.forward(20)
    assert pool(bench, "first") == {"Status": "Available", "ResourceRetainedBillableTimeInSeconds": 20}
    bench.create("second", **kept())
    claim = bench.place()
    assert pool(bench, "first") == {
        "Status": "Reused",
        "ResourceRetainedBillableTimeInSeconds": 20,
        "ReusedByJob": "second",
    }
    assert pool(bench, "second") == {"Status": "InUse"}
    bench.turn(claim, times=3)
    bench.watch.forward(61)
    assert pool(bench, "second") == {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 60}


@pytest.mark.parametrize(
    "changed",
    [
        kept(InstanceType="ml.m5.xlarge"),
        kept(VolumeSizeInGB=2),
        kept() | {"VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}},
        kept() | {"EnableInterContainerTrafficEncryption": True},
        kept() | {"AlgorithmSpecification": {"TrainingImage": f"{IMAGE}-other", "TrainingInputMode": "File"}},
        {},
    ],
    ids=["type", "volume", "vpc", "encryption", "image", "no pool asked for"],
)
def test_a_job_of_another_kind_leaves_the_pool_alone(bench: Bench, changed: dict[str, Any]) -> None:
    train(bench, "first", **kept())
    train(bench, "second", **changed)
    told = pool(bench, "first")
    assert told is not None
    assert told["Status"] == "Available"


def test_what_does_not_count_for_the_pool_may_differ(bench: Bench) -> None:
    train(bench, "first", **kept())
    train(bench, "second", **kept(10), EnableNetworkIsolation=False, StoppingCondition={"MaxRuntimeInSeconds": 5})
    told = pool(bench, "first")
    assert told is not None
    assert told["ReusedByJob"] == "second"


def test_a_pool_goes_to_one_job_only_and_the_youngest_first(bench: Bench) -> None:
    claims = []
    for name in ("old", "young"):  # side by side, so that neither can take over the other's
        bench.create(name, **kept())
        claims.append(bench.place())
        bench.watch.forward(1)
    bench.engine.role = complete
    for claim in claims:
        assert bench.turn(claim, times=3) is None
    for name in ("next", "last"):
        train(bench, name, **kept())
    reused = {name: (pool(bench, name) or {}).get("ReusedByJob") for name in ("old", "young", "next")}
    assert reused == {"old": None, "young": "next", "next": "last"}


def test_a_pool_whose_time_is_over_is_not_taken_and_forgotten(bench: Bench) -> None:
    train(bench, "first", **kept(1))
    bench.watch.forward(2)
    train(bench, "second", **kept())
    told = pool(bench, "first")
    assert told is not None
    assert told["Status"] == "Terminated"
    left = bench.work.records.find(Query(KIND)).resources
    assert [each.parent for each in left] == [bench.resource("second").id]


def test_a_lost_machine_leaves_no_pool(bench: Bench) -> None:
    bench.engine.role = vanish
    bench.create(**kept())
    bench.turn(bench.place(), times=3)
    assert pool(bench, "mnist") == {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 0}


def test_a_pool_is_deleted_with_its_job(bench: Bench) -> None:
    train(bench, "first", **kept())
    bench.anna("sagemaker", "DeleteTrainingJob", TrainingJobName="first")
    assert bench.work.records.find(Query(KIND)).resources == []
    train(bench, "second", **kept())
