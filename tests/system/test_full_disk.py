"""A yard on its own disk, which an ordinary user fills up."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee, packed
from tests.unit.instance.agent.wheels import make_source
from tests.unit.server.services.sagemaker.rules import EVALUATOR, rule
from trainyard.testing.yard import RunningYard, running_yard

MIB = 1 << 20
RESERVE = 16 * MIB


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount the small disk that this fills up")
    place = tmp_path_factory.mktemp("disk")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this machine does not let root mount the small disk that this fills up")
    try:
        with running_yard(place / "yard", environment={"TRAINYARD_SERVER_RESERVE_BYTES": str(RESERVE)}) as running:
            yield running
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture(scope="module")
def admin(yard: RunningYard) -> User:
    known = yard.credentials
    return User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)


@pytest.fixture(scope="module")
def anna(admin: User) -> User:
    return admin.add_user("anna")


def free_bytes(yard: RunningYard) -> int:
    disk = os.statvfs(yard.home.root)
    return disk.f_bavail * disk.f_frsize


def fill(s3: Any, bucket: str, size: int) -> ClientError:
    """Put objects of a size until one is refused, and return the error."""
    for number in range(1000):
        try:
            s3.put_object(Bucket=bucket, Key=f"{size}-{number}", Body=b"x" * size)
        except ClientError as error:
            return error
    raise AssertionError("nothing was ever refused")


def test_uploads_that_fill_the_disk_are_refused_and_everything_else_continues(
    yard: RunningYard, admin: User, anna: User
) -> None:
    s3 = anna.client("s3")
    s3.create_bucket(Bucket="full")
    upload = s3.create_multipart_upload(Bucket="full", Key="parts")["UploadId"]
    for size in (4 * MIB, 100_000, 1_000):
        error = fill(s3, "full", size).response
        assert error["Error"]["Code"] == "ServiceUnavailable"
        assert "kept for the yard's own records" in error["Error"]["Message"]
        assert free_bytes(yard) > RESERVE * 3 // 4
    with pytest.raises(ClientError, match="kept for the yard's own records"):
        s3.upload_part(Bucket="full", Key="parts", UploadId=upload, PartNumber=1, Body=b"x" * MIB)

    admin.client("iam").create_user(UserName="carla")
    admin.client("iam").create_access_key(UserName="carla")
    admin.client("logs").create_log_group(logGroupName="/still/works")
    assert "full" in [each["Name"] for each in s3.list_buckets()["Buckets"]]
    assert len(s3.get_object(Bucket="full", Key=f"{4 * MIB}-0")["Body"].read()) == 4 * MIB
    told = status(yard)["Yard"]["Storage"]
    assert (told["ReserveBytes"], told["UsedBytes"] > 40 * MIB) == (RESERVE, True)

    keys = [each["Key"] for each in s3.list_objects_v2(Bucket="full")["Contents"]]
    s3.delete_objects(Bucket="full", Delete={"Objects": [{"Key": key} for key in keys]})
    s3.put_object(Bucket="full", Key="again", Body=b"x" * 4 * MIB)


def test_a_storage_quota_is_held_and_binds_nobody_else(yard: RunningYard, admin: User, anna: User) -> None:
    trainyard(yard, "quota", "storage", "anna", "10MiB")
    s3 = anna.client("s3")
    s3.create_bucket(Bucket="limited")
    error = fill(s3, "limited", MIB).response
    assert (error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"]) == ("QuotaExceeded", 403)
    assert "of 10485760 bytes" in error["Error"]["Message"]
    (told,) = json.loads(trainyard(yard, "quota", "ls", "--user", "anna", "--json"))["StorageQuotas"]
    assert told["LimitBytes"] - MIB - 4096 < told["UsedBytes"] <= told["LimitBytes"]
    admin.client("s3").create_bucket(Bucket="of-admin")
    admin.client("s3").put_object(Bucket="of-admin", Key="free", Body=b"x" * MIB)
    trainyard(yard, "quota", "storage", "anna", "--remove")
    s3.put_object(Bucket="limited", Key="more", Body=b"x" * MIB)


# Fills the disk with a named or unnamed file, from a program, a rule or a package build.
HOARDING = """
import os, sys, time
def hoard(path, keeps_name):
    with open(path, "wb") as file:
        if not keeps_name:
            os.unlink(path)
        try:
            for _ in range(90):
                file.write(os.urandom(1 << 20))
                file.flush()
        except OSError:
            pass
        time.sleep(3600)
"""


def test_a_program_that_fills_the_disk_with_a_file_without_a_name_is_ended(yard: RunningYard, anna: User) -> None:
    s3 = anna.client("s3")
    s3.create_bucket(Bucket="ballast")
    while free_bytes(yard) > 60 * MIB:
        s3.put_object(Bucket="ballast", Key=f"ballast-{free_bytes(yard)}", Body=b"x" * 4 * MIB)
    job = Trainee(anna, bucket="jobs").prepare().run("hoard", f"{HOARDING}hoard('/tmp/hoard', False)\n")
    assert job["TrainingJobStatus"] == "Failed"
    assert "filled the disk" in job["FailureReason"]


def test_a_program_that_fills_the_folder_of_its_launcher_is_ended_and_leaves_nothing(
    yard: RunningYard, anna: User
) -> None:
    told = Trainee(anna, bucket="ballast").run("hoarding", f"{HOARDING}hoard('/run/trainyard/launch/hoard', True)\n")
    assert told["TrainingJobStatus"] == "Failed", told
    assert "filled the disk" in told["FailureReason"], told
    assert list(yard.home.jobs.rglob("hoard")) == []
    assert free_bytes(yard) > 2 * RESERVE


def test_a_rule_that_fills_the_disk_is_ended_and_the_program_is_not(yard: RunningYard, anna: User) -> None:
    trainee = Trainee(anna, bucket="ballast")
    source = f"{HOARDING}open('/tmp/begun', 'w').close()\nhoard('/tmp/hoard', False)\n"
    anna.client("s3").put_object(Bucket="ballast", Key="rule.py", Body=source.encode())
    rules = [rule("Hoard", image=EVALUATOR, source_s3_uri="s3://ballast/rule.py")]
    script = "import pathlib, time\nwhile not pathlib.Path('/tmp/begun').exists(): time.sleep(0.01)\ntime.sleep(5)\n"
    hooked = {"S3OutputPath": "s3://ballast/tensors"}
    told = trainee.run("hoarding-rule", script, DebugHookConfig=hooked, DebugRuleConfigurations=rules)
    assert told["TrainingJobStatus"] == "Completed", told
    (found,) = told["DebugRuleEvaluationStatuses"]
    assert "filled the disk" in found["StatusDetails"], found
    assert free_bytes(yard) > 2 * RESERVE


def test_a_package_that_fills_the_disk_while_it_is_built_is_ended(yard: RunningYard, anna: User) -> None:
    trainee = Trainee(anna, bucket="ballast")
    backend = f"{HOARDING}hoard('/opt/ml/.trainyard/environment/hoard', True)\n"
    with TemporaryDirectory() as folder:
        package = make_source(Path(folder), "hoard", "1.0", backend=backend).read_bytes()
    files: dict[str, str | bytes] = {
        "train.py": "print('trains')",
        "requirements.txt": "--no-index\n--find-links /opt/ml/code/packages\nhoard==1.0\n",
        "packages/hoard-1.0.tar.gz": package,
    }
    anna.client("s3").put_object(Bucket="ballast", Key="code.tar.gz", Body=packed(files))
    named = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://ballast/code.tar.gz"}
    told = trainee.run("hoarding-package", "", HyperParameters=named)
    assert told["TrainingJobStatus"] == "Failed", told
    assert "filled the disk" in told["FailureReason"], told
    assert free_bytes(yard) > 2 * RESERVE


def status(yard: RunningYard) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(trainyard(yard, "status", "--json"))
    return told


def trainyard(yard: RunningYard, *words: str) -> str:
    command = [sys.executable, "-m", "trainyard.cli", *words, "--home", str(yard.home.root)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
