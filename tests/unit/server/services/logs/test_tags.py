import pytest

from tests.unit.server.services.accounts import Accounts
from tests.unit.server.services.logs.group import Group
from trainyard.wire.fault import Fault


def test_tags_by_name_and_by_arn_are_the_same_tags(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna)
    arn = f"arn:aws:logs:eu-west-3:{accounts.anna.account}:log-group:/jobs"
    accounts.anna("logs", "TagResource", resourceArn=arn, tags={"team": "red", "cost": "1"})
    group("TagLogGroup", tags={"cost": "2", "by": "anna"})
    expected = {"team": "red", "cost": "2", "by": "anna"}
    assert group("ListTagsLogGroup")["tags"] == expected
    assert accounts.anna("logs", "ListTagsForResource", resourceArn=arn)["tags"] == expected
    group("UntagLogGroup", tags=["cost"])
    accounts.anna("logs", "UntagResource", resourceArn=arn, tagKeys=["by", "never there"])
    assert group("ListTagsLogGroup")["tags"] == {"team": "red"}


def test_tags_go_with_their_group(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna)
    group("TagLogGroup", tags={"team": "red"})
    group("DeleteLogGroup")
    Group.made_by(accounts.anna)
    assert group("ListTagsLogGroup")["tags"] == {}


def test_a_group_has_at_most_fifty_tags(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna)
    group("TagLogGroup", tags={f"key{number}": "" for number in range(49)})
    with pytest.raises(Fault, match="would have 51 tags") as refused:
        group("TagLogGroup", tags={"one": "", "two": ""})
    assert refused.value.code == "TooManyTagsException"
    group("TagLogGroup", tags={"key0": "again", "one": ""})
    assert len(group("ListTagsLogGroup")["tags"]) == 50


def test_the_tags_of_another_users_group_are_not_there(accounts: Accounts) -> None:
    Group.made_by(accounts.anna)
    arn = f"arn:aws:logs:eu-west-3:{accounts.anna.account}:log-group:/jobs"
    for operation, request in (
        ("ListTagsForResource", {}),
        ("TagResource", {"tags": {"a": "b"}}),
        ("UntagResource", {"tagKeys": ["a"]}),
    ):
        with pytest.raises(Fault) as refused:
            accounts.ben("logs", operation, resourceArn=arn, **request)
        assert refused.value.code == "ResourceNotFoundException"
