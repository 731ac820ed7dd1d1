"""Runs the client as on Windows: without what only Linux has, and without the packages that only a yard needs.

    python -m tests.other_system import MODULE …     import modules
    python -m tests.other_system trainyard ls …      run a command line

The modules and functions are hidden after the standard library has been imported, as it adapts to each system.
"""

import asyncio  # noqa: F401 - adapts to the system when it is imported, as do other modules below
import ctypes  # noqa: F401
import getpass  # noqa: F401
import importlib
import multiprocessing.pool  # noqa: F401
import os
import random  # noqa: F401
import select
import shutil  # noqa: F401
import signal
import ssl  # noqa: F401
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
from importlib.machinery import ModuleSpec

_LINUX_MODULES = "fcntl grp pty pwd readline resource syslog termios tty"
# What pyproject.toml installs on Linux only, and extras.
_YARD_PACKAGES = "alembic awscrt cryptography httptools numpy obstore scipy sqlalchemy torch uv uvicorn"
_LINUX_FUNCTIONS = (
    (
        os,
        "O_CLOEXEC O_DIRECTORY O_NOFOLLOW WNOHANG chown copy_file_range eventfd fchmod fchown fork getegid geteuid "
        "getgid getloadavg getpgid getuid killpg memfd_create mkfifo nice openpty pidfd_open posix_fallocate pread "
        "pwrite register_at_fork sched_getaffinity sendfile setsid splice statvfs sysconf uname waitid",
    ),
    (select, "epoll poll"),
    (signal, "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGUSR1 SIGUSR2 SIGWINCH pthread_sigmask setitimer"),
)


class _Hider:
    """A finder that finds none of some modules."""

    def __init__(self, hidden: frozenset[str]) -> None:
        self._hidden = hidden

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name.partition(".")[0] in self._hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def hide_linux() -> None:
    """Hide the modules, packages and functions from all later code of this process."""
    hidden = frozenset((*_LINUX_MODULES.split(), *_YARD_PACKAGES.split()))
    for name in [name for name in sys.modules if name.partition(".")[0] in hidden]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Hider(hidden))
    for module, names in _LINUX_FUNCTIONS:
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    # A name that no library knows: for "win32" and "darwin", some use what only these have.
    sys.platform = "other"


def main() -> int:
    action, *arguments = sys.argv[1:]
    hide_linux()
    if action == "import":
        for name in arguments:
            importlib.import_module(name)
        return 0
    from trainyard.cli.main import run

    return run(arguments, os.environ)


if __name__ == "__main__":
    sys.exit(main())
