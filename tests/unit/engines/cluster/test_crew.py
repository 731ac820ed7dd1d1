import os
import socket
from pathlib import Path

from trainyard.engines.cluster.crew import LARGE_BYTES, AsProcess


def told(output: Path, *words: str) -> str:
    """What a ferry leaves there that says these words and ends."""
    ours, theirs = socket.socketpair()
    with ours:
        AsProcess(["echo", *words], environment=os.environ, output=output)(theirs).end()
    return output.read_text()


def test_what_ferries_say_is_kept_one_after_the_other(tmp_path: Path) -> None:
    assert told(tmp_path / "log", "first").startswith("first ")
    assert [line.split()[0] for line in told(tmp_path / "log", "second").splitlines()] == ["first", "second"]


def test_what_has_become_large_is_begun_anew_and_the_one_before_is_kept(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (LARGE_BYTES + 1))
    assert told(tmp_path / "log", "anew").startswith("anew ")
    assert (tmp_path / "log.1").stat().st_size == LARGE_BYTES + 1
