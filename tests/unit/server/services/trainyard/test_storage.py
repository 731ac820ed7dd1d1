import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.trainyard.test_quotas import keep
from trainyard.link.package_downloads import PackageDownloads
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import ResourceKey


def buckets(user: As) -> dict[str, tuple[str, int]]:
    found = user("trainyard", "DescribeStorage")["Buckets"]
    return {each["BucketName"]: (each["UserName"], each["Bytes"]) for each in found}


def jobs(user: As, **asked: Any) -> dict[str, tuple[str, int]]:
    found = user("trainyard", "ListJobStorage", **asked)["Jobs"]
    return {each["TrainingJobName"]: (each["UserName"], each["FilesBytes"]) for each in found}


def test_users_see_their_own_buckets_and_administrators_all(accounts: Accounts) -> None:
    keep(accounts, accounts.anna, 5_000)
    assert buckets(accounts.anna) == {"kept": ("anna", 9_096)}
    assert buckets(accounts.ben) == {}
    assert buckets(accounts.admin)["kept"] == ("anna", 9_096)


def test_an_empty_bucket_uses_nothing(accounts: Accounts, anna: As) -> None:
    anna("s3", "CreateBucket", Bucket="empty")
    assert buckets(anna)["empty"] == ("anna", 0)


def test_what_jobs_downloaded_counts_among_their_packages(anna: As, tmp_path: Path) -> None:
    content = b"a wheel"
    with PackageDownloads(tmp_path / anna.account).writer(hashlib.sha256(content).hexdigest()) as writer:
        writer.write(content)
        writer.commit()
    yard = replace(anna.yard, compute=replace(anna.yard.compute, environments=tmp_path))

    found = replace(anna, yard=yard)("trainyard", "DescribeStorage")["Environments"]

    assert found == [{"UserName": "anna", "Environments": 0, "Bytes": len(content)}]


def test_the_files_of_jobs_are_measured(accounts: Accounts, anna: As) -> None:
    for name in ("one", "two"):
        create(anna, TrainingJobName=name)
    resource = anna.yard.records.load(ResourceKey(anna.account, KIND, "one"))
    logs = anna.yard.compute.jobs / resource.id / "1" / "algo-1" / "logs"
    logs.mkdir(parents=True)
    (logs / "0.log").write_bytes(b"x" * 1000)

    assert jobs(anna) == jobs(accounts.admin) == {"one": ("anna", 1000), "two": ("anna", 0)}
    assert jobs(accounts.ben) == {}

    first = anna("trainyard", "ListJobStorage", MaxResults=1)
    rest = anna("trainyard", "ListJobStorage", MaxResults=1, NextToken=first["NextToken"])
    # Both were created at the same moment, so either may come first.
    assert {page["Jobs"][0]["TrainingJobName"] for page in (first, rest)} == {"one", "two"}
    assert rest["NextToken"] is None
