import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainyard.following import Ended, Event, LogLine, StatusChanged
from trainyard.showing import Show, inert, summary

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def description(**more: Any) -> dict[str, Any]:
    return {"TrainingJobName": "job", "TrainingJobStatus": "Completed"} | more


def test_lines_and_progress_go_their_own_ways() -> None:
    lines, progress = io.StringIO(), io.StringIO()
    events: list[Event] = [
        StatusChanged("Starting", "Launching", NOON),
        LogLine("algo-1", 0, "hello"),
        StatusChanged("Training", "", NOON + timedelta(seconds=75)),
        Ended(description()),
    ]

    ended = Show(lines, progress, created_at=NOON).all(events, instance_count=1)

    assert ended == description()
    assert lines.getvalue() == "hello\n"
    assert progress.getvalue() == "     0 s  Starting     Launching\n    1:15  Training\n"


def test_lines_of_several_instances_are_named() -> None:
    lines = io.StringIO()
    Show(lines, io.StringIO()).all([LogLine("algo-2", 0, "hello"), Ended(description())], instance_count=2)
    assert lines.getvalue() == "[algo-2] hello\n"


def test_only_a_terminal_is_protected_from_what_a_job_writes() -> None:
    line = LogLine("algo-1", 0, "\x1b]0;title\x07text")
    terminal, file = Terminal(), io.StringIO()
    Show(terminal, terminal).line(line, is_named=False)
    Show(file, file).line(line, is_named=False)
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
def test_what_could_move_a_terminal_is_taken_out(text: str, shown: str) -> None:
    assert inert(text) == shown


def test_a_summary_names_the_model_of_a_completed_job() -> None:
    told = description(TrainingTimeInSeconds=90, ModelArtifacts={"S3ModelArtifacts": "s3://b/m.tar.gz"})
    assert summary(told) == 'Training job "job" is Completed after 1:30 of training.\nmodel: s3://b/m.tar.gz'


def test_a_summary_gives_the_reason_of_a_failure() -> None:
    told = description(TrainingJobStatus="Failed", FailureReason="AlgorithmError:\nexit code: 1\x07")
    assert summary(told) == 'Training job "job" is Failed.\n  AlgorithmError:\n  exit code: 1'


def test_a_summary_tells_what_spot_saved() -> None:
    told = description(EnableManagedSpotTraining=True, TrainingTimeInSeconds=10, BillableTimeInSeconds=3)
    assert "Spot saved 70%." in summary(told)
