import io
from datetime import UTC, datetime, timedelta

import pytest

from trainyard._sdk.training.cloudwatch import LogLine
from trainyard._sdk.training.console import EventPrinter, duration_text, price_text, terminal_safe
from trainyard._sdk.training.stream import Event, JobEnded, NoteAdded, StatusChanged

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_and_progress_go_their_own_ways() -> None:
    lines, progress = io.StringIO(), io.StringIO()
    events: list[Event] = [
        StatusChanged("Starting", "Launching", NOON),
        NoteAdded("The volume size is not enforced."),
        LogLine("algo-1", 0, "hello"),
        StatusChanged("Training", "", NOON + timedelta(seconds=75)),
        JobEnded("Completed"),
    ]

    EventPrinter(lines, progress, created_at=NOON).print_events(events)

    assert lines.getvalue() == "hello\n"
    assert progress.getvalue().splitlines() == [
        "  0.00 s  Starting     Launching",
        "          note         The volume size is not enforced.",
        "    1:15  Training",
    ]


def test_lines_of_several_instances_are_named() -> None:
    lines = io.StringIO()
    EventPrinter(lines, io.StringIO(), instance_count=2).print_events(
        [LogLine("algo-2", 0, "hello"), JobEnded("Completed")]
    )
    assert lines.getvalue() == "[algo-2] hello\n"


def test_only_a_terminal_is_protected_from_what_a_job_writes() -> None:
    line = LogLine("algo-1", 0, "\x1b]0;title\x07text")
    terminal, file = Terminal(), io.StringIO()
    EventPrinter(terminal, terminal).print_line(line)
    EventPrinter(file, file).print_line(line)
    assert (terminal.getvalue(), file.getvalue()) == ("text\n", "\x1b]0;title\x07text\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext ü 漢", "plain\ttext ü 漢"),
        ("\x1b[31mred", "\x1b[31mred\x1b[0m"),
        ("up\x1b[2Aand\x1b[2Jaway", "upandaway"),
        ("\x1b]52;c;ZXZpbA==\x07copied", "copied"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("unfinished\x1b]0;title", "unfinished"),
        ("\x9b2Jeight bits", "eight bits"),
        ("bell\x07 back\x08space", "bell backspace"),
        ("10%\r50%\r100%", "100%"),
        ("done\r", "done"),
        ("left\u202eright", "leftright"),
        ("", ""),
    ],
)
def test_terminal_control_characters_are_removed(text: str, shown: str) -> None:
    assert terminal_safe(text) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.0, "0.00 s"), (0.14, "0.14 s"), (4.0, "4.0 s"), (59, "59 s"), (75, "1:15"), (7389, "2:03:09")],
)
def test_times_are_written_as_people_read_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0, "$0.00"), (0.00001, "less than $0.0001"), (0.115, "$0.1150"), (2.7, "$2.70"), (12345.6, "$12,345.60")],
)
def test_prices_have_as_many_digits_as_tell_something(usd: float, text: str) -> None:
    assert price_text(usd) == text
