"""Makes a forked interpreter what one that has just been started is.

Not all of it can be: the seed of hashes and `/proc/self/environ` are those of the worker, what it imported is in
`sys.modules`, its objects are frozen for the garbage collector, and two frames lie below that of the script.
"""

import builtins
import gc
import importlib
import importlib.machinery
import os
import signal
import site
import sys
import time
from io import FileIO, TextIOWrapper
from types import ModuleType
from typing import Any

from trainyard.foundation.command_line import show_command
from trainyard.instance.launch.attaching import attach_on_import
from trainyard.instance.launch.settling import settle_at_exit
from trainyard.instance.launch.stacks import show_on_signal
from trainyard.instance.sandbox import system_calls
from trainyard.instance.sandbox.orders import Orders

_OWN = "trainyard"


class Origin:
    """How the interpreter was before anything was imported: what a program's is made from."""

    def __init__(self, path: list[str], executable: str) -> None:
        self.path = path
        self.executable = executable
        self.modules: frozenset[str] = frozenset()

    @classmethod
    def of_this_interpreter(cls) -> "Origin":
        return cls(list(sys.path), sys.executable)

    @property
    def library(self) -> list[str]:
        """The part of the path that comes before all packages."""
        names = [entry.rpartition("/")[2] for entry in self.path]
        return self.path[: names.index("lib-dynload") + 1] if "lib-dynload" in names else self.path

    def remember_modules(self) -> None:
        self.modules = frozenset(sys.modules)


def renew(orders: Orders, origin: Origin) -> None:
    """Replace all that belongs to one run of an interpreter, in the program's own process."""
    executable, *arguments = orders.argv
    _set_environment(orders.environment)
    _open_streams()
    _set_signals()
    system_calls.set_dumpable(1)  # as it is after an exec; init has forbidden it to itself
    sys.argv[:] = arguments
    sys.orig_argv[:] = orders.argv
    show_command(orders.argv)
    _set_path(executable, os.path.realpath(arguments[0]), origin=origin)
    show_on_signal()
    settle_at_exit()
    loaded = _forget_own_modules()
    _renew_modules(orders)
    gc.enable()
    sys.dont_write_bytecode = False
    attach_on_import(loaded)


def renew_main(file: str) -> None:
    """Make a module `__main__` as it is before the first line of a script."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
    main.__dict__.update(__builtins__=builtins, __file__=file, __cached__=None)
    if sys.version_info < (3, 14):
        main.__annotations__ = {}


def _set_environment(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()


def _open_streams() -> None:
    """In place, since modules may have kept them. Their descriptors are others than when they were opened."""
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper), "a worker has the streams that its interpreter opened"
        old: Any = stream.buffer
        assert isinstance(old, FileIO), "a worker has unbuffered streams, as its programs have"
        raw: Any = FileIO(old.fileno(), "wb", closefd=False)  # the old one remembers that it could seek
        raw.name = old.name
        TextIOWrapper.__init__(stream, raw, stream.encoding, stream.errors, "\n", write_through=True)


def _set_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_IGN)


def _set_path(executable: str, script: str, *, origin: Origin) -> None:
    named = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if executable == origin.executable:
        sys.path[:] = [*named, *origin.path]
        _find_user_site()
    else:
        sys.executable = executable
        sys.path[:] = [*named, *origin.library]
        _enter_environment(os.path.dirname(os.path.dirname(executable)))
    sys.path.insert(0, os.path.dirname(script))
    importlib.invalidate_caches()


def _find_user_site() -> None:
    """Packages of a user lie in the home folder, which is the job's own by now."""
    site.USER_BASE = site.USER_SITE = None
    site.getusersitepackages()


def _enter_environment(prefix: str) -> None:
    """Find the packages of another environment than the worker's, as the start of an interpreter does."""
    sys.prefix = sys.exec_prefix = prefix
    site.PREFIXES[:] = [sys.base_prefix, sys.base_exec_prefix]
    site.ENABLE_USER_SITE = site.USER_BASE = site.USER_SITE = None
    site.main()
    configuration = sys.modules.get("sysconfig")
    if configuration is not None:
        importlib.reload(configuration)


def _forget_own_modules() -> dict[str, ModuleType]:
    """A program may import a Trainyard of its own environment."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == _OWN}


def _renew_modules(orders: Orders) -> None:
    """What modules decided or drew when they were imported. `random` draws anew after a fork by itself."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.path.abspath(os.getcwd())  # type: ignore[attr-defined]
        process.current_process().authkey = os.urandom(32)
    spawn = sys.modules.get("multiprocessing.spawn")
    if spawn is not None:
        spawn.set_executable(sys.executable)
    for name, attribute in (("tempfile", "tempdir"), ("platform", "_uname_cache")):
        if name in sys.modules:
            setattr(sys.modules[name], attribute, None)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
        if 0 < orders.threads < torch.get_num_threads():
            torch.set_num_threads(orders.threads)
