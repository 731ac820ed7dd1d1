import dataclasses
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.foundation.home import Home, process_start

PROGRAM = "import signal, sys; {}; print('ready', flush=True); signal.pause()"
ENDS_ON_TERM = PROGRAM.format("signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))")
IGNORES_TERM = PROGRAM.format("signal.signal(signal.SIGTERM, signal.SIG_IGN)")


@pytest.fixture
def process(request: pytest.FixtureRequest, yard: Home) -> Iterator[subprocess.Popen[str]]:
    """A separate process that takes the place of the yard."""
    child = subprocess.Popen([sys.executable, "-c", request.param], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        runtime, started = yard.runtime(), process_start(child.pid)
        assert runtime
        assert started
        yard.write_runtime(dataclasses.replace(runtime, pid=child.pid, started=started))
        yield child
        child.kill()


@pytest.mark.parametrize("process", [ENDS_ON_TERM], indirect=True)
def test_the_process_is_asked_to_stop_and_waited_for(trainyard: Trainyard, process: subprocess.Popen[str]) -> None:
    result = trainyard("down")

    assert result.code == 0
    assert result.err == f"Stopped the yard (process {process.pid}).\n"
    assert process.wait(timeout=5) == 0


@pytest.mark.parametrize("process", [IGNORES_TERM], indirect=True)
def test_one_that_does_not_stop_in_time_is_said_with_what_to_do(
    trainyard: Trainyard, process: subprocess.Popen[str]
) -> None:
    result = trainyard("down", "--timeout", "0.1")

    assert result.code == 124
    assert "is still running 0.1 s after" in result.err
    assert f"kill -9 {process.pid}" in result.err
    assert process.poll() is None


@pytest.mark.parametrize("process", [ENDS_ON_TERM], indirect=True)
def test_another_process_that_has_the_old_pid_is_left_alone(
    trainyard: Trainyard, process: subprocess.Popen[str], yard: Home
) -> None:
    runtime = yard.runtime()
    assert runtime
    yard.write_runtime(dataclasses.replace(runtime, started="another-boot:1"))

    result = trainyard("down")

    assert result.code == 0
    assert "No yard is running" in result.err
    assert process.poll() is None


def test_without_a_yard_there_is_nothing_to_do(trainyard: Trainyard) -> None:
    result = trainyard("down")

    assert result.code == 0
    assert "No yard is running" in result.err
