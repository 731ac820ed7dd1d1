import threading
from pathlib import Path

import pytest

from tests.unit.disk_recorder import DiskRecorder
from tests.unit.server.services.accounts import Accounts
from tests.unit.server.services.logs.group import NOON_MS, Group, after
from trainyard.formats.logs import LogReader
from trainyard.wire.fault import Fault

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def test_events_come_back_as_they_were_put(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    message = 'two\nlines, "quotes", \ttabs, ünïcode 🚂\n'
    group.at(after(seconds=1)).put("s", message, at=NOON_MS)
    (event,) = group("GetLogEvents", logStreamName="s")["events"]
    assert event == {"timestamp": NOON_MS, "message": message, "ingestionTime": NOON_MS + 1000}


def test_the_pages_of_a_stream_read_forward_end_with_the_same_token(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    messages = [f"line {number}" for number in range(25)]
    group.put("s", *messages, step=1)
    seen: list[str] = []
    page = group("GetLogEvents", logStreamName="s", startFromHead=True, limit=10)
    tokens = []
    while True:
        seen += [event["message"] for event in page["events"]]
        tokens.append(page["nextForwardToken"])
        assert tokens[-1].startswith("f/")
        page = group("GetLogEvents", logStreamName="s", startFromHead=True, limit=10, nextToken=tokens[-1])
        if page["nextForwardToken"] == tokens[-1]:
            break
    assert page["events"] == []
    assert seen == messages
    group.put("s", "new", at=NOON_MS + 100)
    page = group("GetLogEvents", logStreamName="s", startFromHead=True, nextToken=tokens[-1])
    assert [event["message"] for event in page["events"]] == ["new"]


def test_without_start_from_head_the_newest_page_comes_first(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    group.put("s", *(str(number) for number in range(10)), step=1)
    newest = group("GetLogEvents", logStreamName="s", limit=4)
    assert [event["message"] for event in newest["events"]] == ["6", "7", "8", "9"]
    older = group("GetLogEvents", logStreamName="s", limit=4, nextToken=newest["nextBackwardToken"])
    assert [event["message"] for event in older["events"]] == ["2", "3", "4", "5"]
    again = group("GetLogEvents", logStreamName="s", limit=4, nextToken=older["nextForwardToken"])
    assert [event["message"] for event in again["events"]] == ["6", "7", "8", "9"]
    oldest = group("GetLogEvents", logStreamName="s", limit=4, nextToken=older["nextBackwardToken"])
    assert [event["message"] for event in oldest["events"]] == ["0", "1"]
    end = group("GetLogEvents", logStreamName="s", limit=4, nextToken=oldest["nextBackwardToken"])
    assert end["events"] == []
    assert end["nextBackwardToken"] == oldest["nextBackwardToken"]


def test_an_empty_stream_has_tokens_too(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    page = group("GetLogEvents", logStreamName="s", startFromHead=True)
    assert page["events"] == []
    assert group("GetLogEvents", logStreamName="s", nextToken=page["nextForwardToken"]) == page


def test_a_time_range_includes_its_start_and_not_its_end(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    group.put("s", *"abcde", step=10)
    assert group.get("s", startTime=NOON_MS + 10, endTime=NOON_MS + 30) == ["b", "c"]
    assert group.get("s", startTime=NOON_MS + 30) == ["d", "e"]
    assert group.get("s", endTime=NOON_MS + 1) == ["a"]
    assert group.get("s", startTime=NOON_MS + 41) == []


def test_late_events_are_found_by_their_time_and_shown_in_its_order(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    group.put("s", "c", "d", at=NOON_MS, step=10)
    group.put("s", "a", "b", at=NOON_MS - 1000, step=10)
    assert group.get("s") == ["a", "b", "c", "d"]
    assert group.get("s", endTime=NOON_MS) == ["a", "b"]
    assert group.get("s", startTime=NOON_MS) == ["c", "d"]


def test_events_too_old_or_too_new_are_rejected_and_the_others_stored(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    times = [
        NOON_MS - 15 * DAY_MS,
        NOON_MS - 14 * DAY_MS - 1,
        NOON_MS,
        NOON_MS + 2 * HOUR_MS,
        NOON_MS + 2 * HOUR_MS + 1,
    ]
    events = [{"timestamp": ms, "message": str(number)} for number, ms in enumerate(times)]
    answer = group("PutLogEvents", logStreamName="s", logEvents=events)
    assert answer["rejectedLogEventsInfo"] == {"tooOldLogEventEndIndex": 2, "tooNewLogEventStartIndex": 4}
    assert group.get("s") == ["2", "3"]
    only_old = group("PutLogEvents", logStreamName="s", logEvents=events[:1])
    assert only_old["rejectedLogEventsInfo"] == {"tooOldLogEventEndIndex": 1}
    assert group.get("s") == ["2", "3"]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([{"timestamp": NOON_MS, "message": "b"}, {"timestamp": NOON_MS - 1, "message": "a"}], "chronological order"),
        ([{"timestamp": NOON_MS - DAY_MS - 1, "message": "a"}, {"timestamp": NOON_MS, "message": "b"}], "24 hours"),
        ([{"timestamp": NOON_MS, "message": "x" * (1024 * 1024 - 25)}], "1048577 bytes exceeds limit of 1048576"),
        ([{"timestamp": NOON_MS, "message": "é" * 300_000}] * 2, "1200052 bytes exceeds limit"),
    ],
)
def test_a_batch_that_aws_would_refuse_is_refused_whole(
    accounts: Accounts, events: list[dict[str, object]], message: str
) -> None:
    group = Group.made_by(accounts.anna, "s")
    with pytest.raises(Fault, match=message) as refused:
        group("PutLogEvents", logStreamName="s", logEvents=events)
    assert refused.value.code == "InvalidParameterException"
    assert group.get("s") == []


def test_the_largest_batches_are_accepted(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s", "t")
    group("PutLogEvents", logStreamName="s", logEvents=[{"timestamp": NOON_MS, "message": "x" * (1024 * 1024 - 26)}])
    assert [len(message) for message in group.get("s")] == [1024 * 1024 - 26]
    group("PutLogEvents", logStreamName="t", logEvents=[{"timestamp": NOON_MS, "message": "x"}] * 10_000)
    assert len(group.get("t")) == 10_000


def test_a_page_holds_a_mebibyte_of_messages(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    for _ in range(3):
        group.put("s", "x" * 400_000, "y" * 400_000)
    page = group("GetLogEvents", logStreamName="s", startFromHead=True)
    assert len(page["events"]) == 2


def test_any_sequence_token_is_accepted_and_one_is_given(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    event = [{"timestamp": NOON_MS, "message": "x"}]
    first = group("PutLogEvents", logStreamName="s", logEvents=event, sequenceToken="anything")
    group("PutLogEvents", logStreamName="s", logEvents=event, sequenceToken=first["nextSequenceToken"])
    assert group.get("s") == ["x", "x"]


@pytest.mark.parametrize("token", ["nonsense", "f/", "x/12", "f/-1", "f/1/s", "f/" + "9" * 57, "f/٣"])
def test_an_invalid_token_is_refused(accounts: Accounts, token: str) -> None:
    group = Group.made_by(accounts.anna, "s")
    with pytest.raises(Fault, match="nextToken is invalid") as refused:
        group("GetLogEvents", logStreamName="s", nextToken=token)
    assert refused.value.code == "InvalidParameterException"


def test_invalid_unicode_stays_readable(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")
    group.put("s", "half a pair: \ud800.")
    assert group.get("s") == ["half a pair: ?."]


def test_many_writers_of_one_stream_lose_nothing(accounts: Accounts) -> None:
    group = Group.made_by(accounts.anna, "s")

    def put(writer: int) -> None:
        for number in range(10):
            group.put("s", f"{writer}:{number}", at=NOON_MS + number)

    threads = [threading.Thread(target=put, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(group.get("s")) == sorted(f"{writer}:{number}" for writer in range(4) for number in range(10))
    (described,) = group("DescribeLogStreams", orderBy="LastEventTime")["logStreams"]
    assert described["lastEventTimestamp"] == NOON_MS + 9


def test_events_that_were_put_outlive_a_power_cut(accounts: Accounts, tmp_path: Path) -> None:
    group = Group.made_by(accounts.anna, "s")
    accounts.yard.logs.mkdir(parents=True, exist_ok=True)
    recorder = DiskRecorder(accounts.yard.logs)

    recorder.run(lambda: group.put("s", "one", "two"))

    (stream,) = recorder.cut_power(tmp_path / "left").iterdir()
    assert [event.text for event in LogReader(stream).forward(max_events=9).events] == ["one", "two"]
