import os
import socket
from pathlib import Path

from trainyard.engines.cluster.proxy_supervisor import MAX_LOG_BYTES, ProcessLauncher


def told(output: Path, *words: str) -> str:
    """What a proxy leaves there that says these words and ends."""
    ours, theirs = socket.socketpair()
    with ours:
        ProcessLauncher(["echo", *words], environment=os.environ, output=output)(theirs).end()
    return output.read_text()


def test_the_logs_of_successive_proxies_are_kept(tmp_path: Path) -> None:
    assert told(tmp_path / "log", "first").startswith("first ")
    assert [line.split()[0] for line in told(tmp_path / "log", "second").splitlines()] == ["first", "second"]


def test_a_large_log_is_rotated_and_one_is_kept(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (MAX_LOG_BYTES + 1))
    assert told(tmp_path / "log", "anew").startswith("anew ")
    assert (tmp_path / "log.1").stat().st_size == MAX_LOG_BYTES + 1
