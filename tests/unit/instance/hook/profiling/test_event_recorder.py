import io
import json

from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.instance.hook.profiling.event_recorder import EventWindow, ThreadEvent, encode_events

AT_US = 1_700_000_000_000_000


def event(name: str, at: int, took: int = 5) -> ThreadEvent:
    return ThreadEvent(name, name, AT_US + at, AT_US + at + took, {"step_num": "1"})


def window(written: list[list[ThreadEvent]], *, file_bytes: int = 10**6, max_bytes: int = 10**6) -> EventWindow:
    return EventWindow(
        "a test",
        wants=lambda name: name != "unwanted",
        write=lambda events: written.append(list(events)),
        file_bytes=file_bytes,
        file_s=3600,
        max_bytes=max_bytes,
    )


def test_events_are_chrome_events_whose_times_begin_with_the_first() -> None:
    data = encode_events([event("Forward", 100), event("Backward", 50)])
    epoch, *others = json.loads(data)
    assert epoch["args"] == {"start_time_since_epoch_in_micros": AT_US + 50}
    kinds = {each["pid"]: each["args"]["name"] for each in others if each["name"] == "process_name"}
    found = [(kinds[each["pid"]], each["ts"], each["dur"]) for each in others if each["ph"] == "X"]
    assert found == [("Forward", 50, 5), ("Backward", 0, 5)]
    trace = read_trace(io.BytesIO(data))
    assert trace.events.starts_ns.tolist() == [(AT_US + 100) * 1000, (AT_US + 50) * 1000]


def test_a_full_file_is_written_and_another_begun() -> None:
    written: list[list[ThreadEvent]] = []
    recorded = window(written, file_bytes=2 * 160)
    for at in range(5):
        recorded.add(event("Forward", at))
    assert [len(file) for file in written] == [2, 2]
    recorded.flush()
    assert [len(file) for file in written] == [2, 2, 1]


def test_unwanted_events_take_no_room() -> None:
    written: list[list[ThreadEvent]] = []
    recorded = window(written)
    recorded.add(event("unwanted", 0))
    recorded.flush()
    assert written == []


def test_a_window_that_has_written_enough_says_so() -> None:
    recorded = window([], file_bytes=160, max_bytes=2 * 160)
    recorded.add(event("Forward", 0))
    assert recorded.excess() == ""
    recorded.add(event("Forward", 1))
    assert recorded.excess() == "its files were full"
