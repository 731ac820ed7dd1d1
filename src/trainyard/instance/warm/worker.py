"""A warm worker: imports what programs of one user need, then waits for requests and forks a keeper for each.

It makes no tensor, calls nothing of CUDA and has no thread of its own, since a fork would not survive either. It reads
no orders: those of a program go to its keeper alone, so that nothing of one job is in the memory of another. It runs in
the Python of the environment, which may be older or newer than the yard's.
"""

import fcntl
import gc
import importlib
import importlib.util
import json
import os
import select
import socket
import struct
import sys
import threading
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

from trainyard.foundation.files import replace_file
from trainyard.foundation.home import process_start
from trainyard.instance.launch.warm import become_rank
from trainyard.instance.sandbox import keeper, processes
from trainyard.instance.sandbox.program import Entered
from trainyard.instance.warm import script
from trainyard.instance.warm.circumstances import state_of
from trainyard.instance.warm.frameworks import is_known
from trainyard.instance.warm.interpreter import Origin
from trainyard.link.warm import FORK, KEEP, LEAVE, MOST_BYTES, WorkerFolder

_OLDEST = (3, 11)
_REQUEST_S = 1.0
_BACKLOG = 64
_HOOK_MODULES = (
    "trainyard.instance.judge.attachment",
    "trainyard.instance.judge.joining",
    "trainyard.instance.recorder.observers",
    "trainyard.instance.hook.pytorch.watching",
)
_HIGH = 100  # above all descriptors that a keeper is given


class Unfit(Exception):
    """This interpreter cannot be a worker, for a reason that does not pass."""


def main() -> None:
    """Serve until nobody needs this worker any more; in a forked program, run it."""
    orders = json.loads(sys.argv[2])
    origin = Origin.of_this_interpreter()
    folder = WorkerFolder(Path(orders["folder"]))
    try:
        worker = _prepare(folder, orders, origin)
    except Unfit as unfit:
        replace_file(folder.refusal, json.dumps({"why": str(unfit)}).encode())
        os._exit(1)
    try:
        worker.serve()
    except Entered as entered:
        program, failed = entered.orders, entered.failed
    else:
        os._exit(0)
    if program.launcher:
        become_rank(program, failed)
    # Outside of the handler, or the program's exceptions would have this one as their context.
    script.run(program, origin, failed=failed)


def _prepare(folder: WorkerFolder, orders: dict[str, Any], origin: Origin) -> "_Worker":
    _check(orders)
    folders = state_of(origin.path)  # before the imports: what changes meanwhile shows
    preload(orders["modules"], orders["trusted"])
    _preload_hook()
    _check_forkable(orders["lock"])
    _settle()
    origin.remember_modules()
    worker = _Worker(folder, lock=orders["lock"], keep_s=orders["keep_s"])
    _describe(folder, orders, folders)
    return worker


def _check(orders: dict[str, Any]) -> None:
    if sys.version_info < _OLDEST:
        raise Unfit(f"{orders['python']} is older than Python {_OLDEST[0]}.{_OLDEST[1]}.")
    for entry in sys.path:
        real = os.path.realpath(entry)
        is_trusted = any(real == tree or real.startswith(f"{tree}/") for tree in orders["trusted"])
        if os.path.exists(real) and not is_trusted:  # the zip of the library seldom does
            raise Unfit(f"{orders['python']} imports from {entry}, which was not examined.")


def preload(modules: list[str], trusted: list[str]) -> None:
    """Import what can be; of a framework that is missing or broken, programs may make what they like themselves.

    The names were chosen by what read a user's code, so only known ones are taken, and only from where it was examined.
    """
    for name in modules:
        if not is_known(name):
            raise Unfit(f"{name} is not among the modules that a worker may import.")
        try:
            for parent in _parents(name):
                _require_examined(parent, trusted)
                importlib.import_module(parent)
        except Exception as error:
            if isinstance(error, Unfit):
                raise
            sys.stderr.write(f"{name} is not imported: {error!r}\n")


def _preload_hook() -> None:
    """Import what captures the tensors of programs with torch, which takes as long as all else that such one does."""
    if "torch" not in sys.modules:
        return
    try:
        for name in _HOOK_MODULES:
            importlib.import_module(name)
    except Exception as error:
        sys.stderr.write(f"the hook is not imported: {error!r}\n")


def _parents(name: str) -> list[str]:
    """A module and all that it lies in, from the outside."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(1, len(words) + 1)]


def _require_examined(name: str, trusted: list[str]) -> None:
    """Unfit when the module would come from elsewhere; asked before any of it is executed."""
    found = importlib.util.find_spec(name)
    if found is None:
        raise ModuleNotFoundError(f"there is no {name}")
    real = os.path.realpath(found.origin or "/")
    if not any(real.startswith(f"{tree}/") for tree in trusted):
        raise Unfit(f"{name} would be imported from {found.origin}, which was not examined.")


def _check_forkable(lock: int) -> None:
    """Libraries for linear algebra start threads that restart themselves after a fork; Python's do not."""
    if threading.active_count() > 1:
        raise Unfit(f"An import started the thread {threading.enumerate()[-1].name}.")
    children = processes.descendants(os.getpid())
    if children:
        raise Unfit(f"An import started process {children[0]}.")
    opened = {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, lock}
    left = [descriptor for descriptor in opened if os.path.exists(f"/proc/self/fd/{descriptor}")]
    if left:
        raise Unfit(f"An import left {os.readlink(f'/proc/self/fd/{left[0]}')} open.")


def _describe(folder: WorkerFolder, orders: dict[str, Any], folders: dict[str, int]) -> None:
    names = {name.partition(".")[0] for name in sys.modules}
    facts = {
        "pid": os.getpid(),
        "started": process_start(os.getpid()),
        "python": orders["python"],
        "circumstances": orders["circumstances"],
        "folders": folders,
        "names": sorted(names - {"__main__", "trainyard"}),
        "packages": sorted(names - sys.stdlib_module_names - {"__main__", "trainyard"}),
    }
    folder.refusal.unlink(missing_ok=True)
    replace_file(folder.description, json.dumps(facts).encode())


def _settle() -> None:
    """Make what is in memory now stay where it is, so that forked programs share it."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            module.__dict__.pop("__warningregistry__", None)  # or programs would not be warned again
    getattr(warnings, "onceregistry", {}).clear()
    gc.collect()
    gc.disable()
    gc.freeze()


class _Worker:
    def __init__(self, folder: WorkerFolder, *, lock: int, keep_s: int) -> None:
        self._folder = folder
        self._lock = lock
        self._keep_s = keep_s
        self._idle_since = _boottime()
        self._children: dict[int, int] = {}  # pids by their descriptors
        self._poll = select.poll()
        self._listener: socket.socket | None = _listen(folder)
        self._poll.register(self._listener, select.POLLIN)

    def serve(self) -> None:
        """Return when this worker has left and all that it forked has ended."""
        if self._folder.leave.exists():  # it was told before it could be asked
            self._leave()
        while self._listener is not None or self._children:
            if self._left_s() <= 0:
                self._leave()
                continue
            # What is left is counted while the machine sleeps too, which a wait is not.
            ready = [descriptor for descriptor, _ in self._poll.poll(max(self._left_s(), 1) * 1000)]
            for descriptor in ready:
                if descriptor in self._children:
                    self._reap(descriptor)
                elif self._listener is not None:
                    self._answer(self._listener)

    def _left_s(self) -> float:
        if self._children:
            return 3600.0
        return self._idle_since + self._keep_s - _boottime()

    def _answer(self, listener: socket.socket) -> None:
        descriptors: list[int] = []
        connection, _ = listener.accept()
        try:
            connection.settimeout(_REQUEST_S)
            data, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 8)
            self._obey(json.loads(data), connection, descriptors)
        except (OSError, ValueError, KeyError) as error:  # of one who went away, or who does not know how to ask
            sys.stderr.write(f"a request failed: {error!r}\n")
        finally:
            connection.close()
            for descriptor in descriptors:
                os.close(descriptor)

    def _obey(self, request: dict[str, Any], connection: socket.socket, descriptors: list[int]) -> None:
        if _peer_uid(connection) != os.geteuid():
            raise PermissionError("another user asks")
        if request["do"] == LEAVE:
            self._leave()
            connection.send(b"{}")
        elif request["do"] == KEEP:
            self._keep_s = max(self._keep_s, int(request["keep_s"]))
            connection.send(b"{}")
        elif request["do"] == FORK and len(descriptors) >= 3:
            self._keep_s = max(self._keep_s, int(request["keep_s"]))
            pid = os.fork()
            if pid == 0:
                self._become_keeper(connection, descriptors)
            pidfd = os.pidfd_open(pid)
            self._children[pidfd] = pid
            self._poll.register(pidfd, select.POLLIN)
            os.utime(self._folder.description)
            socket.send_fds(connection, [json.dumps({"pid": pid}).encode()], [pidfd])

    def _become_keeper(self, connection: socket.socket, descriptors: list[int]) -> None:
        """Let go of all that is the worker's, and keep a program; its own process goes on in `main`."""
        try:
            connection.detach()  # or the end of these objects would close what later has the same number
            if self._listener is not None:
                self._listener.detach()
            _take_places(descriptors)
            descriptors.clear()
            os.setsid()
            os.umask(0o022)  # as that of an agent is; the worker's own files are for the yard alone
            keeper.main()
        except Exception:
            os._exit(1)

    def _reap(self, pidfd: int) -> None:
        os.waitpid(self._children.pop(pidfd), 0)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        self._idle_since = _boottime()

    def _leave(self) -> None:
        """Take no more requests and leave the folder to the next worker; this one stays for what it has forked."""
        if self._listener is not None:
            self._poll.unregister(self._listener)
            self._listener.close()
            self._listener = None
            for file in (self._folder.socket, self._folder.description):
                file.unlink(missing_ok=True)
            os.close(self._lock)


def _take_places(descriptors: list[int]) -> None:
    """Put descriptors where a keeper has them, and close all others."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH) for descriptor in descriptors]
    control, *others = high
    os.dup2(control, 0, inheritable=False)
    for target, source in enumerate(others, keeper.STATUS):
        os.dup2(source, target, inheritable=False)
    os.dup2(1, 2)
    os.closerange(keeper.STATUS + len(others), _HIGH + 65536)


def _listen(folder: WorkerFolder) -> socket.socket:
    """The path of a socket must be short, however deep the yard's home is."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    place = os.open(folder.root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{place}/{folder.socket.name}")
    finally:
        os.close(place)
    listener.listen(_BACKLOG)
    return listener


def _peer_uid(connection: socket.socket) -> int:
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
