"""Stacks of real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.instance.agent.watch.stacks import STACKS, ProcessStacks, take_stacks
from trainyard.instance.compat import compat_path
from trainyard.instance.launch.report import add_ranks
from trainyard.instance.launch.stacks import SIGNAL, VARIABLE
from trainyard.link.folders import InstanceFolder

WAITING = """
import sys
def wait_for_ever():
    print("ready", flush=True); sys.stdin.read()
wait_for_ever()
"""


@pytest.fixture
def folder(tmp_path: Path) -> InstanceFolder:
    made = InstanceFolder(tmp_path)
    made.launch.mkdir()
    return made


def start(folder: InstanceFolder, *, sitecustomize: str | None = None, **more: str) -> "subprocess.Popen[str]":
    """A program like that of a job, with a module in its environment if one is given."""
    path = compat_path("not in a sandbox")
    if sitecustomize is not None:
        (folder.root / "site").mkdir()
        (folder.root / "site" / "sitecustomize.py").write_text(sitecustomize)
        path += f":{folder.root / 'site'}"
    script = folder.root / "train.py"
    script.write_text(WAITING)
    environment = {"PYTHONPATH": path, VARIABLE: str(folder.launch / STACKS), **more}
    started = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def test_a_python_program_shows_its_own_stack_and_continues(folder: InstanceFolder) -> None:
    program = start(folder)
    add_ranks(str(folder.launch), {7: program.pid})
    taken = {each.name: each for each in take_stacks(folder, os.getpid(), only_rank=None)}
    assert taken["rank 7"].place == f"{folder.root}/train.py, line 4, in wait_for_ever"
    assert any("line 5 in <module>" in line for line in taken["rank 7"].lines)
    again = {each.name: each for each in take_stacks(folder, os.getpid(), only_rank=None)}
    assert again["rank 7"].place == taken["rank 7"].place
    assert len(again["rank 7"].lines) == len(taken["rank 7"].lines)
    program.communicate("", timeout=30)
    assert program.returncode == 0


def test_a_huge_file_in_the_place_of_stacks_is_not_read_whole(folder: InstanceFolder) -> None:
    """The program can write to that file; what it wrote before is skipped."""
    with (folder.launch / STACKS).open("wb") as file:
        file.truncate(1 << 42)
    program = start(folder)
    add_ranks(str(folder.launch), {0: program.pid})
    (taken,) = [each for each in take_stacks(folder, os.getpid(), only_rank=None) if each.name == "rank 0"]
    assert taken.place.endswith("in wait_for_ever")
    program.communicate("", timeout=30)


def test_a_module_of_the_environment_is_run_as_well(folder: InstanceFolder) -> None:
    marker = folder.root / "marker"
    program = start(folder, sitecustomize=f"open({str(marker)!r}, 'w').close()")
    add_ranks(str(folder.launch), {0: program.pid})
    (taken,) = [each for each in take_stacks(folder, os.getpid(), only_rank=None) if each.name == "rank 0"]
    assert taken.place.endswith("in wait_for_ever")
    assert marker.exists()
    program.communicate("", timeout=30)


def test_no_signal_is_sent_to_a_program_that_it_would_kill(folder: InstanceFolder) -> None:
    program = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    add_ranks(str(folder.launch), {0: program.pid})
    (taken,) = [each for each in take_stacks(folder, os.getpid(), only_rank=None) if each.name == "rank 0"]
    assert "waiting in" in taken.place
    program.communicate(b"", timeout=30)
    assert program.returncode == 0


def test_the_signal_is_one_that_nothing_else_uses() -> None:
    assert signal.SIGRTMIN < SIGNAL < signal.SIGRTMAX


def test_the_place_is_that_of_the_last_thread() -> None:
    lines = [
        "Thread 0x01 (most recent call first):",
        '  File "/lib/threading.py", line 1 in wait',
        "Current thread 0x02 (most recent call first):",
        '  File "/opt/ml/code/train.py", line 9 in step',
        '  File "/opt/ml/code/train.py", line 20 in <module>',
    ]
    assert ProcessStacks("rank 0", lines).place == "/opt/ml/code/train.py, line 9, in step"
    assert (
        ProcessStacks("cat (7)", ["S (sleeping), waiting in pipe_read"]).place == "S (sleeping), waiting in pipe_read"
    )
