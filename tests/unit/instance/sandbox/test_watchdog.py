import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from trainyard.instance.sandbox.watchdog import MemoryWatchdog


@pytest.fixture
def child() -> Iterator[int]:
    code = "import sys; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


def test_it_reports_a_tree_over_the_limit_and_remembers(child: int) -> None:
    watchdog = MemoryWatchdog(os.getpid(), 1)
    assert watchdog.check(time.monotonic())
    assert watchdog.has_tripped


def test_it_is_quiet_below_the_limit(child: int) -> None:
    watchdog = MemoryWatchdog(os.getpid(), 1 << 50)
    assert not watchdog.check(time.monotonic())
    assert not watchdog.has_tripped


def test_it_does_not_look_before_its_time(child: int) -> None:
    watchdog = MemoryWatchdog(os.getpid(), 1)
    now = time.monotonic()
    watchdog.check(now)
    assert round(watchdog.pause_s(now), 6) >= 0.1
    assert not watchdog.check(now + 0.05)
