import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from trainyard.instance.sandbox.watchdog import Watchdog


@pytest.fixture
def child() -> Iterator[int]:
    code = "import sys; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


def test_it_barks_when_the_tree_is_over_the_limit_and_remembers(child: int) -> None:
    watchdog = Watchdog(os.getpid(), 1)
    assert watchdog.look(time.monotonic())
    assert watchdog.has_barked


def test_it_is_quiet_below_the_limit(child: int) -> None:
    watchdog = Watchdog(os.getpid(), 1 << 50)
    assert not watchdog.look(time.monotonic())
    assert not watchdog.has_barked


def test_it_does_not_look_before_its_time(child: int) -> None:
    watchdog = Watchdog(os.getpid(), 1)
    now = time.monotonic()
    watchdog.look(now)
    assert round(watchdog.pause_s(now), 6) >= 0.1
    assert not watchdog.look(now + 0.05)
