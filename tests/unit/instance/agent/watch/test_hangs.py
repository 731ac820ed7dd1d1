"""When a program counts as hanging."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import SPEC, changed, open_context
from trainyard.instance.agent.watch.hangs import HangDetector
from trainyard.instance.launch.stacks import SIGNAL
from trainyard.link.contract import FrameKind, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.spec_queries import HANG_VARIABLE, hang_limit_s
from trainyard.link.spool import SpoolWriter, read_frames

HOSTS = ("algo-1", "algo-2")
IDLE = 2**22 + 1  # a pid that cannot exist, so it uses no CPU


class Scene:
    """The hang detector of one instance beside another, with its own clock."""

    def __init__(self, root: Path, **members: Any) -> None:
        self.folder, self.other = (InstanceFolder(root / host) for host in HOSTS)
        for each in (self.folder, self.other):
            each.root.mkdir()
        self.spool = SpoolWriter(self.folder.spool)
        context = open_context(self.folder, spec(**members), self.spool)
        self.output = context.output
        self.watch = HangDetector(context)

    def mark_other(self, *, ago_s: float) -> None:
        self.other.activity.touch()
        os.utime(self.other.activity, (time.time() - ago_s,) * 2)

    def notes(self) -> list[str]:
        frames = read_frames(self.folder.spool, 0).frames
        return [frame.payload["text"] for frame in frames if frame.kind is FrameKind.NOTE]

    def close(self) -> None:
        self.output.close()
        self.spool.close()


def spec(**members: Any) -> InstanceSpec:
    return changed(SPEC, **{"hosts": HOSTS, "hang_after_s": 60} | members)


@pytest.fixture
def scene(tmp_path: Path) -> Any:
    made = Scene(tmp_path)
    made.mark_other(ago_s=3600)
    yield made
    made.close()


def test_a_program_that_is_idle_for_the_whole_limit_hangs_and_that_is_reported_once(scene: Scene) -> None:
    scene.watch.start(IDLE, 100.0)
    for now in range(100, 300, 5):
        scene.watch.poll(float(now))
        assert bool(scene.notes()) == (now >= 160)
    (note,) = scene.notes()
    assert note.startswith("algo-1 seems to hang: for 60 s nothing was written and no processor used.")


def test_output_ends_a_hang_and_the_next_hang_is_reported_again(scene: Scene) -> None:
    scene.watch.start(IDLE, 100.0)
    scene.watch.poll(155.0)
    scene.output.write(b"step 1\n")
    scene.watch.poll(165.0)
    scene.watch.poll(220.0)
    assert scene.notes() == []
    scene.watch.poll(226.0)
    scene.output.write(b"step 2\n")
    scene.watch.poll(240.0)
    scene.watch.poll(301.0)
    assert len(scene.notes()) == 2


def test_a_program_that_computes_does_not_hang(scene: Scene) -> None:
    scene.watch.start(os.getpid(), 100.0)
    for now in (130.0, 161.0, 192.0):
        begun = time.process_time()
        while time.process_time() - begun < 0.25:  # of 31 seconds on the detector's clock
            pass
        scene.watch.poll(now)
    assert scene.notes() == []


def test_an_instance_that_waits_for_another_that_works_does_not_hang(scene: Scene) -> None:
    scene.watch.start(IDLE, 100.0)
    scene.mark_other(ago_s=5)
    scene.watch.poll(200.0)
    assert scene.notes() == []
    scene.mark_other(ago_s=3600)
    scene.watch.poll(210.0)
    assert len(scene.notes()) == 1


def test_an_instance_that_has_not_started_counts_as_active_and_one_that_has_ended_does_not(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.watch.start(IDLE, 100.0)
    scene.watch.poll(200.0)
    assert scene.notes() == []
    with SpoolWriter(scene.other.spool) as spool:
        spool.append(FrameKind.EXITED, {"code": 0, "signal": None, "is_oom": False}, at_us=1)
    scene.watch.poll(210.0)
    assert len(scene.notes()) == 1
    scene.close()


MUTE = r"""
import os, signal, sys
signal.signal(int(sys.argv[1]), lambda *_: None)
if any(os.fork() == 0 for _ in range(3)):
    os.write(1, b"ready\n")  # one write: print would write the line end separately
    sys.stdin.read()
else:
    for _ in range(3):
        os.wait()
"""


def test_each_poll_waits_for_at_most_one_process_that_does_not_show_its_stack(scene: Scene) -> None:
    """Stops are handled between two polls, however many processes do not answer."""
    command = [sys.executable, "-c", MUTE, str(int(SIGNAL))]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert [program.stdout.readline() for _ in range(3)] == ["ready\n"] * 3
    scene.folder.launch.mkdir()
    scene.watch.start(program.pid, 100.0)
    for now in (200.0, 200.1, 200.2):
        scene.watch.poll(now)
        assert scene.notes() == []
    scene.watch.poll(200.3)
    program.communicate("", timeout=30)
    (note,) = scene.notes()
    assert note.count(" is at ") == 3


def test_a_job_may_have_a_limit_of_its_own_or_none() -> None:
    assert hang_limit_s(spec()) == 60
    assert hang_limit_s(spec(environment={HANG_VARIABLE: "1.5"})) == 1.5
    assert hang_limit_s(spec(environment={HANG_VARIABLE: "soon"})) == 60
    assert hang_limit_s(spec(environment={HANG_VARIABLE: "0"})) == 0


def test_without_a_limit_nothing_is_checked(tmp_path: Path) -> None:
    scene = Scene(tmp_path, hang_after_s=0)
    scene.watch.start(IDLE, 100.0)
    scene.watch.poll(1e9)
    assert scene.notes() == []
    scene.close()
