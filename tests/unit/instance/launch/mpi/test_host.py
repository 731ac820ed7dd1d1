"""How a host ends what mpirun has started on it."""

import os
import signal
import subprocess
import sys

from trainyard.instance.launch.mpi.host import _terminate_starter


def test_a_starter_that_is_stopped_learns_of_sigterm() -> None:
    program = "import os, signal; print('ready', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        starter.stdout.readline()
        os.waitid(os.P_PID, starter.pid, os.WSTOPPED)
        pidfd = os.pidfd_open(starter.pid)
        try:
            _terminate_starter(pidfd)
            assert starter.wait(30) == -signal.SIGTERM
        finally:
            os.close(pidfd)
            starter.kill()
