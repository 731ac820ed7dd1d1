"""The content of what a job is given, as its first attempt has it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.control.lineage.test_kind import put
from tests.unit.server.services.sagemaker.requests import channel
from trainyard.foundation.jobs.attempts import Attempt
from trainyard.foundation.jobs.contents import SourceContent, digest_of_objects
from trainyard.foundation.locations import parse_s3_uri
from trainyard.server.source_contents import SourceContents

TWO = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as opened:
        yield opened


def started(bench: Bench, name: str, **changed: Any) -> Attempt:
    bench.start(name, **changed)
    attempt = bench.job(name).attempt
    assert attempt is not None, "the job is running"
    return attempt


def given(bench: Bench, name: str, shape: dict[str, Any], **changed: Any) -> SourceContent:
    [content] = started(bench, name, InputDataConfig=[shape], **changed).inputs
    return content


def test_a_channel_has_one_digest_however_its_instances_share_it(tmp_path: Path) -> None:
    digests = set()
    for distribution in ("FullyReplicated", "ShardedByS3Key"):
        (tmp_path / distribution).mkdir()
        with open_bench(tmp_path / distribution) as bench:
            shared = channel("train", "s3://data/train/", S3DataDistributionType=distribution)
            content = given(bench, "mnist", shared, ResourceConfig=TWO)
        assert (content.objects, content.size_bytes, content.etag) == (3, 3, "")
        digests.add(content.digest)
    assert [len(digest) for digest in digests] == [64]


def test_a_copy_elsewhere_has_the_same_digest_and_other_names_do_not() -> None:
    objects = [("train/a", 1, "x"), ("train/b", 2, "y")]
    moved = [(f"copy/{key}", size, etag) for key, size, etag in reversed(objects)]
    assert digest_of_objects("train/", objects) == digest_of_objects("copy/train", moved)
    assert digest_of_objects("train/", objects) != digest_of_objects(
        "train/", [("train/a", 1, "x"), ("train/c", 2, "y")]
    )
    assert digest_of_objects("train/", objects) != digest_of_objects("train/", objects[:1])


def test_a_single_object_is_known_by_its_etag_and_a_manifest_not_by_content(bench: Bench) -> None:
    put(bench, "s3://data/list.manifest", json.dumps([{"prefix": "s3://data/train/"}, "1.csv"]).encode())
    single, manifest = started(
        bench,
        "two",
        InputDataConfig=[
            channel("one", "s3://data/train/1.csv"),
            channel("listed", "s3://data/list.manifest", S3DataType="ManifestFile"),
        ],
    ).inputs
    assert (single.objects, len(single.etag)) == (1, 32)
    assert (manifest.digest, manifest.uri) == ("", "s3://data/list.manifest")


def test_the_code_of_a_job_without_a_network_is_one_of_its_channels(bench: Bench) -> None:
    path = "/opt/ml/input/data/code/sourcedir.tar.gz"
    hyperparameters = {
        "sagemaker_program": json.dumps("train.py"),
        "sagemaker_submit_directory": json.dumps(path),
    }
    attempt = started(
        bench,
        "isolated",
        HyperParameters=hyperparameters,
        InputDataConfig=[channel("code", "s3://data/code/sourcedir.tar.gz")],
        EnableNetworkIsolation=True,
    )
    contents = SourceContents(bench.accounts.yard.objects)
    job = bench.job("isolated")
    assert contents.read_code(job.plan, job.account, fetched_after=attempt.placed_at) is None
    assert [each.name for each in attempt.inputs] == ["code"]


def test_code_that_has_changed_since_the_job_fetched_it_has_no_digest(bench: Bench) -> None:
    put(bench, "s3://data/code/sourcedir.tar.gz", b"code")
    contents = SourceContents(bench.accounts.yard.objects)
    bench.start("mnist")
    job = bench.job("mnist")
    plan = replace(job.plan, submit_directory="s3://data/code/sourcedir.tar.gz")
    stored_at = contents.objects.info(parse_s3_uri(plan.submit_directory, job.account)).modified_at
    same = contents.read_code(plan, job.account, fetched_after=stored_at)
    changed = contents.read_code(plan, job.account, fetched_after=stored_at - timedelta(seconds=1))
    assert same is not None
    assert changed is not None
    assert (len(same.digest), changed.digest) == (64, "")
