"""Becomes a warm worker: `python -I -S -c … PACKAGE ORDERS`, as an agent starts it in the background.

It runs on the yard's own Python until the environment of the worker has been examined. Then it executes the Python of
that environment, keeping its lock.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.files import PRIVATE_FOLDER, replace_file
from trainyard.instance.sandbox import identity
from trainyard.instance.sandbox.system_calls import MS_BIND, NEW_MOUNT, READ_ONLY, mount, restrict_mount
from trainyard.instance.warm.circumstances import circumstances
from trainyard.instance.warm.trust import examine
from trainyard.link.warm import WorkerFolder, hold, tell_to_leave, warm_workers

_MOST_OF_ACCOUNT = 3
_MOST_OF_MACHINE = 8

# As the keeper, it enters the package past its __init__. Nothing is imported from where it was started.
_BOOT = (
    "import sys; del sys.path[0]; sys.dont_write_bytecode = True; "
    "package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = [sys.argv[1]]; "
    "from trainyard.instance.warm.worker import main; main()"
)
_ROOM = " " * 1024  # of its command line, in which a program shows its own


def main() -> None:
    package, orders = sys.argv[1], json.loads(sys.argv[2])
    folder = WorkerFolder(Path(orders["folder"]))
    os.umask(0o077)
    folder.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    lock = hold(folder)
    if lock is None:  # another one has begun
        return
    for stale in (folder.leave, folder.description, folder.socket):
        stale.unlink(missing_ok=True)
    try:
        orders |= {"lock": lock, "circumstances": circumstances(), "trusted": examine(Path(orders["python"]))}
        replace_file(folder.refusal, b'{"why": "It did not come up; its log tells more."}')  # which it removes
        _make_room(folder)
        if os.geteuid() != 0:
            _protect_executable(orders["python"])
        _execute(folder, package, orders)
    except (TrainyardError, OSError) as error:
        replace_file(folder.refusal, json.dumps({"why": str(error)}).encode())


def _make_room(folder: WorkerFolder) -> None:
    """Tell those to leave that nobody has used for longest, where there are too many."""
    workers = warm_workers(folder.root.parents[1])
    own = [worker for worker in workers if worker.account == folder.root.parent.name]
    for worker in {*own[_MOST_OF_ACCOUNT - 1 :], *workers[_MOST_OF_MACHINE - 1 :]}:
        tell_to_leave(worker.folder)


def _protect_executable(python: str) -> None:
    """Make the worker's own executable read-only for it and for all it forks.

    A forked program can open the file that it was executed from as `/proc/self/exe`, past the mounts of its sandbox. It
    runs as the yard's own user, who may own that file. Where the yard is root, the program is another user.
    """
    real = os.path.realpath(python)
    identity.enter_user_namespace(NEW_MOUNT)
    mount(real, real, flags=MS_BIND)
    restrict_mount(real, READ_ONLY, is_recursive=False)


def _execute(folder: WorkerFolder, package: str, orders: dict[str, Any]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for target, source in enumerate((nothing, nothing, log)):
        os.dup2(source, target)
    os.set_inheritable(orders["lock"], True)
    arguments = [orders["python"], "-c", _BOOT, package, json.dumps(orders), _ROOM]
    os.execve(orders["python"], arguments, orders["variables"])
