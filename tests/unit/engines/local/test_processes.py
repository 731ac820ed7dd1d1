import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.engines.local.processes import Deadline, kill, kill_cgroup, wait_for_end
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.home import process_start
from trainyard.link.agent_process import ProcessIdentity

V1_PIDS = Path("/sys/fs/cgroup/pids")
FORKING = "import os, time; [os.fork() or os.setsid() for _ in range(3)]; time.sleep(600)"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def presence(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    return ProcessIdentity(process.pid, process_start(process.pid) or "")


def test_a_killed_process_ends(child: subprocess.Popen[bytes]) -> None:
    process = presence(child)
    assert not wait_for_end(process, Deadline(0.01))

    kill(process)

    assert wait_for_end(process, Deadline(10))
    assert child.wait() == -9


def test_another_process_with_the_same_pid_is_left_alone(child: subprocess.Popen[bytes]) -> None:
    stranger = ProcessIdentity(child.pid, "another boot:1")

    kill(stranger)

    assert wait_for_end(stranger, Deadline(0))
    assert not wait_for_end(presence(child), Deadline(0.05))


def test_a_process_that_is_gone_has_ended(child: subprocess.Popen[bytes]) -> None:
    process = presence(child)
    child.kill()
    child.wait()

    kill(process)

    assert wait_for_end(process, Deadline(0))


def test_a_group_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    kill_cgroup(tmp_path / "absent", Deadline(0))


@pytest.mark.skipif(
    not os.access(V1_PIDS, os.W_OK) or not (V1_PIDS / "cgroup.procs").exists(),
    reason="control groups of version 1 cannot be made here",
)
def test_every_process_of_a_group_is_killed_and_the_group_removed() -> None:
    group = V1_PIDS / f"trainyard-test-{os.getpid()}"
    (group / "inner").mkdir(parents=True)
    join = f"open({str(group / 'inner' / 'cgroup.procs')!r}, 'w').write('0')"
    with subprocess.Popen([sys.executable, "-c", f"{join}; print(flush=True); {FORKING}"], stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()

        kill_cgroup(group, Deadline(20))

        assert not group.exists()
        process.stdout.close()
        assert process.wait() == -9


def test_a_group_whose_processes_do_not_end_is_reported(tmp_path: Path) -> None:
    # A plain folder stands for a group that the kernel does not empty: its only member is not killed, since its pid
    # is none that can be.
    group = tmp_path / "group"
    group.mkdir()
    (group / "cgroup.procs").write_text(f"{2**22 + 1}\n")

    with pytest.raises(Unavailable, match="do not end"):
        kill_cgroup(group, Deadline(0))
