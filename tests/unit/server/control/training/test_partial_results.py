"""What an agent that died during an upload left of results without compression."""

from tests.unit.server.control.bench import Bench
from tests.unit.server.services.accounts import NOON
from trainyard.foundation.locations import BucketRef, Location
from trainyard.link.contract import FrameKind
from trainyard.objects.contract import Attributes, NewObject, WritesBatches
from trainyard.server.records.contract import Claim

FOLDER = "output/mnist/output"
MODEL, OUTPUT = [f"{FOLDER}/model/a", f"{FOLDER}/model/b/c"], [f"{FOLDER}/output/log"]
OTHERS = [f"{FOLDER}/model.tar.gz", "output/mnist/x"]


def put(bench: Bench) -> None:
    objects = bench.accounts.yard.objects
    assert isinstance(objects, WritesBatches)
    bucket = BucketRef(bench.anna.account, "data")
    new = [NewObject(Location(bucket, key), b"1", Attributes()) for key in (*MODEL, *OUTPUT, *OTHERS)]
    objects.put_batch(new, now=NOON)


def keys(bench: Bench) -> list[str]:
    bucket = BucketRef(bench.anna.account, "data")
    return [each.key for each in bench.accounts.yard.objects.list_objects(bucket, prefix="output/").objects]


def start_uploading(bench: Bench, compression: str = "NONE") -> Claim:
    claim = bench.start(OutputDataConfig={"S3OutputPath": "s3://data/output", "CompressionType": compression})
    put(bench)
    bench.agent().report(FrameKind.STATUS, status="Uploading", message="")
    uploading = bench.turn(claim)
    assert uploading is not None
    return uploading


def test_results_that_were_not_stored_completely_are_deleted(bench: Bench) -> None:
    claim = start_uploading(bench)
    bench.agent().report(FrameKind.ARTIFACT, kind="model", uri=f"s3://data/{FOLDER}/model/", size=2)
    bench.agent().die()
    assert bench.turn(claim) is None
    assert keys(bench) == sorted([*MODEL, *OTHERS])


def test_results_of_an_instance_that_reported_its_end_stay(bench: Bench) -> None:
    claim = start_uploading(bench)
    bench.agent().end("failed", reason="AlgorithmError")
    assert bench.turn(claim) is None
    assert keys(bench) == sorted([*MODEL, *OUTPUT, *OTHERS])


def test_archives_are_whole_and_stay(bench: Bench) -> None:
    claim = start_uploading(bench, "GZIP")
    bench.agent().die()
    assert bench.turn(claim) is None
    assert keys(bench) == sorted([*MODEL, *OUTPUT, *OTHERS])


def test_a_job_that_dies_before_it_uploads_deletes_nothing(bench: Bench) -> None:
    claim = bench.start(OutputDataConfig={"S3OutputPath": "s3://data/output", "CompressionType": "NONE"})
    put(bench)
    bench.agent().die()
    assert bench.turn(claim) is None
    assert keys(bench) == sorted([*MODEL, *OUTPUT, *OTHERS])
