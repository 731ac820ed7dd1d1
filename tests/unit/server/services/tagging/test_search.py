from typing import Any
from unittest.mock import patch

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.foundation.locations import BucketRef
from trainyard.server.roles import SAGEMAKER_TRUST
from trainyard.server.services.contract import Shape
from trainyard.wire.fault import Fault


@pytest.fixture
def tagged(accounts: Accounts) -> Accounts:
    """Anna has two tagged groups, a tagged role and a tagged bucket, and one of each without tags; Ben has a group."""
    anna = accounts.anna
    make_group(anna, "a", team="red", cost="1")
    make_group(anna, "b", team="blue")
    make_group(anna, "untagged")
    red = [{"Key": "team", "Value": "red"}]
    anna("iam", "CreateRole", RoleName="r", AssumeRolePolicyDocument=SAGEMAKER_TRUST, Tags=red)
    make_bucket(accounts, anna, "data", team="red")
    make_bucket(accounts, anna, "plain")
    make_group(accounts.ben, "his", team="red")
    return accounts


def test_all_tagged_resources_of_the_caller_are_found_in_the_order_of_arns(tagged: Accounts) -> None:
    answer = tagged.anna("resourcegroupstaggingapi", "GetResources")
    assert answer["PaginationToken"] == ""
    assert answer["ResourceTagMappingList"] == [
        {"ResourceARN": role(tagged.anna, "r"), "Tags": [{"Key": "team", "Value": "red"}]},
        {
            "ResourceARN": group(tagged.anna, "a"),
            "Tags": [{"Key": "cost", "Value": "1"}, {"Key": "team", "Value": "red"}],
        },
        {"ResourceARN": group(tagged.anna, "b"), "Tags": [{"Key": "team", "Value": "blue"}]},
        {"ResourceARN": "arn:aws:s3:::data", "Tags": [{"Key": "team", "Value": "red"}]},
    ]


def test_filters_ask_for_all_keys_and_for_any_of_their_values(tagged: Accounts) -> None:
    anna = tagged.anna
    everything = arns(anna)
    assert arns(anna, TagFilters=[{"Key": "team"}]) == everything
    assert arns(anna, TagFilters=[{"Key": "team", "Values": ["blue", "green"]}]) == [group(anna, "b")]
    assert arns(anna, TagFilters=[{"Key": "team", "Values": ["blue", "red"]}]) == everything
    both = [{"Key": "team", "Values": ["red"]}, {"Key": "cost", "Values": []}]
    assert arns(anna, TagFilters=both) == [group(anna, "a")]
    assert arns(anna, TagFilters=[{"Key": "Team"}]) == []


def test_types_are_a_service_or_a_service_and_a_type(tagged: Accounts) -> None:
    anna = tagged.anna
    assert arns(anna, ResourceTypeFilters=["logs"]) == [group(anna, "a"), group(anna, "b")]
    assert arns(anna, ResourceTypeFilters=["s3:bucket", "iam:role"]) == [role(anna, "r"), "arn:aws:s3:::data"]
    assert arns(anna, ResourceTypeFilters=["logs:log-stream", "sagemaker:processing-job"]) == []
    assert arns(anna, ResourceTypeFilters=["log", "iam:rol"]) == []


def test_arns_that_name_nothing_visible_and_tagged_are_left_out(tagged: Accounts) -> None:
    anna = tagged.anna
    asked = [
        group(anna, "b"),
        group(anna, "untagged"),
        group(anna, "absent"),
        group(tagged.ben, "his"),
        "arn:aws:s3:::data",
        "arn:aws:s3:::absent",
        "arn:aws:ec2:eu-west-3:123456789012:instance/i-1",
        "no arn",
    ]
    assert arns(anna, ResourceARNList=asked) == [group(anna, "b"), "arn:aws:s3:::data"]
    of_both = [group(anna, "b"), group(tagged.ben, "his"), "arn:aws:s3:::data"]
    assert sorted(arns(tagged.admin, ResourceARNList=asked)) == sorted(of_both)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_pages_hold_every_resource_once(tagged: Accounts, size: int) -> None:
    answer = tagged.anna("resourcegroupstaggingapi", "GetResources", ResourcesPerPage=size)
    found = answer["ResourceTagMappingList"]
    while answer["PaginationToken"]:
        answer = tagged.anna(
            "resourcegroupstaggingapi", "GetResources", ResourcesPerPage=size, PaginationToken=answer["PaginationToken"]
        )
        assert len(answer["ResourceTagMappingList"]) <= size
        found += answer["ResourceTagMappingList"]
    assert [each["ResourceARN"] for each in found] == arns(tagged.anna)


def test_a_page_by_tags_ends_before_the_resource_whose_tags_would_not_fit(accounts: Accounts) -> None:
    for number in range(5):
        make_group(accounts.anna, f"g{number}", **{f"key{each}": "x" for each in range(45)})
    answer = accounts.anna("resourcegroupstaggingapi", "GetResources", TagsPerPage=100)
    assert len(answer["ResourceTagMappingList"]) == 2
    assert answer["PaginationToken"]


def test_a_filter_that_rarely_matches_still_pages_to_the_end(accounts: Accounts) -> None:
    for number in range(7):
        make_group(accounts.anna, f"g{number}", team="red" if number == 6 else "blue")
    filters = [{"Key": "team", "Values": ["red"]}]
    with (
        patch("trainyard.server.services.tagging.search.MAX_SCANNED", 2),
        patch("trainyard.server.services.tagging.search._BATCH", 3),
    ):
        answer = accounts.anna("resourcegroupstaggingapi", "GetResources", TagFilters=filters)
        found: list[Shape] = []
        while answer["PaginationToken"]:
            assert answer["ResourceTagMappingList"] == []
            token = answer["PaginationToken"]
            answer = accounts.anna(
                "resourcegroupstaggingapi", "GetResources", TagFilters=filters, PaginationToken=token
            )
            found += answer["ResourceTagMappingList"]
    assert [each["ResourceARN"] for each in found] == [group(accounts.anna, "g6")]


def test_an_administrator_sees_the_resources_of_all_also_buckets_of_one_name(tagged: Accounts) -> None:
    make_bucket(tagged, tagged.ben, "data", team="green")
    answer = tagged.admin("resourcegroupstaggingapi", "GetResources", ResourceTypeFilters=["s3"], ResourcesPerPage=1)
    token = answer["PaginationToken"]
    second = tagged.admin(
        "resourcegroupstaggingapi",
        "GetResources",
        ResourceTypeFilters=["s3"],
        ResourcesPerPage=1,
        PaginationToken=token,
    )
    found = answer["ResourceTagMappingList"] + second["ResourceTagMappingList"]
    assert [each["ResourceARN"] for each in found] == ["arn:aws:s3:::data"] * 2
    assert {each["Tags"][0]["Value"] for each in found} == {"red", "green"}
    assert group(tagged.ben, "his") in arns(tagged.admin)


def test_keys_and_values_are_listed_once_in_order_for_the_caller_only(tagged: Accounts) -> None:
    api = "resourcegroupstaggingapi"
    assert tagged.anna(api, "GetTagKeys") == {"TagKeys": ["cost", "team"], "PaginationToken": ""}
    assert tagged.anna(api, "GetTagValues", Key="team") == {"TagValues": ["blue", "red"], "PaginationToken": ""}
    assert tagged.ben(api, "GetTagKeys")["TagKeys"] == ["team"]
    assert tagged.ben(api, "GetTagValues", Key="cost")["TagValues"] == []


def test_keys_are_paged(tagged: Accounts) -> None:
    with patch("trainyard.server.services.tagging.search.WORDS_PER_PAGE", 1):
        first = tagged.anna("resourcegroupstaggingapi", "GetTagKeys")
        second = tagged.anna("resourcegroupstaggingapi", "GetTagKeys", PaginationToken=first["PaginationToken"])
    assert (first["TagKeys"], second["TagKeys"], second["PaginationToken"]) == (["cost"], ["team"], "")


@pytest.mark.parametrize(
    "request_",
    [
        {"ResourceARNList": ["arn:aws:s3:::data"], "TagFilters": [{"Key": "team"}]},
        {"ResourceARNList": ["arn:aws:s3:::data"], "ResourcesPerPage": 5},
        {"ResourcesPerPage": 0},
        {"ResourcesPerPage": 101},
        {"TagsPerPage": 99},
        {"TagsPerPage": 501},
        {"TagFilters": [{"Values": ["red"]}]},
        {"ResourceTypeFilters": ["s3"] * 101},
        {"IncludeComplianceDetails": True},
        {"PaginationToken": "nonsense"},
        {"PaginationToken": "WyJvbmUiXQ=="},
        {"PaginationToken": "WzEsMl0="},
    ],
)
def test_a_search_that_cannot_be_made_is_refused(accounts: Accounts, request_: dict[str, Any]) -> None:
    with pytest.raises(Fault) as refused:
        accounts.anna("resourcegroupstaggingapi", "GetResources", **request_)
    assert refused.value.code == "InvalidParameterException"


def make_group(caller: As, name: str, **tags: str) -> None:
    caller("logs", "CreateLogGroup", logGroupName=name, **({"tags": tags} if tags else {}))


def make_bucket(accounts: Accounts, caller: As, name: str, **tags: str) -> None:
    ref = BucketRef(caller.account, name)
    accounts.yard.objects.create_bucket(ref, region="eu-west-3", now=NOON)
    accounts.yard.objects.tag_bucket(ref, tags)


def group(caller: As, name: str) -> str:
    return f"arn:aws:logs:eu-west-3:{caller.account}:log-group:{name}"


def role(caller: As, name: str) -> str:
    return f"arn:aws:iam::{caller.account}:role/{name}"


def arns(caller: As, **request: Any) -> list[str]:
    answer = caller("resourcegroupstaggingapi", "GetResources", **request)
    return [each["ResourceARN"] for each in answer["ResourceTagMappingList"]]
