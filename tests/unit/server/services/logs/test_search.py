from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.server.services.accounts import Accounts
from tests.unit.server.services.logs.group import NOON_MS, Group, after
from trainyard.wire.fault import Fault


def test_events_of_several_streams_are_interleaved_by_time(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "a", "b", "c")
    group.put("b", "2", "4", at=NOON_MS + 2, step=2)
    group.put("a", "1", "3", at=NOON_MS + 1, step=2)
    group.put("c", "5", at=NOON_MS + 5)
    answer = group("FilterLogEvents")
    assert [event["message"] for event in answer["events"]] == ["1", "2", "3", "4", "5"]
    assert [event["logStreamName"] for event in answer["events"]] == ["a", "b", "a", "b", "c"]
    assert answer["searchedLogStreams"] == []
    assert "nextToken" not in answer
    assert len({event["eventId"] for event in answer["events"]}) == 5


def test_the_newest_come_first_when_asked_for(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "a", "b")
    group.put("a", "1", "3", at=NOON_MS + 1, step=2)
    group.put("b", "2", "4", at=NOON_MS + 2, step=2)
    assert group.search(startFromHead=False) == ["4", "3", "2", "1"]
    assert [event["message"] for event in group.search_all(startFromHead=False, limit=1)] == ["4", "3", "2", "1"]


def test_streams_are_chosen_by_name_or_prefix(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "x/1", "x/2", "y/1")
    for stream in ("x/1", "x/2", "y/1"):
        group.put(stream, stream)
    assert group.search(logStreamNames=["y/1", "x/1", "x/1"]) == ["x/1", "y/1"]
    assert group.search(logStreamNamePrefix="x/") == ["x/1", "x/2"]
    with pytest.raises(Fault, match="not both"):
        group.search(logStreamNames=["x/1"], logStreamNamePrefix="x/")
    with pytest.raises(Fault, match="The specified log stream does not exist") as refused:
        group.search(logStreamNames=["x/1", "z"])
    assert refused.value.code == "ResourceNotFoundException"


def test_a_time_range_includes_both_its_ends(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "a")
    group.put("a", *"abcde", step=10)
    assert group.search(startTime=NOON_MS + 10, endTime=NOON_MS + 30) == ["b", "c", "d"]


def test_a_pattern_selects_matches_and_an_unserved_one_is_refused(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "a")
    group.put("a", "loss 1", "ERROR disk", "loss 2", "ERROR net")
    assert group.search(filterPattern="ERROR -disk") == ["ERROR net"]
    with pytest.raises(Fault, match="not served") as refused:
        group.search(filterPattern="{ $.x = 1 }")
    assert refused.value.code == "InvalidParameterException"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    puts=st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(0, 30), min_size=1, max_size=4)), max_size=12),
    limit=st.integers(1, 5),
    descending=st.booleans(),
    streams_at_once=st.integers(1, 8),
    scanned_bytes=st.sampled_from([1, 200, 10_000]),
)
def test_pages_of_any_size_show_every_event_once_however_late_it_came(
    accounts: Accounts,
    puts: list[tuple[int, list[int]]],
    limit: int,
    descending: bool,
    streams_at_once: int,
    scanned_bytes: int,
) -> None:
    group = Group.made_by(accounts.anna, *(f"s{number}" for number in range(7)), name="/any")
    expected = []
    for count, (stream, times) in enumerate(puts):
        for ms in sorted(times):
            expected.append(f"{ms} of put {count}")
            group.put(f"s{stream}", expected[-1], at=NOON_MS + ms)
    with (
        patch("trainyard.server.services.logs.search.STREAMS_PER_BATCH", streams_at_once),
        patch("trainyard.server.services.logs.search.MAX_SCANNED_BYTES", scanned_bytes),
        patch("trainyard.server.services.logs.search.MAX_BATCHES", 2),
    ):
        found = [event["message"] for event in group.search_all(limit=limit, startFromHead=not descending)]
    group("DeleteLogGroup")
    assert sorted(found) == sorted(expected)


def test_streams_made_and_deleted_between_pages_disturb_nothing_else(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, *(f"s{number}" for number in range(6)))
    for number in range(6):
        group.put(f"s{number}", f"{number}a", f"{number}b", at=NOON_MS + number, step=100)
    with patch("trainyard.server.services.logs.search.STREAMS_PER_BATCH", 3):
        page = group("FilterLogEvents", limit=2)
        assert [event["message"] for event in page["events"]] == ["0a", "1a"]
        later = group.at(after(seconds=1))
        later("CreateLogStream", logStreamName="s00")
        later.put("s00", "new", at=NOON_MS + 1)
        later("DeleteLogStream", logStreamName="s0")
        rest = []
        while "nextToken" in page:
            page = later("FilterLogEvents", nextToken=page["nextToken"])
            rest += [event["message"] for event in page["events"]]
    assert sorted(rest) == ["1b", "2a", "2b", "3a", "3b", "4a", "4b", "5a", "5b"]


def test_a_page_ends_when_much_was_read_and_little_found(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "a")
    group.put("a", *(["noise"] * 50), "needle")
    with patch("trainyard.server.services.logs.search.MAX_SCANNED_BYTES", 1000):
        first = group("FilterLogEvents", filterPattern="needle")
        assert first["events"] == []
        assert "nextToken" in first
        assert [event["message"] for event in group.search_all(filterPattern="needle")] == ["needle"]


@pytest.mark.parametrize("token", ["nonsense", "W10=", "bnVsbA==", "WzFlOTk5LDEsMSwxLDEsMSwxLDFd", "e30="])
def test_an_invalid_token_is_refused(accounts: Accounts, token: str) -> None:
    group = Group.made_by(accounts.anna, "a")
    with pytest.raises(Fault) as refused:
        group.search(nextToken=token)
    assert refused.value.code == "InvalidParameterException"


def test_a_group_without_streams_has_no_events(accounts: Accounts) -> None:
    assert Group.made_by(accounts.anna)("FilterLogEvents") == {"events": [], "searchedLogStreams": []}
