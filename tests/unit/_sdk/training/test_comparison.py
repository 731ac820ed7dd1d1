import io
import json
import tarfile
from typing import Any

from tests.unit.recording import RecordingApi
from trainyard._sdk.training.comparison import facts_of
from trainyard.insight.comparison import JobFacts, compare_facts, diff_code
from trainyard.wire.client import CallFailed


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as opened:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"./{name}.py")
            entry.size = len(text)
            opened.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def description(name: str, **more: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": name,
        "TrainingJobStatus": "Completed",
        "AlgorithmSpecification": {"TrainingImage": "image:1", "TrainingInputMode": "File"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        "HyperParameters": {
            "lr": "0.1",
            "sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": json.dumps(f"s3://bucket/{name}/source/sourcedir.tar.gz"),
        },
        "FinalMetricDataList": [{"MetricName": "loss", "Value": 0.5}],
    } | more


def facts(name: str, code: bytes, **more: Any) -> JobFacts:
    listed = {"Contents": [{"Key": "d/a", "Size": 1, "ETag": "x", "LastModified": None}]}
    api = RecordingApi(HeadObject={"ContentLength": len(code)}, GetObject={"Body": code}, ListObjectsV2=listed)
    return facts_of(api, description(name, **more))


def differences(*jobs: JobFacts) -> dict[tuple[str, str], list[str | None]]:
    return {(each.kind, each.name): list(each.values) for each in compare_facts(jobs) if not each.is_same}


def test_equal_jobs_differ_in_nothing() -> None:
    assert differences(facts("a", archive(train="x = 1")), facts("b", archive(train="x = 1"))) == {}


def test_jobs_differ_in_metrics_parameters_code_and_instances() -> None:
    first = facts(
        "a", archive(train="x = 1", old=""), HyperParameters={**description("a")["HyperParameters"], "n": "1"}
    )
    second = facts(
        "b",
        archive(train="x = 2", new=""),
        FinalMetricDataList=[{"MetricName": "loss", "Value": 0.25}],
        ResourceConfig={"InstanceType": "ml.p3.2xlarge", "InstanceCount": 2},
    )

    found = differences(first, second)

    assert found["metric", "loss"] == ["0.5", "0.25"]
    assert found["parameter", "n"] == ["1", None]
    assert found["instances", "type"] == ["1 x ml.m5.large", "2 x ml.p3.2xlarge"]
    assert {name for kind, name in found if kind == "code"} == {"train.py", "old.py", "new.py"}
    assert list(diff_code(first, second)) == [
        "--- a/train.py",
        "+++ b/train.py",
        "@@ -1 +1 @@",
        "-x = 1",
        "+x = 2",
    ]


def test_packages_that_the_code_asks_for_are_compared() -> None:
    def requiring(name: str, text: str) -> JobFacts:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as opened:
            entry = tarfile.TarInfo("requirements.txt")
            entry.size = len(text)
            opened.addfile(entry, io.BytesIO(text.encode()))
        return facts(name, buffer.getvalue())

    first = requiring("a", "# models\nMy_Models[all] == 1.2  # pinned\nnumpy\n-r more.txt\n")
    second = requiring("b", "my-models==1.3\nnumpy\n")
    packages = {name: values for (kind, name), values in differences(first, second).items() if kind == "package"}
    assert packages == {"my-models": ["==1.2", "==1.3"], "-r more.txt": ["yes", None]}
    assert first.values["package", "numpy"] == "any version"


def test_binary_files_are_named_only() -> None:
    first, second = facts("a", archive(data="\0")), facts("b", archive(data="\0\0"))
    assert list(diff_code(first, second)) == ["Binary files a/data.py and b/data.py differ"]


def channel(uri: str) -> list[dict[str, Any]]:
    return [{"ChannelName": "train", "DataSource": {"S3DataSource": {"S3Uri": uri}}}]


def test_data_is_compared_by_its_content() -> None:
    first = facts("a", archive(), InputDataConfig=channel("s3://bucket/d"))
    second = facts("b", archive(), InputDataConfig=channel("s3://bucket/d/"))
    assert set(differences(first, second)) == {("data location", "train")}

    tree = "trainyard-inputs/trees/" + "ab" * 16
    uploads = [facts("a", archive(), InputDataConfig=channel(f"s3://bucket/{tree}-{end * 16}/")) for end in ("0", "1")]
    assert ("data", "train") not in differences(*uploads)
    assert uploads[0].values["data", "train"] == "content abababababab"


def test_code_and_data_that_are_gone_are_compared_by_what_is_known() -> None:
    def gone(_: dict[str, Any]) -> dict[str, Any]:
        raise CallFailed("NoSuchKey", "gone", status=404)

    api = RecordingApi(HeadObject=gone, ListObjectsV2=gone)
    found = facts_of(api, description("a", InputDataConfig=channel("s3://bucket/d")))

    assert found.code == {}
    assert found.values["data", "train"] == "s3://bucket/d"
