"""Resets a forked interpreter to the state of one that has just started.

Some things remain: the hash seed and `/proc/self/environ` are the worker's, its imports are in `sys.modules`, its
objects are frozen for the garbage collector, and two frames are below that of the script.
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
from trainyard.instance.launch.gloo_exit import wait_for_gloo_at_exit
from trainyard.instance.launch.import_watcher import attach_on_import
from trainyard.instance.launch.stacks import VARIABLE, dump_stacks_on_signal
from trainyard.instance.launch.user_packages import find_user_packages
from trainyard.instance.sandbox import system_calls
from trainyard.instance.sandbox.spec import SandboxSpec

_OWN = "trainyard"


class InterpreterState:
    """The state of the worker's interpreter before it imported anything, from which a program's state is made."""

    def __init__(self, path: list[str], executable: str) -> None:
        self.path = path
        self.executable = executable
        self.modules: frozenset[str] = frozenset()

    @classmethod
    def of_this_interpreter(cls) -> "InterpreterState":
        return cls(list(sys.path), sys.executable)

    @property
    def library(self) -> list[str]:
        """The part of the path that comes before site-packages."""
        names = [entry.rpartition("/")[2] for entry in self.path]
        return self.path[: names.index("lib-dynload") + 1] if "lib-dynload" in names else self.path

    def remember_modules(self) -> None:
        self.modules = frozenset(sys.modules)


def reset_interpreter(spec: SandboxSpec, origin: InterpreterState) -> None:
    """Reset, in the program's own process, everything that belongs to one run of an interpreter."""
    executable, *arguments = spec.argv
    _set_environment(spec.environment)
    _open_streams()
    _set_signals()
    # As after an exec; init has turned it off for itself.
    system_calls.set_dumpable(1)
    sys.argv[:] = arguments
    sys.orig_argv[:] = spec.argv
    show_command(spec.argv)
    _set_path(executable, os.path.realpath(arguments[0]), origin=origin)
    if stacks := spec.environment.get(VARIABLE):
        dump_stacks_on_signal(stacks)
    wait_for_gloo_at_exit()
    loaded = _forget_own_modules()
    _reset_modules(spec)
    gc.enable()
    sys.dont_write_bytecode = False
    attach_on_import(os.environ, loaded)


def reset_main(file: str) -> None:
    """Make a `__main__` module as it is before the first line of a script."""
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
    """Reopen the streams in place, since modules may hold them and their descriptors have been replaced."""
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper), "a worker keeps the streams that its interpreter opened"
        old: Any = stream.buffer
        assert isinstance(old, FileIO), "a worker has unbuffered streams, like its programs"
        # The old one has cached whether it could seek.
        raw: Any = FileIO(old.fileno(), "wb", closefd=False)
        raw.name = old.name
        TextIOWrapper.__init__(stream, raw, stream.encoding, stream.errors, "\n", write_through=True)


def _set_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_IGN)


def _set_path(executable: str, script: str, *, origin: InterpreterState) -> None:
    named = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if executable == origin.executable:
        sys.path[:] = [*named, *origin.path]
        _find_user_site()
    else:
        sys.executable = executable
        sys.path[:] = [*named, *origin.library]
        _enter_environment(os.path.dirname(os.path.dirname(executable)))
    find_user_packages()
    sys.path.insert(0, os.path.dirname(script))
    importlib.invalidate_caches()


def _find_user_site() -> None:
    """Find the user's site-packages in the home folder, which is now the job's own."""
    site.USER_BASE = site.USER_SITE = None
    site.getusersitepackages()


def _enter_environment(prefix: str) -> None:
    """Find the packages of another environment, as the start of an interpreter does."""
    sys.prefix = sys.exec_prefix = prefix
    site.PREFIXES[:] = [sys.base_prefix, sys.base_exec_prefix]
    site.ENABLE_USER_SITE = site.USER_BASE = site.USER_SITE = None
    site.main()
    configuration = sys.modules.get("sysconfig")
    if configuration is not None:
        importlib.reload(configuration)


def _forget_own_modules() -> dict[str, ModuleType]:
    """Remove and return the loaded Trainyard modules, since a program may import Trainyard from its own environment."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == _OWN}


def _reset_modules(spec: SandboxSpec) -> None:
    """Reset what modules decided or drew when they were imported. `random` reseeds itself after a fork."""
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
        if 0 < spec.threads < torch.get_num_threads():
            torch.set_num_threads(spec.threads)
