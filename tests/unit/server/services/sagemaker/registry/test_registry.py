"""Model package groups, packages and their approval."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.wire.fault import Fault

MODEL = "s3://data/train/1.csv"


def specification(uri: str = MODEL, **more: Any) -> dict[str, Any]:
    return {"Containers": [{"Image": "image:1", "ModelDataUrl": uri}], **more}


def group(user: As, name: str = "churn", **more: Any) -> str:
    arn: str = user("sagemaker", "CreateModelPackageGroup", ModelPackageGroupName=name, **more)["ModelPackageGroupArn"]
    return arn


def register(user: As, name: str = "churn", *, minute: int = 0, **more: Any) -> str:
    given = {"InferenceSpecification": specification(), **more}
    arn: str = user.at(NOON + timedelta(minutes=minute))(
        "sagemaker", "CreateModelPackage", ModelPackageGroupName=name, **given
    )["ModelPackageArn"]
    return arn


def describe(user: As, name: str, **more: Any) -> dict[str, Any]:
    return user("sagemaker", "DescribeModelPackage", ModelPackageName=name, **more)


def code_of(caught: pytest.ExceptionInfo[Fault]) -> str:
    return caught.value.code


def test_versions_are_numbered_and_never_reused(anna: As) -> None:
    group(anna)
    first, second = register(anna), register(anna, minute=1)
    assert [arn.rpartition("model-package/")[2] for arn in (first, second)] == ["churn/1", "churn/2"]
    anna("sagemaker", "DeleteModelPackage", ModelPackageName="churn/2")
    assert register(anna, minute=2).endswith("churn/3")
    told = describe(anna, first)
    assert told == describe(anna, "churn/1")
    assert (told["ModelPackageGroupName"], told["ModelPackageVersion"]) == ("churn", 1)
    assert (told["ModelPackageStatus"], told["ModelApprovalStatus"]) == ("Completed", "PendingManualApproval")
    assert told["InferenceSpecification"]["Containers"][0]["ModelDataETag"]
    listed = anna("sagemaker", "ListModelPackages", ModelPackageGroupName="churn", MaxResults=1)
    assert [each["ModelPackageVersion"] for each in listed["ModelPackageSummaryList"]] == [1]
    rest = anna(
        "sagemaker", "ListModelPackages", ModelPackageGroupName="churn", MaxResults=1, NextToken=listed["NextToken"]
    )
    assert [each["ModelPackageVersion"] for each in rest["ModelPackageSummaryList"]] == [3]


def test_a_version_is_approved_with_a_reason_and_metadata(anna: As) -> None:
    group(anna)
    arn = register(anna, CustomerMetadataProperties={"owner": "anna", "dropped": "x"})
    later = anna.at(NOON + timedelta(hours=1))
    later(
        "sagemaker",
        "UpdateModelPackage",
        ModelPackageArn=arn,
        ModelApprovalStatus="Approved",
        ApprovalDescription="good on Zürich",
        CustomerMetadataProperties={"ticket": "7"},
        CustomerMetadataPropertiesToRemove=["dropped", "never there"],
        ModelLifeCycle={"Stage": "Production", "StageStatus": "Approved"},
    )
    told = describe(anna, arn)
    assert (told["ModelApprovalStatus"], told["ApprovalDescription"]) == ("Approved", "good on Zürich")
    assert told["CustomerMetadataProperties"] == {"owner": "anna", "ticket": "7"}
    assert told["ModelLifeCycle"]["Stage"] == "Production"
    assert told["LastModifiedTime"] == NOON + timedelta(hours=1)
    register(anna)
    approved = anna("sagemaker", "ListModelPackages", ModelPackageGroupName="churn", ModelApprovalStatus="Approved")
    assert [each["ModelPackageArn"] for each in approved["ModelPackageSummaryList"]] == [arn]


def test_a_package_without_a_group_has_a_name_and_no_approval(anna: As) -> None:
    types: dict[str, Any] = {
        "SupportedTransformInstanceTypes": ["ml.m5.large"],
        "SupportedRealtimeInferenceInstanceTypes": ["ml.m5.large"],
    }
    made = {"ModelPackageName": "alone", "InferenceSpecification": specification(**types)}
    arn = anna("sagemaker", "CreateModelPackage", **made)["ModelPackageArn"]
    with pytest.raises(Fault, match="already exists"):
        anna("sagemaker", "CreateModelPackage", **made)
    with pytest.raises(Fault, match="needs SupportedTransformInstanceTypes"):
        anna("sagemaker", "CreateModelPackage", ModelPackageName="b", InferenceSpecification=specification())
    with pytest.raises(Fault, match="neither approved nor rejected"):
        anna("sagemaker", "UpdateModelPackage", ModelPackageArn=arn, ModelApprovalStatus="Approved")
    group(anna)
    register(anna)

    def titles(**asked: Any) -> list[str]:
        found = anna("sagemaker", "ListModelPackages", **asked)["ModelPackageSummaryList"]
        return [each["ModelPackageName"] for each in found]

    assert titles() == ["alone"]
    assert titles(ModelPackageType="Versioned") == ["churn"]
    assert titles(ModelPackageType="Both", SortBy="Name", SortOrder="Descending") == ["churn", "alone"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ModelPackageGroupName": "gone", "InferenceSpecification": specification()}, "gone does not exist"),
        ({"InferenceSpecification": specification()}, "Give either a ModelPackageGroupName"),
        (
            {"ModelPackageGroupName": "churn", "InferenceSpecification": specification("s3://data/none")},
            "Could not find model data at s3://data/none.",
        ),
        (
            {"ModelPackageGroupName": "churn", "InferenceSpecification": specification("s3://nowhere/none")},
            "Could not find model data at s3://nowhere/none.",
        ),
        (
            {"ModelPackageGroupName": "churn", "InferenceSpecification": specification("https://x/y")},
            '"https://x/y" is not on S3',
        ),
        ({"ModelPackageGroupName": "churn"}, "needs an InferenceSpecification"),
        (
            {
                "ModelPackageGroupName": "churn",
                "SourceAlgorithmSpecification": {"SourceAlgorithms": [{"AlgorithmName": "a"}]},
            },
            "does not serve SourceAlgorithmSpecification yet",
        ),
    ],
)
def test_a_package_that_cannot_be_is_refused(anna: As, given: dict[str, Any], words: str) -> None:
    group(anna)
    with pytest.raises(Fault) as caught:
        anna("sagemaker", "CreateModelPackage", **given)
    assert code_of(caught) == "ValidationException"
    assert words in caught.value.message


def test_a_package_copies_the_specification_of_the_package_that_it_comes_from(anna: As) -> None:
    group(anna)
    group(anna, "other")
    source = register(anna)
    copy = anna("sagemaker", "CreateModelPackage", ModelPackageGroupName="other", SourceUri=source)["ModelPackageArn"]
    assert describe(anna, copy)["InferenceSpecification"] == describe(anna, source)["InferenceSpecification"]
    assert describe(anna, copy)["SourceUri"] == source


def test_a_group_in_use_is_not_deleted(anna: As) -> None:
    arn = group(anna, Tags=[{"Key": "team", "Value": "vision"}])
    with pytest.raises(Fault, match=f"Model Package Group already exists: {arn}"):
        group(anna)
    register(anna)
    with pytest.raises(Fault, match="still has model packages") as caught:
        anna("sagemaker", "DeleteModelPackageGroup", ModelPackageGroupName=arn)
    assert code_of(caught) == "ConflictException"
    anna("sagemaker", "DeleteModelPackage", ModelPackageName="churn/1")
    assert anna("sagemaker", "ListTags", ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "vision"}]
    anna("sagemaker", "DeleteModelPackageGroup", ModelPackageGroupName=arn)
    with pytest.raises(Fault, match=f"ModelPackageGroup {arn} does not exist") as caught:
        anna("sagemaker", "DescribeModelPackageGroup", ModelPackageGroupName="churn")
    assert code_of(caught) == "ValidationException"


def test_a_group_has_a_policy(anna: As) -> None:
    group(anna)
    named = {"ModelPackageGroupName": "churn"}
    with pytest.raises(Fault, match="Cannot find resource policy"):
        anna("sagemaker", "GetModelPackageGroupPolicy", **named)
    with pytest.raises(Fault, match="is not JSON"):
        anna("sagemaker", "PutModelPackageGroupPolicy", **named, ResourcePolicy="{")
    anna("sagemaker", "PutModelPackageGroupPolicy", **named, ResourcePolicy='{"Version": "2012-10-17"}')
    assert anna("sagemaker", "GetModelPackageGroupPolicy", **named)["ResourcePolicy"] == '{"Version": "2012-10-17"}'
    anna("sagemaker", "DeleteModelPackageGroupPolicy", **named)
    with pytest.raises(Fault, match="Cannot find resource policy"):
        anna("sagemaker", "DeleteModelPackageGroupPolicy", **named)


def test_several_packages_are_described_at_once(anna: As) -> None:
    group(anna)
    arn = register(anna)
    missing = arn.replace("churn/1", "churn/9")
    told = anna("sagemaker", "BatchDescribeModelPackage", ModelPackageArnList=[arn, missing])
    assert told["ModelPackageSummaries"][arn]["ModelPackageVersion"] == 1
    assert "does not exist" in told["BatchDescribeModelPackageErrorMap"][missing]["ErrorResponse"]


def test_a_model_card_is_shown_without_its_details(anna: As) -> None:
    group(anna)
    card = {"ModelCardContent": '{"intended_uses": {"risk_rating": "Low", "purpose": "x"}}', "ModelCardStatus": "Draft"}
    arn = register(anna, ModelCard=card)
    assert describe(anna, arn)["ModelCard"] == card
    shown = describe(anna, arn, IncludedData="MetadataOnly")["ModelCard"]
    assert shown == {"ModelCardContent": '{"intended_uses": {"risk_rating": "Low"}}', "ModelCardStatus": "Draft"}


def test_packages_and_groups_are_searched(anna: As) -> None:
    for name in ("churn", "fraud"):
        group(anna, name)
    approved = register(anna, "fraud", ModelApprovalStatus="Approved", Tags=[{"Key": "team", "Value": "risk"}])
    register(anna, "fraud", minute=1, Domain="MACHINE_LEARNING")
    register(anna, "churn")

    def found(resource: str, *filters: tuple[str, str]) -> list[dict[str, Any]]:
        expression = {"Filters": [{"Name": name, "Operator": "Equals", "Value": value} for name, value in filters]}
        asked = {"Resource": resource, "SearchExpression": expression, "SortOrder": "Ascending"}
        return [each[resource] for each in anna("sagemaker", "Search", **asked)["Results"]]

    in_group = found("ModelPackage", ("ModelPackageGroupName", "fraud"))
    assert [each["ModelPackageVersion"] for each in in_group] == [1, 2]
    assert [each["ModelPackageArn"] for each in found("ModelPackage", ("ModelApprovalStatus", "Approved"))] == [
        approved
    ]
    assert [each["Tags"] for each in found("ModelPackage", ("Tags.team", "risk"))] == [
        [{"Key": "team", "Value": "risk"}]
    ]
    assert len(found("ModelPackage", ("Domain", "MACHINE_LEARNING"))) == 1
    assert [
        each["ModelPackageGroupName"] for each in found("ModelPackageGroup", ("ModelPackageGroupName", "churn"))
    ] == ["churn"]


def test_the_registry_of_another_user_does_not_exist(accounts: Accounts, anna: As) -> None:
    arn_of_group, arn = group(anna), register(anna)
    ben = accounts.ben
    for operation, asked in (
        ("DescribeModelPackage", {"ModelPackageName": arn}),
        ("UpdateModelPackage", {"ModelPackageArn": arn, "ModelApprovalStatus": "Approved"}),
        ("DeleteModelPackage", {"ModelPackageName": arn}),
        ("DescribeModelPackageGroup", {"ModelPackageGroupName": arn_of_group}),
        ("CreateModelPackage", {"ModelPackageGroupName": arn_of_group, "InferenceSpecification": specification()}),
    ):
        with pytest.raises(Fault, match=r"does not exist|Could not find"):
            ben("sagemaker", operation, **asked)
    assert ben("sagemaker", "ListModelPackageGroups")["ModelPackageGroupSummaryList"] == []
    assert describe(accounts.admin, arn)["ModelPackageVersion"] == 1
