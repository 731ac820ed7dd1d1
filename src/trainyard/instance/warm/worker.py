"""A warm worker: imports what programs of one user need, then waits for requests and forks a supervisor for each.

It makes no tensor, does not touch CUDA and has no threads, since none of these survive a fork. It never reads the spec
of a program, which goes to the supervisor alone, so nothing of one job is in the memory of another. It runs in the
Python of the environment, which may be older or newer than the yard's.
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
from trainyard.instance.launch.main import become_rank
from trainyard.instance.sandbox import processes, supervisor
from trainyard.instance.sandbox.program import ProgramEntered
from trainyard.instance.warm import script
from trainyard.instance.warm.frameworks import is_known
from trainyard.instance.warm.interpreter import InterpreterState
from trainyard.instance.warm.process_context import package_mtimes
from trainyard.link.warm import FORK, KEEP, LEAVE, MAX_PACKET_BYTES, WorkerFolder

_OLDEST_PYTHON = (3, 11)
_REQUEST_TIMEOUT_S = 1.0
_BACKLOG = 64
_HOOK_MODULES = (
    "trainyard.instance.rule_evaluation.hook_attachment",
    "trainyard.instance.rule_evaluation.rule_subscriber",
    "trainyard.instance.recorder.observers",
    "trainyard.instance.hook.pytorch.torch_hook",
    "trainyard.instance.hook.profiling.windows",
    "trainyard.instance.hook.profiling.torch_timer",
)
# Above all descriptors that a supervisor gets.
_HIGH_FD = 100


class UnfitWorker(Exception):
    """This interpreter can never be a worker."""


def main() -> None:
    """Serve until this worker is no longer needed; in a forked process, run the program."""
    orders = json.loads(sys.argv[2])
    origin = InterpreterState.of_this_interpreter()
    folder = WorkerFolder(Path(orders["folder"]))
    try:
        worker = _prepare(folder, orders, origin)
    except UnfitWorker as unfit:
        replace_file(folder.refusal, json.dumps({"why": str(unfit)}).encode())
        os._exit(1)
    try:
        worker.serve()
    except ProgramEntered as entered:
        program, failure_fd = entered.spec, entered.failure_fd
    else:
        os._exit(0)
    if program.launcher:
        become_rank(program, failure_fd)
    # Outside the handler, or the program's exceptions would get this one as their context.
    script.run(program, origin, failure_fd=failure_fd)


def _prepare(folder: WorkerFolder, orders: dict[str, Any], origin: InterpreterState) -> "_ForkServer":
    _check(orders)
    # Before the imports, so that changes made meanwhile are noticed.
    folders = package_mtimes(origin.path)
    preload(orders["modules"], orders["trusted"])
    _preload_hook()
    _check_forkable(orders["lock"])
    _freeze_memory()
    origin.remember_modules()
    worker = _ForkServer(folder, lock=orders["lock"], keep_s=orders["keep_s"])
    _describe(folder, orders, folders)
    return worker


def _check(orders: dict[str, Any]) -> None:
    if sys.version_info < _OLDEST_PYTHON:
        raise UnfitWorker(f"{orders['python']} is older than Python {_OLDEST_PYTHON[0]}.{_OLDEST_PYTHON[1]}.")
    for entry in sys.path:
        real = os.path.realpath(entry)
        is_trusted = any(real == tree or real.startswith(f"{tree}/") for tree in orders["trusted"])
        # The zip of the standard library seldom exists.
        if os.path.exists(real) and not is_trusted:
            raise UnfitWorker(f"{orders['python']} imports from {entry}, which was not examined.")


def preload(modules: list[str], trusted: list[str]) -> None:
    """Import the modules. A missing or broken framework is left to the programs themselves.

    The names come from a scan of a user's code, so only listed ones are imported, and only from examined folders.
    """
    for name in modules:
        if not is_known(name):
            raise UnfitWorker(f"A worker may not import {name}.")
        try:
            for parent in _parents(name):
                _require_examined(parent, trusted)
                importlib.import_module(parent)
        except Exception as error:
            if isinstance(error, UnfitWorker):
                raise
            sys.stderr.write(f"cannot import {name}: {error!r}\n")


def _preload_hook() -> None:
    """Import the hook that captures tensors if torch is used; its import takes as long as the rest of a start."""
    if "torch" not in sys.modules:
        return
    try:
        for name in _HOOK_MODULES:
            importlib.import_module(name)
    except Exception as error:
        sys.stderr.write(f"cannot import the hook: {error!r}\n")


def _parents(name: str) -> list[str]:
    """Return a module and its parent packages, outermost first."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(1, len(words) + 1)]


def _require_examined(name: str, trusted: list[str]) -> None:
    """Raise UnfitWorker if the module is not in an examined folder; to be called before any of it is executed."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"there is no {name}")
    real = os.path.realpath(spec.origin or "/")
    if not any(real.startswith(f"{tree}/") for tree in trusted):
        raise UnfitWorker(f"{name} would be imported from {spec.origin}, which was not examined.")


def _check_forkable(lock: int) -> None:
    """Check that imports left no threads, processes or files. Threads of BLAS libraries restart after a fork."""
    if threading.active_count() > 1:
        raise UnfitWorker(f"An import started the thread {threading.enumerate()[-1].name}.")
    children = processes.descendants(os.getpid())
    if children:
        raise UnfitWorker(f"An import started process {children[0]}.")
    opened = {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, lock}
    left = [descriptor for descriptor in opened if os.path.exists(f"/proc/self/fd/{descriptor}")]
    if left:
        raise UnfitWorker(f"An import left {os.readlink(f'/proc/self/fd/{left[0]}')} open.")


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


def _freeze_memory() -> None:
    """Freeze the objects in memory, so that forked programs share their pages."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            # Otherwise programs would not see warnings that the worker has already raised.
            module.__dict__.pop("__warningregistry__", None)
    getattr(warnings, "onceregistry", {}).clear()
    gc.collect()
    gc.disable()
    gc.freeze()


class _ForkServer:
    def __init__(self, folder: WorkerFolder, *, lock: int, keep_s: int) -> None:
        self._folder = folder
        self._lock = lock
        self._keep_s = keep_s
        self._idle_since = _boottime()
        # Pids by pidfd.
        self._children: dict[int, int] = {}
        self._poll = select.poll()
        self._listener: socket.socket | None = _listen(folder)
        self._poll.register(self._listener, select.POLLIN)

    def serve(self) -> None:
        """Return when this worker has left and all its forked programs have ended."""
        if self._folder.leave.exists():
            # It was told to leave before its socket existed.
            self._leave()
        while self._listener is not None or self._children:
            if self._remaining_s() <= 0:
                self._leave()
                continue
            # The remaining time passes while the machine is suspended, but a wait does not; so it is computed again.
            ready = [descriptor for descriptor, _ in self._poll.poll(max(self._remaining_s(), 1) * 1000)]
            for descriptor in ready:
                if descriptor in self._children:
                    self._reap(descriptor)
                elif self._listener is not None:
                    self._answer(self._listener)

    def _remaining_s(self) -> float:
        if self._children:
            return 3600.0
        return self._idle_since + self._keep_s - _boottime()

    def _answer(self, listener: socket.socket) -> None:
        descriptors: list[int] = []
        connection, _ = listener.accept()
        try:
            connection.settimeout(_REQUEST_TIMEOUT_S)
            data, descriptors, _, _ = socket.recv_fds(connection, MAX_PACKET_BYTES, 8)
            self._obey(json.loads(data), connection, descriptors)
        except (OSError, ValueError, KeyError) as error:
            # The client went away or sent a malformed request.
            sys.stderr.write(f"a request failed: {error!r}\n")
        finally:
            connection.close()
            for descriptor in descriptors:
                os.close(descriptor)

    def _obey(self, request: dict[str, Any], connection: socket.socket, descriptors: list[int]) -> None:
        if _peer_uid(connection) != os.geteuid():
            raise PermissionError("the request comes from another user")
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
                self._become_supervisor(connection, descriptors)
            pidfd = os.pidfd_open(pid)
            self._children[pidfd] = pid
            self._poll.register(pidfd, select.POLLIN)
            os.utime(self._folder.description)
            socket.send_fds(connection, [json.dumps({"pid": pid}).encode()], [pidfd])

    def _become_supervisor(self, connection: socket.socket, descriptors: list[int]) -> None:
        """Drop everything of the worker and supervise a program, whose own process continues in `main`."""
        try:
            # Otherwise the finalizers of these objects would close descriptors that reuse their numbers.
            connection.detach()
            if self._listener is not None:
                self._listener.detach()
            _arrange_descriptors(descriptors)
            descriptors.clear()
            os.setsid()
            # The umask of an agent; the worker's own files are for the yard alone.
            os.umask(0o022)
            supervisor.main()
        except Exception:
            os._exit(1)

    def _reap(self, pidfd: int) -> None:
        os.waitpid(self._children.pop(pidfd), 0)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        self._idle_since = _boottime()

    def _leave(self) -> None:
        """Accept no more requests and leave the folder to the next worker. Stay until all forked programs end."""
        if self._listener is not None:
            self._poll.unregister(self._listener)
            self._listener.close()
            self._listener = None
            for file in (self._folder.socket, self._folder.description):
                file.unlink(missing_ok=True)
            os.close(self._lock)


def _arrange_descriptors(descriptors: list[int]) -> None:
    """Move descriptors to the numbers that a supervisor expects, and close all others."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH_FD) for descriptor in descriptors]
    control, *others = high
    os.dup2(control, 0, inheritable=False)
    for target, source in enumerate(others, supervisor.STATUS_FD):
        os.dup2(source, target, inheritable=False)
    os.dup2(1, 2)
    os.closerange(supervisor.STATUS_FD + len(others), _HIGH_FD + 65536)


def _listen(folder: WorkerFolder) -> socket.socket:
    """Bind through /proc, since the path of a socket must be short, however deep the yard's home is."""
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
