"""The keys that a training job names, checked when it is created."""

from dataclasses import replace

import pytest

from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create, describe
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import ResourceKey
from trainyard.wire.fault import Fault

RESOURCES = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}


def output(key: str) -> dict[str, str]:
    return {"S3OutputPath": "s3://data/output", "KmsKeyId": key}


def new_key(user: As) -> str:
    key: str = user("kms", "CreateKey")["KeyMetadata"]["Arn"]
    return key


def output_key(user: As, name: str = "mnist") -> str:
    return job_of(user.yard.records.load(ResourceKey(user.account, KIND, name))).plan.output_key


def test_the_results_are_encrypted_with_the_key_that_the_alias_names_now(anna: As) -> None:
    first, second = new_key(anna), new_key(anna)
    anna("kms", "CreateAlias", AliasName="alias/models", TargetKeyId=first)
    create(anna, OutputDataConfig=output("alias/models"))
    anna("kms", "UpdateAlias", AliasName="alias/models", TargetKeyId=second)
    assert output_key(anna) == first
    assert describe(anna)["OutputDataConfig"]["KmsKeyId"] == "alias/models"
    create(anna, "by-id", OutputDataConfig=output(first.rpartition("/")[2]))
    assert output_key(anna, "by-id") == first
    create(anna, "unencrypted", OutputDataConfig=output(""))
    assert output_key(anna, "unencrypted") == ""


def test_a_key_that_cannot_be_used_is_refused_before_the_job_runs(accounts: Accounts, anna: As) -> None:
    theirs, mine = new_key(accounts.ben), new_key(anna)
    anna("kms", "DisableKey", KeyId=mine)
    for reference, words in [
        (theirs, "does not exist in your account"),
        ("alias/none", "does not exist in your account"),
        (mine, "is disabled"),
    ]:
        with pytest.raises(Fault, match=words) as caught:
            create(anna, OutputDataConfig=output(reference))
        assert caught.value.code == "ValidationException"


def test_a_volume_key_needs_an_encrypted_disk(anna: As) -> None:
    asked = {**RESOURCES, "VolumeKmsKeyId": "alias/disks"}
    with pytest.raises(Fault, match="disk_is_encrypted = true") as caught:
        create(anna, ResourceConfig=asked)
    assert caught.value.code == "ValidationException"
    encrypted = replace(anna.yard, compute=replace(anna.yard.compute, has_encrypted_disks=True))
    create(replace(anna, yard=encrypted), ResourceConfig=asked)
    job = job_of(anna.yard.records.load(ResourceKey(anna.account, KIND, "mnist")))
    assert [note for note in job.notes if "VolumeKmsKeyId" in note]
