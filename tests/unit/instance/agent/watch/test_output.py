"""The log of an instance."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainyard.formats.logs import LogReader
from trainyard.formats.logs.writer import LogWriter
from trainyard.foundation.errors import Unavailable
from trainyard.instance.agent.watch.output import ProgramOutput


def messages(folder: Path) -> list[str]:
    return [event.message.decode() for event in LogReader(folder).scan()]


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def test_what_is_written_can_be_read_at_once(tmp_path: Path) -> None:
    output = ProgramOutput(tmp_path / "logs", limit_bytes=1 << 30)
    output.write(b"one\ntw")
    assert messages(tmp_path / "logs") == ["one"]
    output.write(b"o\nthree")
    output.close()
    assert messages(tmp_path / "logs") == ["one", "two", "three"]


def test_a_line_of_the_agent_is_written_between_those_of_the_program(tmp_path: Path) -> None:
    output = ProgramOutput(tmp_path / "logs", limit_bytes=1 << 30)
    output.write(b"half a line")
    output.add_line("Installing requirements.txt.")
    output.write(b"next\n")
    output.close()
    assert messages(tmp_path / "logs") == ["half a line", "[trainyard] Installing requirements.txt.", "next"]


def test_a_log_over_its_limit_loses_its_middle_and_says_so(tmp_path: Path) -> None:
    folder, limit = tmp_path / "logs", 160_000
    output = ProgramOutput(folder, limit_bytes=limit)
    lines = [f"line {number:06d}" for number in range(50_000)]
    for first in range(0, len(lines), 100):
        output.write("".join(f"{line}\n" for line in lines[first : first + 100]).encode())
        assert size_of(folder) <= limit * 1.2
    output.close()
    kept = messages(folder)
    last = kept.pop()
    assert last.startswith("[trainyard] This log exceeded its limit of 160000 bytes; ")
    gap = next(number for number, line in enumerate(kept) if line != lines[number])
    assert gap * 12 >= limit // 2
    assert kept[gap + 1 :] == lines[-(len(kept) - gap - 1) :]
    assert (len(kept) - gap) * 12 >= limit // 3


def test_a_log_within_its_limit_loses_nothing(tmp_path: Path) -> None:
    output = ProgramOutput(tmp_path / "logs", limit_bytes=100_000)
    lines = [f"line {number:06d}" for number in range(8_000)]
    for line in lines:
        output.write(f"{line}\n".encode())
    output.close()
    assert messages(tmp_path / "logs") == lines


def test_output_that_a_full_disk_refuses_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = ProgramOutput(tmp_path / "logs", limit_bytes=1 << 30)
    output.write(b"before\n")
    with full_disk(monkeypatch):
        output.write(b"waits\n")
        output.add_line("lost")
    output.flush()
    assert messages(tmp_path / "logs") == ["before", "waits"]
    output.write(b"after\n")
    output.close()
    assert messages(tmp_path / "logs") == ["before", "waits", "after"]
    assert output.lost_bytes == 0


def test_a_disk_that_stays_full_loses_lines_but_does_not_stop_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = ProgramOutput(tmp_path / "logs", limit_bytes=1 << 30)
    piece = b"x" * ((1 << 20) - 1) + b"\n"
    with full_disk(monkeypatch):
        for _ in range(10):
            output.write(piece)
    output.write(b"after\n")
    output.close()
    assert messages(tmp_path / "logs") == [piece[:-1].decode()] * 8 + ["after"]
    assert output.lost_bytes == 2 * len(piece)
    assert output.tail.lines()[-1] == "after"


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A mock, because a full disk needs a file system of its own."""

    def refuse(*_: object, **__: object) -> None:
        raise Unavailable("There is no space left.")

    with monkeypatch.context() as patch:
        patch.setattr(LogWriter, "append", refuse)
        yield
