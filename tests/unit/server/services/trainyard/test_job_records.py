"""What is told of a job after its end: what it read, ran and wrote, and whether that is still there."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.control.lineage.test_kind import PACKAGES, put, record_due, train
from trainyard.foundation.locations import BucketRef, Location
from trainyard.server.control.lineage.kind import LineageKind
from trainyard.server.source_contents import SourceContents
from trainyard.wire.fault import Fault


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as opened:
        contents = SourceContents(opened.accounts.yard.objects)
        train(opened)
        record_due(opened, LineageKind(opened.work.records, contents, opened.watch, worker="lineage"))
        yield opened


def test_a_record_has_inputs_code_packages_and_results(bench: Bench) -> None:
    told = bench.anna("trainyard", "DescribeJobRecord", TrainingJobName="mnist")
    [channel], [model] = told["Inputs"], told["Outputs"]
    assert (channel["Name"], channel["Objects"], "State" in channel) == ("train", 3, False)
    assert (model["Name"], model["SizeInBytes"]) == ("model", 9)
    assert (told["Packages"], told["Metrics"]) == (PACKAGES, [{"MetricName": "loss", "Value": 0.5}])
    assert json.loads(told["Request"])["ResourceConfig"]["InstanceType"] == "ml.m5.large"


def test_a_record_says_whether_its_inputs_are_the_same(bench: Bench) -> None:
    def states() -> list[str]:
        told = bench.anna("trainyard", "DescribeJobRecord", TrainingJobName="mnist", ChecksInputs=True)
        return [each["State"] for each in (*told["Inputs"], told["Code"])]

    assert states() == ["Same", "Same"]
    put(bench, "s3://data/train/2.csv", b"changed")
    bench.accounts.yard.objects.delete(Location(BucketRef(bench.anna.account, "data"), "code/sourcedir.tar.gz"))
    assert states() == ["Changed", "Gone"]


def test_the_record_stays_when_the_job_is_removed_and_is_not_for_others(bench: Bench) -> None:
    bench.anna("sagemaker", "DeleteTrainingJob", TrainingJobName="mnist")
    assert bench.anna("trainyard", "DescribeJobRecord", TrainingJobName="mnist")["Status"] == "Completed"
    with pytest.raises(Fault, match='no job record named "mnist"'):
        bench.accounts.ben("trainyard", "DescribeJobRecord", TrainingJobName="mnist")
