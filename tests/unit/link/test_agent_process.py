import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.foundation.errors import Corrupt
from trainyard.link.agent_process import ProcessIdentity, announce_agent, find_agent_process


def test_a_process_that_announced_itself_is_found_and_alive(tmp_path: Path) -> None:
    announced = announce_agent(tmp_path)

    assert find_agent_process(tmp_path) == announced
    assert announced.pid == os.getpid()
    assert announced.is_alive


def test_a_process_that_ended_is_not_alive(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from trainyard.link.agent_process import announce_agent; "
        "announce_agent(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)

    presence = find_agent_process(tmp_path)

    assert presence is not None
    assert not presence.is_alive


def test_a_later_process_with_the_same_pid_is_another_process() -> None:
    assert not ProcessIdentity(os.getpid(), "another boot:1").is_alive


def test_nobody_is_there_before_the_announcement(tmp_path: Path) -> None:
    assert find_agent_process(tmp_path) is None


def test_a_damaged_announcement_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text("{}")

    with pytest.raises(Corrupt, match=r"agent\.json"):
        find_agent_process(tmp_path)
