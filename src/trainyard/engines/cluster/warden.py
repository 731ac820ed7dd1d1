"""Ends an instance with its lease, whatever its agent does.

The agent stops its program by itself before that. This process is there for an agent that hangs or was stopped: at the
end of the lease it kills the agent and all that the agent has made. It sleeps until then, and goes when the attempt has
been ended, or the lease and everything with it. It is no child of who started it, and outlives it.
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
from trainyard.link.folders import InstanceFolder
from trainyard.link.holds import hold, is_held
from trainyard.link.lease import Lease, mark_taken
from trainyard.link.presence import presence_of

_LOOK_S = 1.0
_PATIENCE_S = 10.0
_PACKAGE = Path(__file__).parents[3]
_BOOT = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
sys.path.append(sys.argv.pop(1))
from trainyard.engines.cluster.warden import main
sys.exit(main(sys.argv[1:]))
"""

log = logging.getLogger(__name__)


def ensure_warden(folder: InstanceFolder, *, python: str = sys.executable) -> None:
    """Start a warden for an instance, unless it has one; OSError when the machine refuses."""
    held = hold(_lock(folder))  # which goes over to the warden, and ends with it
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
    """Wait for the end of the lease, and end the instance then; return before that when nothing of it is left."""
    lease = Lease.of(folder)
    while (left_s := lease.left_s) > 0:
        if _is_over(folder):
            return
        time.sleep(min(left_s, _LOOK_S))  # not longer, because sleeping stands still while the machine does
    while not _is_over(folder):
        try:
            _end(folder)
        except (Unavailable, OSError) as error:
            log.warning("instance does not end", extra={"instance": str(folder.root), "why": str(error)})
            time.sleep(_LOOK_S)
        else:
            log.info("instance ended with its lease", extra={"instance": str(folder.root)})
            return


def _end(folder: InstanceFolder) -> None:
    presence = presence_of(folder.root)
    if presence is not None and presence.is_alive:
        with contextlib.suppress(OSError):  # a full disk must not save it
            mark_taken(folder)
        kill(presence)
        if not wait_for_end(presence, Deadline(_PATIENCE_S)):
            raise Unavailable(f"Agent {presence.pid} does not end.")
    sweep_instance(folder, Deadline(_PATIENCE_S))


def _is_over(folder: InstanceFolder) -> bool:
    """Whether the attempt was ended and swept, which takes away the folder of the program; or all was forgotten."""
    if not folder.root.exists():
        return True
    presence = presence_of(folder.root)
    is_alive = is_held(folder.lock) or (presence is not None and presence.is_alive)
    return (folder.root.parent / "ended").exists() and not is_alive and not folder.ml.exists()


def _lock(folder: InstanceFolder) -> Path:
    return folder.root / "warden"
