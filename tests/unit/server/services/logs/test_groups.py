import pytest

from tests.unit.server.services.accounts import Accounts
from tests.unit.server.services.logs.group import NOON_MS, Group, after
from trainyard.wire.fault import Fault


def test_a_group_is_described_as_aws_describes_it(accounts: Accounts) -> None:
    anna = accounts.anna
    anna("logs", "CreateLogGroup", logGroupName="/jobs/a", tags={"team": "red"}, kmsKeyId="alias/key")
    (group,) = anna("logs", "DescribeLogGroups")["logGroups"]
    arn = f"arn:aws:logs:eu-west-3:{anna.account}:log-group:/jobs/a"
    assert group == {
        "logGroupName": "/jobs/a",
        "creationTime": NOON_MS,
        "metricFilterCount": 0,
        "storedBytes": 0,
        "arn": f"{arn}:*",
        "logGroupArn": arn,
        "logGroupClass": "STANDARD",
        "deletionProtectionEnabled": False,
        "kmsKeyId": "alias/key",
    }
    assert anna("logs", "ListTagsForResource", resourceArn=arn)["tags"] == {"team": "red"}


def test_a_group_tells_how_much_its_streams_hold(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "one", "two", "empty")
    group.put("one", "abc")
    group.put("two", "defg")
    (described,) = accounts.anna("logs", "DescribeLogGroups")["logGroups"]
    held = described["storedBytes"]
    assert held >= len("abc") + len("defg")
    group("DeleteLogStream", logStreamName="two")
    (described,) = accounts.anna("logs", "DescribeLogGroups")["logGroups"]
    assert len("abc") <= described["storedBytes"] < held


def test_a_second_group_of_a_name_is_refused_and_the_name_is_free_after_a_delete(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "one")
    with pytest.raises(Fault, match="The specified log group already exists") as refused:
        group("CreateLogGroup")
    assert refused.value.code == "ResourceAlreadyExistsException"
    group.put("one", "old")
    group("DeleteLogGroup")
    assert list(accounts.yard.logs.iterdir()) == []
    Group.made_by(accounts.anna, "one")
    assert group.get("one") == []


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("DeleteLogGroup", {}),
        ("DescribeLogStreams", {}),
        ("CreateLogStream", {"logStreamName": "s"}),
        ("DeleteLogStream", {"logStreamName": "s"}),
        ("PutLogEvents", {"logStreamName": "s", "logEvents": [{"timestamp": NOON_MS, "message": "x"}]}),
        ("GetLogEvents", {"logStreamName": "s"}),
        ("FilterLogEvents", {}),
        ("PutRetentionPolicy", {"retentionInDays": 1}),
        ("DeleteRetentionPolicy", {}),
        ("TagLogGroup", {"tags": {"a": "b"}}),
        ("UntagLogGroup", {"tags": ["a"]}),
        ("ListTagsLogGroup", {}),
    ],
)
def test_a_group_of_another_user_is_simply_not_there(
    accounts: Accounts, operation: str, request_: dict[str, object]
) -> None:
    owned = Group.made_by(accounts.anna, "s")
    owned.put("s", "secret")
    with pytest.raises(Fault, match="The specified log group does not exist") as refused:
        Group(accounts.ben)(operation, **request_)
    assert (refused.value.code, refused.value.status) == ("ResourceNotFoundException", 400)
    assert accounts.ben("logs", "DescribeLogGroups")["logGroups"] == []
    assert owned.get("s") == ["secret"]
    assert owned("ListTagsLogGroup")["tags"] == {}


def test_users_may_have_groups_of_the_same_name(accounts: Accounts) -> None:
    for user, message in ((accounts.anna, "hers"), (accounts.ben, "his")):
        Group.made_by(user, "s").put("s", message)
    assert Group(accounts.anna).get("s") == ["hers"]
    assert Group(accounts.ben).get("s") == ["his"]


def test_an_administrator_reads_the_group_of_a_user_by_name_when_only_one_has_it(accounts: Accounts) -> None:
    Group.made_by(accounts.anna, "s").put("s", "hers")
    assert Group(accounts.admin).get("s") == ["hers"]
    Group.made_by(accounts.ben)
    with pytest.raises(Fault, match=f"in several accounts.*{accounts.ben.account}"):
        Group(accounts.admin).get("s")
    arn = f"arn:aws:logs:eu-west-3:{accounts.anna.account}:log-group:/jobs"
    page = accounts.admin("logs", "GetLogEvents", logGroupIdentifier=arn, logStreamName="s")
    assert [event["message"] for event in page["events"]] == ["hers"]
    owners = [group["logGroupArn"].split(":")[4] for group in accounts.admin("logs", "DescribeLogGroups")["logGroups"]]
    assert sorted(owners) == sorted([accounts.anna.account, accounts.ben.account])
    of_ben = accounts.admin("logs", "DescribeLogGroups", accountIdentifiers=[accounts.ben.account])["logGroups"]
    assert [group["logGroupArn"].split(":")[4] for group in of_ben] == [accounts.ben.account]


def test_a_group_is_named_by_its_arn_by_its_owner_only(accounts: Accounts) -> None:
    Group.made_by(accounts.anna, "s")
    arn = f"arn:aws:logs:eu-west-3:{accounts.anna.account}:log-group:/jobs"
    assert accounts.anna("logs", "DescribeLogStreams", logGroupIdentifier=arn)["logStreams"]
    with pytest.raises(Fault, match="The specified log group does not exist"):
        accounts.ben("logs", "DescribeLogStreams", logGroupIdentifier=arn)


def test_a_group_needs_exactly_one_of_its_two_names(accounts: Accounts) -> None:
    Group.made_by(accounts.anna)
    with pytest.raises(Fault, match="either logGroupName or logGroupIdentifier") as refused:
        accounts.anna("logs", "DescribeLogStreams")
    assert refused.value.code == "InvalidParameterException"
    with pytest.raises(Fault, match="mutually exclusive") as refused:
        accounts.anna("logs", "DescribeLogStreams", logGroupName="/jobs", logGroupIdentifier="/jobs")
    assert refused.value.code == "ValidationException"
    with pytest.raises(Fault, match="is not the ARN of a log group"):
        accounts.anna("logs", "DescribeLogStreams", logGroupIdentifier="arn:aws:s3:::bucket")


def test_groups_are_listed_by_name_in_pages_by_prefix_or_by_part(accounts: Accounts) -> None:
    for name in ("b/2", "a/1", "b/10", "c/1"):
        Group.made_by(accounts.anna, name=name)
    assert names(accounts) == ["a/1", "b/10", "b/2", "c/1"]
    assert names(accounts, logGroupNamePrefix="b/") == ["b/10", "b/2"]
    assert names(accounts, logGroupNamePattern="/1") == ["a/1", "b/10", "c/1"]
    first = accounts.anna("logs", "DescribeLogGroups", limit=3)
    assert [group["logGroupName"] for group in first["logGroups"]] == ["a/1", "b/10", "b/2"]
    assert names(accounts, limit=3, nextToken=first["nextToken"]) == ["c/1"]
    assert names(accounts, logGroupIdentifiers=["c/1", "nowhere", "a/1"]) == ["c/1", "a/1"]
    assert "nextToken" not in accounts.anna("logs", "DescribeLogGroups", limit=4)


@pytest.mark.parametrize(
    "request_",
    [
        {"logGroupNamePrefix": "a", "logGroupNamePattern": "b"},
        {"logGroupIdentifiers": ["a"], "logGroupNamePrefix": "b"},
        {"nextToken": "forged"},
    ],
)
def test_a_list_that_cannot_be_made_is_refused(accounts: Accounts, request_: dict[str, object]) -> None:
    with pytest.raises(Fault) as refused:
        accounts.anna("logs", "DescribeLogGroups", **request_)
    assert refused.value.code == "InvalidParameterException"


def test_a_retention_policy_is_remembered_and_hides_older_events(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    group.put("s", "old")
    group("PutRetentionPolicy", retentionInDays=3)
    (described,) = accounts.anna("logs", "DescribeLogGroups")["logGroups"]
    assert described["retentionInDays"] == 3
    assert group.at(after(days=2)).get("s") == ["old"]
    later = group.at(after(days=4))
    assert later.get("s") == []
    assert later.search() == []
    rejected = later.put("s", "expired", at=NOON_MS)["rejectedLogEventsInfo"]
    assert rejected == {"expiredLogEventEndIndex": 1}
    group("DeleteRetentionPolicy")
    assert "retentionInDays" not in accounts.anna("logs", "DescribeLogGroups")["logGroups"][0]
    assert later.get("s") == ["old"]


def test_a_retention_that_aws_does_not_offer_is_refused(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna)
    with pytest.raises(Fault, match="Invalid retentionInDays 2; use one of 1, 3, 5") as refused:
        group("PutRetentionPolicy", retentionInDays=2)
    assert refused.value.code == "InvalidParameterException"


@pytest.mark.parametrize(
    "request_",
    [
        {"logGroupName": "aws/jobs"},
        {"logGroupName": "jobs", "tags": {"aws:mine": "no"}},
        {"logGroupName": "jobs", "deletionProtectionEnabled": True},
    ],
)
def test_a_group_that_cannot_be_is_refused_and_not_made(accounts: Accounts, request_: dict[str, object]) -> None:
    with pytest.raises(Fault) as refused:
        accounts.anna("logs", "CreateLogGroup", **request_)
    assert refused.value.code == "InvalidParameterException"
    assert names(accounts) == []


def names(accounts: Accounts, **request: object) -> list[str]:
    return [group["logGroupName"] for group in accounts.anna("logs", "DescribeLogGroups", **request)["logGroups"]]
