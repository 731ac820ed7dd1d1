import pytest

from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.tuning.requests import create_tuning
from trainyard.wire.fault import Fault


@pytest.fixture
def arn(anna: As) -> str:
    made: str = create(anna, Tags=[{"Key": "team", "Value": "vision"}])["TrainingJobArn"]
    return made


def tags(user: As, arn: str) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in user("sagemaker", "ListTags", ResourceArn=arn)["Tags"]}


def test_tags_are_added_replaced_and_removed(anna: As, arn: str) -> None:
    told = anna(
        "sagemaker", "AddTags", ResourceArn=arn, Tags=[{"Key": "a", "Value": "1"}, {"Key": "team", "Value": "x"}]
    )
    assert {tag["Key"]: tag["Value"] for tag in told["Tags"]} == {"a": "1", "team": "x"}
    anna("sagemaker", "DeleteTags", ResourceArn=arn, TagKeys=["team", "never there"])
    assert tags(anna, arn) == {"a": "1"}


def test_an_arn_of_any_region_names_the_job(anna: As, arn: str) -> None:
    assert tags(anna, arn.replace("eu-west-3", "us-east-1")) == {"team": "vision"}


def test_a_job_has_at_most_fifty_tags(anna: As, arn: str) -> None:
    with pytest.raises(Fault) as caught:
        anna("sagemaker", "AddTags", ResourceArn=arn, Tags=[{"Key": f"k{n}", "Value": ""} for n in range(50)])
    assert caught.value.code == "ResourceLimitExceeded"
    assert tags(anna, arn) == {"team": "vision"}


def test_tags_of_another_user_do_not_exist(accounts: Accounts, arn: str) -> None:
    with pytest.raises(Fault, match=r"Requested resource not found\."):
        tags(accounts.ben, arn)


def test_the_arn_of_an_unsupported_type_is_refused(anna: As) -> None:
    with pytest.raises(Fault, match="not the ARN of a SageMaker resource"):
        tags(anna, f"arn:aws:sagemaker:eu-west-3:{anna.account}:notebook-instance/x")


def test_the_tagging_api_sees_and_changes_the_same_tags(anna: As, arn: str) -> None:
    anna("resourcegroupstaggingapi", "TagResources", ResourceARNList=[arn], Tags={"stage": "test"})
    assert tags(anna, arn) == {"team": "vision", "stage": "test"}
    found = anna("resourcegroupstaggingapi", "GetResources", ResourceTypeFilters=["sagemaker:training-job"])
    assert [each["ResourceARN"] for each in found["ResourceTagMappingList"]] == [arn]


def test_a_tuning_job_has_tags_by_its_arn_whatever_the_case_of_its_name(accounts: Accounts, anna: As) -> None:
    arn: str = create_tuning(anna, "Tune", Tags=[{"Key": "team", "Value": "vision"}])["HyperParameterTuningJobArn"]
    anna("sagemaker", "AddTags", ResourceArn=arn.lower(), Tags=[{"Key": "a", "Value": "1"}])
    assert tags(anna, arn) == {"team": "vision", "a": "1"}
    asked = {"ResourceTypeFilters": ["sagemaker:hyper-parameter-tuning-job"]}
    found = anna("resourcegroupstaggingapi", "GetResources", **asked)["ResourceTagMappingList"]
    assert [each["ResourceARN"] for each in found] == [arn]
    anna("resourcegroupstaggingapi", "UntagResources", ResourceARNList=[arn], TagKeys=["team"])
    assert tags(anna, arn) == {"a": "1"}
    with pytest.raises(Fault) as caught:
        tags(accounts.ben, arn)
    assert caught.value.code == "ResourceNotFound"
