"""Limits that a process beside the yard sets itself before it reads what programs wrote."""

import os
import resource
import signal
from pathlib import Path
from typing import IO

from trainyard.foundation.files import make_folder
from trainyard.server.control.worker_process import ONE_THREAD

# Below the priority of programs, but not so far that busy ones stop it.
_NICENESS = 5


def limit_cpu_time(seconds: int) -> None:
    """Let the process use so many seconds from now on; it is killed when it uses more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = int(used.ru_utime + used.ru_stime) + seconds
    # Its default action would leave a core.
    signal.signal(signal.SIGXCPU, lambda *_: _die())
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def lower_limit(kind: int, value: int) -> None:
    """Lower a limit of `resource`, or leave it if it is lower already."""
    soft, hard = resource.getrlimit(kind)
    known = [limit for limit in (soft, hard, value) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(kind, (min(known), hard))


def begin_reading(folder: Path, *, memory_bytes: int, file_bytes: int) -> IO[bytes]:
    """Limit a process that reads for the yard, make its folder, and return where its answers go.

    Limits of memory are limits of addresses, of which numpy and the code take a few hundred MB.
    """
    lower_limit(resource.RLIMIT_AS, memory_bytes)
    lower_limit(resource.RLIMIT_FSIZE, file_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)
    os.environ.update(ONE_THREAD)
    make_folder(folder, parents=True)
    answers = os.fdopen(os.dup(1), "wb")
    # What a library prints must not get between the answers.
    os.dup2(2, 1)
    return answers


def _die() -> None:
    signal.raise_signal(signal.SIGKILL)
