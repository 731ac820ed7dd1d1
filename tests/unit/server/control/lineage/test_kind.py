"""What ended jobs and registered models leave in the lineage."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.services.accounts import NOON, As
from tests.unit.server.services.sagemaker.requests import channel
from trainyard.foundation.locations import BucketRef, Location
from trainyard.link.contract import FrameKind
from trainyard.objects.contract import Attributes, NewObject, WritesBatches
from trainyard.server.control.lineage.kind import MAX_TRIES, LineageKind
from trainyard.server.lineage.environments import KIND as ENVIRONMENT
from trainyard.server.lineage.environments import packages_in
from trainyard.server.lineage.job_records import JobRecord, job_record_of, record_key
from trainyard.server.lineage.recordings import KIND as RECORDING
from trainyard.server.lineage.recordings import ensure_package_recording
from trainyard.server.records.contract import Query
from trainyard.server.source_contents import SourceContents

PACKAGES = ["numpy==2.4.6", "torch==2.13.0"]
MODEL = "s3://data/output/mnist/output/model.tar.gz"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as opened:
        yield opened


@pytest.fixture
def lineage(bench: Bench) -> LineageKind:
    return LineageKind(bench.work.records, SourceContents(bench.accounts.yard.objects), bench.watch, worker="lineage")


def put(bench: Bench, uri: str, body: bytes) -> None:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    objects = bench.accounts.yard.objects
    assert isinstance(objects, WritesBatches), "the objects are in a folder"
    where = Location(BucketRef(bench.anna.account, bucket), key)
    objects.put_batch([NewObject(where, body, Attributes())], now=NOON)


def train(bench: Bench, name: str = "mnist", *, packages: list[str] = PACKAGES, **changed: Any) -> None:
    """Run a job to its end."""
    claim = bench.start(name, **changed)
    agent = bench.agent(name)
    agent.report(FrameKind.ENVIRONMENT, packages=packages)
    agent.report(FrameKind.METRIC, name="loss", value=0.5, at_us=7, count=1)
    model = f"s3://data/output/{name}/output/model.tar.gz"
    put(bench, model, b"the model")
    agent.report(FrameKind.ARTIFACT, kind="model", uri=model, size=9)
    agent.report(FrameKind.EXITED, code=0, signal=None, is_oom=False)
    agent.end()
    assert bench.turn(claim, times=2) is None, "the job has ended"


def record_due(bench: Bench, lineage: LineageKind, *, seconds: float = 1) -> int:
    """Take the step of every recording that is due, and return how many there were."""
    bench.watch.forward(seconds)
    count = 0
    for claim in lineage.claim_due():
        lineage.step(claim, ())
        count += 1
    return count


def record(bench: Bench, name: str = "mnist") -> JobRecord:
    return job_record_of(bench.work.records.load(record_key(bench.anna.account, name)))


def recordings(bench: Bench) -> int:
    return bench.work.records.count(Query(RECORDING))


def sources(user: As, arn: str) -> dict[str, str]:
    """Return the source and the type of everything that went into an entity, directly or not."""
    found = user("sagemaker", "QueryLineage", StartArns=[arn], Direction="Ascendants", IncludeEdges=False)
    return {uri_of(user, each["Arn"]): each["Type"] for each in found["Vertices"]}


def uri_of(user: As, arn: str) -> str:
    if ":artifact/" not in arn:
        return arn.rpartition("/")[2]
    uri: str = user("sagemaker", "DescribeArtifact", ArtifactArn=arn)["Source"]["SourceUri"]
    return uri


def artifact(user: As, uri: str) -> str:
    [found] = user("sagemaker", "ListArtifacts", SourceUri=uri)["ArtifactSummaries"]
    arn: str = found["ArtifactArn"]
    return arn


def test_a_model_leads_back_to_what_its_job_read_and_ran(bench: Bench, lineage: LineageKind) -> None:
    tags = [{"Key": "trainyard:commit", "Value": "c0ffee"}, {"Key": "trainyard:repository", "Value": "git@host:repo"}]
    train(bench, Tags=tags)
    assert record_due(bench, lineage) == 1
    known = record(bench)
    assert sources(bench.anna, artifact(bench.anna, MODEL)) == {
        "mnist-aws-training-job": "TrainingJob",
        bench.job().plan.image: "Image",
        "s3://data/train/": "DataSet",
        "s3://data/code/sourcedir.tar.gz": "Code",
        f"trainyard://environments/{known.environment}": "Environment",
    }
    assert (known.status, known.commit, known.repository) == ("Completed", "c0ffee", "git@host:repo")
    assert packages_in(bench.work.records, bench.anna.account, known.environment) == PACKAGES
    assert (known.metrics, known.hyperparameters["epochs"]) == ({"loss": 0.5}, "3")
    assert [(each.name, each.uri, each.objects, each.size_bytes) for each in known.inputs] == [
        ("train", "s3://data/train/", 3, 3)
    ]
    assert [(each.name, each.uri, bool(each.etag)) for each in known.outputs] == [("model", MODEL, True)]
    code = bench.anna(
        "sagemaker", "DescribeArtifact", ArtifactArn=artifact(bench.anna, known.code.uri if known.code else "")
    )
    assert code["MetadataProperties"] == {"CommitId": "c0ffee", "Repository": "git@host:repo"}
    assert recordings(bench) == 0


def test_the_inputs_are_those_of_the_start_even_if_they_change_while_the_job_runs(
    bench: Bench, lineage: LineageKind
) -> None:
    train(bench, "first")
    claim = bench.start("second")
    put(bench, "s3://data/train/1.csv", b"changed")
    bench.agent("second").end()
    bench.turn(claim, times=2)
    train(bench, "third")
    record_due(bench, lineage)
    first, second, third = (record(bench, name).inputs[0].digest for name in ("first", "second", "third"))
    assert first == second != third
    versions = bench.anna("sagemaker", "ListArtifacts", SourceUri="s3://data/train/")["ArtifactSummaries"]
    assert len(versions) == 2


def test_a_model_that_another_job_reads_joins_the_lineages(bench: Bench, lineage: LineageKind) -> None:
    train(bench)
    train(bench, "tuned", InputDataConfig=[channel("model", MODEL)])
    record_due(bench, lineage)
    found = sources(bench.anna, artifact(bench.anna, "s3://data/output/tuned/output/model.tar.gz"))
    assert found["mnist-aws-training-job"] == found["tuned-aws-training-job"] == "TrainingJob"
    assert found["s3://data/train/"] == "DataSet"


def test_a_yard_that_is_killed_at_any_step_records_the_same_once(
    bench: Bench, lineage: LineageKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    train(bench)
    writes, killed_at, records = 0, 0, bench.work.records

    def count_write(name: str) -> None:
        real = getattr(records, name)

        def write(*given: Any, **named: Any) -> Any:
            nonlocal writes
            writes += 1
            if writes == killed_at:
                raise Killed
            return real(*given, **named)

        monkeypatch.setattr(records, name, write)

    for name in ("create", "associate", "apply", "delete"):
        count_write(name)
    while recordings(bench):
        killed_at, writes = killed_at + 1, 0
        try:
            record_due(bench, lineage, seconds=120)
        except Killed:
            continue
    assert killed_at > 10
    listed = bench.anna("sagemaker", "ListAssociations", MaxResults=100)["AssociationSummaries"]
    assert len(listed) == 5


def test_a_job_with_the_name_of_a_removed_one_replaces_its_record(bench: Bench, lineage: LineageKind) -> None:
    train(bench, InputDataConfig=[channel("train", "s3://data/train/1.csv")])
    record_due(bench, lineage)
    bench.anna("sagemaker", "DeleteTrainingJob", TrainingJobName="mnist")
    assert record(bench).inputs[0].uri == "s3://data/train/1.csv"
    bench.watch.forward(1)
    train(bench, InputDataConfig=[channel("train", "s3://data/train/2.csv")])
    record_due(bench, lineage)
    [node] = {record(bench).node_arn}
    assert "s3://data/train/2.csv" in sources(bench.anna, node)
    assert "s3://data/train/1.csv" not in sources(bench.anna, node)


def test_a_recording_of_a_removed_job_is_given_up_at_once(bench: Bench, lineage: LineageKind) -> None:
    train(bench)
    bench.anna("sagemaker", "DeleteTrainingJob", TrainingJobName="mnist")
    assert record_due(bench, lineage) == 1
    assert recordings(bench) == 0
    assert bench.anna("sagemaker", "ListArtifacts")["ArtifactSummaries"] == []


def test_a_package_may_still_come_and_is_given_up_in_the_end(bench: Bench, lineage: LineageKind) -> None:
    arn = f"arn:aws:sagemaker:eu-west-3:{bench.anna.account}:model-package/digits/1"
    ensure_package_recording(bench.work.records, arn, title="digits/1", site="", now=bench.watch())
    for _ in range(MAX_TRIES + 1):
        assert record_due(bench, lineage, seconds=60) == 1
    assert recordings(bench) == 0


def test_a_registered_model_leads_back_to_its_job_and_forward_to_its_approval(
    bench: Bench, lineage: LineageKind
) -> None:
    train(bench)
    anna = bench.anna
    anna("sagemaker", "CreateModelPackageGroup", ModelPackageGroupName="digits")
    specification = {"Containers": [{"Image": "serving:1", "ModelDataUrl": MODEL}]}
    made = anna.at(bench.watch())(
        "sagemaker", "CreateModelPackage", ModelPackageGroupName="digits", InferenceSpecification=specification
    )
    arn = made["ModelPackageArn"]
    record_due(bench, lineage)
    approved = {"ModelApprovalStatus": "Approved", "ApprovalDescription": "fine"}
    anna.at(bench.watch())("sagemaker", "UpdateModelPackage", ModelPackageArn=arn, **approved)
    record_due(bench, lineage)
    package = artifact(anna, arn)
    found = sources(anna, package)
    assert (found["mnist-aws-training-job"], found["s3://data/train/"], found["serving:1"]) == (
        "TrainingJob",
        "DataSet",
        "Image",
    )
    onward = anna("sagemaker", "QueryLineage", StartArns=[package], Direction="Descendants", IncludeEdges=False)
    assert {(each["LineageType"], each["Type"]) for each in onward["Vertices"]} == {
        ("Context", "ModelGroup"),
        ("Action", "Approval"),
    }
    action = anna("sagemaker", "DescribeAction", ActionName="digits-1-aws-approval")
    assert action["Properties"] == approved


def test_equal_environments_are_stored_once(bench: Bench, lineage: LineageKind) -> None:
    for name in ("one", "two"):
        train(bench, name)
    train(bench, "hostile", packages=["x" * 1000, {"no": "text"}, *PACKAGES])  # type: ignore[list-item]
    record_due(bench, lineage)
    assert record(bench, "one").environment == record(bench, "two").environment
    assert bench.work.records.count(Query(ENVIRONMENT)) == 2
    stored = packages_in(bench.work.records, bench.anna.account, record(bench, "hostile").environment)
    assert max(map(len, stored)) == 200
    assert bench.watch() - NOON < timedelta(hours=1)
