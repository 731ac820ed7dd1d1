from datetime import timedelta
from typing import Any

from trainyard.foundation.clock import from_micros
from trainyard.server.dashboard.pages.job.timeline import startup_bar, status_bar


def second(number: float) -> Any:
    return from_micros(round(number * 1e6))


def status(name: str, start: float, end: float | None) -> dict[str, Any]:
    known = {"Status": name, "StartTime": second(start), "StatusMessage": f"It is {name}"}
    return known if end is None else known | {"EndTime": second(end)}


def phase(name: str, start: float, end: float | None, instance: str = "") -> dict[str, Any]:
    known = {"Phase": name, "StartTime": second(start)} | ({"Instance": instance} if instance else {})
    return known if end is None else known | {"EndTime": second(end)}


def test_statuses_share_the_bar_by_their_length() -> None:
    transitions = [status("Pending", 0, 1), status("Training", 1, 4), status("Completed", 4, 4)]
    bar = status_bar(transitions, now=second(100))
    assert bar.duration == timedelta(seconds=4)
    assert [(span.title, span.left, span.width) for span in bar.spans] == [("Pending", 0, 25), ("Training", 25, 75)]


def test_the_status_of_a_running_job_reaches_until_now() -> None:
    bar = status_bar([status("Pending", 0, 5), status("Training", 5, None)], now=second(10))
    assert [(span.width, span.is_open) for span in bar.spans] == [(50, False), (50, True)]


def test_a_job_of_this_moment_has_a_bar() -> None:
    assert status_bar([status("Pending", 3, None)], now=second(3)).spans == []
    bar = startup_bar([phase("queue", 3, None)], now=second(3))
    assert bar is not None
    assert [(span.left, span.width, span.is_open) for span in bar.spans] == [(0, 0, True)]


def test_the_start_up_ends_where_the_program_begins() -> None:
    waterfall = [phase("queue", 0, 2), phase("download", 2, 4, "algo-1"), phase("train", 4, 100, "algo-1")]
    bar = startup_bar(waterfall, now=second(100))
    assert bar is not None
    assert bar.duration == timedelta(seconds=4)
    assert [(span.title, span.text) for span in bar.spans] == [
        ("Wait in the queue", ""),
        ("Download code and data", ""),
    ]


def test_phases_name_their_instance_if_there_are_several() -> None:
    waterfall = [phase("download", 0, 2, "algo-1"), phase("download", 0, 4, "algo-2"), phase("new", 4, 5, "algo-2")]
    bar = startup_bar(waterfall, now=second(5))
    assert bar is not None
    assert [span.text for span in bar.spans] == ["algo-1", "algo-2", "algo-2"]
    assert bar.spans[-1].title == "New", "a phase without a title here has its name"


def test_the_start_up_of_many_instances_is_cut_off_and_says_so() -> None:
    bar = startup_bar([phase("download", 0, number + 1, f"algo-{number}") for number in range(100)], now=second(100))
    assert bar is not None
    assert (len(bar.spans), bar.omitted, bar.duration) == (40, 60, timedelta(seconds=100))


def test_a_job_that_only_trains_has_no_start_up() -> None:
    assert startup_bar([phase("train", 0, 1)], now=second(1)) is None
