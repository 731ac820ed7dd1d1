import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.foundation.errors import Corrupt
from trainyard.link.presence import Presence, announce, presence_of


def test_a_process_that_announced_itself_is_found_and_alive(tmp_path: Path) -> None:
    announced = announce(tmp_path)

    assert presence_of(tmp_path) == announced
    assert announced.pid == os.getpid()
    assert announced.is_alive


def test_a_process_that_ended_is_not_alive(tmp_path: Path) -> None:
    code = "import sys, pathlib; from trainyard.link.presence import announce; announce(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)

    presence = presence_of(tmp_path)

    assert presence is not None
    assert not presence.is_alive


def test_a_later_process_with_the_same_pid_is_not_taken_for_it() -> None:
    assert not Presence(os.getpid(), "another boot:1").is_alive


def test_nobody_is_there_before_the_announcement(tmp_path: Path) -> None:
    assert presence_of(tmp_path) is None


def test_a_damaged_announcement_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text("{}")

    with pytest.raises(Corrupt, match=r"agent\.json"):
        presence_of(tmp_path)
