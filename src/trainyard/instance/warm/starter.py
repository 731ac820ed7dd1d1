"""Becomes a warm worker: `python -I -S -c … PACKAGE ORDERS`, started by an agent in the background.

It runs on the yard's own Python until it has examined the environment of the worker. Then it executes the Python of
that environment and keeps the lock.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.files import PRIVATE_FOLDER, replace_file
from trainyard.foundation.interpreter import boot_code
from trainyard.instance.sandbox import identity
from trainyard.instance.sandbox.system_calls import MS_BIND, NEW_MOUNT, READ_ONLY, mount, restrict_mount
from trainyard.instance.warm.process_context import process_context
from trainyard.instance.warm.trust import examine_environment
from trainyard.link.warm import WorkerFolder, dismiss_worker, hold_worker, warm_workers

_MAX_PER_ACCOUNT = 3
_MAX_PER_MACHINE = 8

# A worker must not import from its working folder.
_BOOT = boot_code("trainyard.instance.warm.worker", setup="del sys.path[0]; sys.dont_write_bytecode = True")
# Reserves space in the command line, which a forked program overwrites with its own.
_COMMAND_LINE_PADDING = " " * 1024


def main() -> None:
    package, orders = sys.argv[1], json.loads(sys.argv[2])
    folder = WorkerFolder(Path(orders["folder"]))
    os.umask(0o077)
    folder.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    lock = hold_worker(folder)
    if lock is None:
        # Another starter was first.
        return
    for stale in (folder.leave, folder.description, folder.socket):
        stale.unlink(missing_ok=True)
    _open_streams(folder)
    try:
        orders |= {
            "lock": lock,
            "circumstances": process_context(),
            "trusted": examine_environment(Path(orders["python"])),
        }
        # The worker removes this file once it serves.
        _refuse(folder, f"The warm worker did not start; {folder.log} says why.", is_fault=True)
        for surplus in surplus_workers(folder.root.parents[1], folder.root.parent.name):
            dismiss_worker(surplus)
        if os.geteuid() != 0:
            _protect_executable(orders["python"])
        _execute(package, orders)
    except (TrainyardError, OSError) as error:
        _refuse(folder, str(error))
    except Exception as error:
        traceback.print_exc()
        why = f"The warm worker did not start because of an error of Trainyard ({error!r}); see {folder.log}."
        _refuse(folder, why, is_fault=True)


def surplus_workers(warm: Path, account: str) -> set[WorkerFolder]:
    """Return the least recently used workers, which must leave so that the account can have another one."""
    workers = warm_workers(warm)
    own = [worker for worker in workers if worker.account == account]
    return {worker.folder for worker in (*own[_MAX_PER_ACCOUNT - 1 :], *workers[_MAX_PER_MACHINE - 1 :])}


def _refuse(folder: WorkerFolder, why: str, *, is_fault: bool = False) -> None:
    replace_file(folder.refusal, json.dumps({"why": why, "fault": is_fault}).encode())


def _protect_executable(python: str) -> None:
    """Make the worker's own executable read-only for it and for all it forks.

    A forked program can open its executable as `/proc/self/exe`, past the mounts of its sandbox. It runs as the yard's
    own user, who may own that file. If the yard is root, the program runs as another user.
    """
    real = os.path.realpath(python)
    identity.enter_user_namespace(NEW_MOUNT)
    mount(real, real, flags=MS_BIND)
    restrict_mount(real, READ_ONLY, is_recursive=False)


def _open_streams(folder: WorkerFolder) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    log = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    for target, source in enumerate((nothing, nothing, log)):
        os.dup2(source, target)


def _execute(package: str, orders: dict[str, Any]) -> None:
    os.set_inheritable(orders["lock"], True)
    arguments = [orders["python"], "-c", _BOOT, package, json.dumps(orders), _COMMAND_LINE_PADDING]
    os.execve(orders["python"], arguments, orders["variables"])
