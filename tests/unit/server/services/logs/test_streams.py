import pytest

from tests.unit.server.services.accounts import Accounts
from tests.unit.server.services.logs.group import NOON_MS, Group, after
from trainyard.wire.fault import Fault


def test_a_stream_is_described_with_the_times_of_its_events(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "job/algo-1")
    (empty,) = group("DescribeLogStreams")["logStreams"]
    arn = f"arn:aws:logs:eu-west-3:{accounts.anna.account}:log-group:/jobs:log-stream:job/algo-1"
    assert empty == {"logStreamName": "job/algo-1", "creationTime": NOON_MS, "arn": arn, "storedBytes": 0}
    later = group.at(after(seconds=5))
    later.put("job/algo-1", "a", "b", at=NOON_MS + 10, step=20)
    (described,) = group("DescribeLogStreams")["logStreams"]
    assert described == empty | {
        "firstEventTimestamp": NOON_MS + 10,
        "lastEventTimestamp": NOON_MS + 30,
        "lastIngestionTime": NOON_MS + 5000,
    }


def test_no_token_is_given_when_all_streams_fit(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "job/algo-1", "job/algo-2", "job2/algo-1")
    answer = group("DescribeLogStreams", logStreamNamePrefix="job/", limit=2, orderBy="LogStreamName")
    assert [stream["logStreamName"] for stream in answer["logStreams"]] == ["job/algo-1", "job/algo-2"]
    assert "nextToken" not in answer


def test_streams_are_paged_by_name_either_way(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "c", "a", "d", "b")
    assert paged(group, limit=3) == ["a", "b", "c", "d"]
    assert paged(group, limit=1, descending=True) == ["d", "c", "b", "a"]


def test_streams_are_paged_by_their_latest_event(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "a", "b", "c", "never")
    group.put("a", "x", at=NOON_MS - 50)
    group.put("b", "x", at=NOON_MS - 90)
    group.put("c", "x", at=NOON_MS - 70)
    assert paged(group, orderBy="LastEventTime", limit=3) == ["never", "b", "c", "a"]
    group.put("b", "y", at=NOON_MS)
    group.put("a", "older", at=NOON_MS - 1000)
    assert paged(group, orderBy="LastEventTime", descending=True, limit=2) == ["b", "a", "c", "never"]
    with pytest.raises(Fault, match="Cannot order by LastEventTime with a logStreamNamePrefix"):
        group("DescribeLogStreams", orderBy="LastEventTime", logStreamNamePrefix="a")


def test_a_stream_of_a_group_does_not_show_in_another_whose_name_begins_alike(accounts: Accounts) -> None:
    Group.made_by(accounts.anna, "s", name="/jobs/long")
    assert Group.made_by(accounts.anna)("DescribeLogStreams")["logStreams"] == []


def test_a_second_stream_of_a_name_is_refused(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    with pytest.raises(Fault, match="The specified log stream already exists") as refused:
        group("CreateLogStream", logStreamName="s")
    assert refused.value.code == "ResourceAlreadyExistsException"


def test_a_deleted_stream_takes_its_events_along(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s", "t")
    group.put("s", "gone")
    group.put("t", "kept")
    group("DeleteLogStream", logStreamName="s")
    assert len(list(accounts.yard.logs.iterdir())) == 1
    for operation, request in (
        ("GetLogEvents", {}),
        ("DeleteLogStream", {}),
        ("PutLogEvents", {"logEvents": [{"timestamp": NOON_MS, "message": "x"}]}),
    ):
        with pytest.raises(Fault, match="The specified log stream does not exist") as refused:
            group(operation, logStreamName="s", **request)
        assert refused.value.code == "ResourceNotFoundException"
    group("CreateLogStream", logStreamName="s")
    assert group.get("s") == []
    assert group.get("t") == ["kept"]


def paged(group: Group, **request: object) -> list[str]:
    answer = group("DescribeLogStreams", **request)
    names = [stream["logStreamName"] for stream in answer["logStreams"]]
    while "nextToken" in answer:
        answer = group("DescribeLogStreams", nextToken=answer["nextToken"], **request)
        names += [stream["logStreamName"] for stream in answer["logStreams"]]
    return names
