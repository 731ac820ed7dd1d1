"""Ends an instance when its lease expires, whatever its agent does.

The agent stops its program by itself before that. This process is there for an agent that hangs or was stopped: when
the lease expires it kills the agent and everything that the agent has started. It exits when that is done, or when the
attempt was ended before. It is not a child of the process that started it, and outlives it.
"""

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from trainyard.engines.local.processes import Deadline, kill, wait_for_end
from trainyard.engines.local.sweep import sweep_instance
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.journal import write_journal
from trainyard.link.agent_process import find_agent_process
from trainyard.link.file_locks import hold, is_held
from trainyard.link.folders import InstanceFolder
from trainyard.link.lease import Lease, mark_ended_by_lease

_CHECK_INTERVAL_S = 1.0
_END_TIMEOUT_S = 10.0
_PACKAGE = Path(__file__).parents[3]
_BOOT = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
sys.path.append(sys.argv.pop(1))
from trainyard.engines.cluster.lease_watchdog import main
sys.exit(main(sys.argv[1:]))
"""

log = logging.getLogger(__name__)


def ensure_watchdog(folder: InstanceFolder, *, python: str = sys.executable) -> None:
    """Start a watchdog for an instance, unless it has one. Raises OSError if the machine refuses."""
    # The watchdog inherits the lock, and releases it when it exits.
    held = hold(_lock_file(folder))
    if held is None:
        return
    with contextlib.closing(os.fdopen(held, "rb")), (folder.root / "warden.log").open("ab") as output:
        subprocess.run(
            [python, "-I", "-S", "-c", _BOOT, str(_PACKAGE), str(folder.root)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env={},
            pass_fds=(held,),
            start_new_session=True,
            check=True,
        )


def main(arguments: Sequence[str]) -> int:
    write_journal(sys.stderr, "info")
    watch(InstanceFolder.at(arguments[0]))
    return 0


def watch(folder: InstanceFolder) -> None:
    """Wait until the lease expires, then end the instance. Return earlier if nothing of it is left."""
    lease = Lease.of(folder)
    while (left_s := lease.left_s) > 0:
        if _is_over(folder):
            return
        # Not longer, because this clock stands still while the machine is suspended.
        time.sleep(min(left_s, _CHECK_INTERVAL_S))
    while not _is_over(folder):
        try:
            _end_instance(folder)
        except (Unavailable, OSError) as error:
            log.warning("instance does not end", extra={"instance": str(folder.root), "why": str(error)})
            time.sleep(_CHECK_INTERVAL_S)
        else:
            log.info("instance ended with its lease", extra={"instance": str(folder.root)})
            return


def _end_instance(folder: InstanceFolder) -> None:
    presence = find_agent_process(folder.root)
    if presence is not None and presence.is_alive:
        # A full disk must not keep it alive.
        with contextlib.suppress(OSError):
            mark_ended_by_lease(folder)
        kill(presence)
        if not wait_for_end(presence, Deadline(_END_TIMEOUT_S)):
            raise Unavailable(f"Agent {presence.pid} does not end.")
    sweep_instance(folder, Deadline(_END_TIMEOUT_S))


def _is_over(folder: InstanceFolder) -> bool:
    """Whether the attempt was ended and swept, which removes the program's folder, or was forgotten altogether."""
    if not folder.root.exists():
        return True
    presence = find_agent_process(folder.root)
    is_alive = is_held(folder.lock) or (presence is not None and presence.is_alive)
    return (folder.root.parent / "ended").exists() and not is_alive and not folder.ml.exists()


def _lock_file(folder: InstanceFolder) -> Path:
    return folder.root / "warden"
