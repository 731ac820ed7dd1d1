"""The last steps of a process before it becomes the user's program.

Most programs are executed. One that stays in the interpreter it was forked with is entered: its process leaves all the
calls that brought it there by raising `Entered`.
"""

import errno
import os
import resource

from trainyard.instance.sandbox import identity, signals, socket_filter, status, system_calls
from trainyard.instance.sandbox.orders import Orders

_MOST_FILES = 65536
_MORE_KILLABLE = "500"  # when the whole machine runs out of memory, a job goes before the yard


class Entered(BaseException):
    """The process of the program stands in its sandbox, ready to run it; `failed` takes a reason why it cannot."""

    def __init__(self, orders: Orders, failed: int) -> None:
        super().__init__()
        self.orders = orders
        self.failed = failed


def start(orders: Orders) -> int:
    """Fork the program and return its pid once its image is loaded. Ends this process when it cannot be started.

    It inherits what this process is; one that has not given up its own privileges calls `start_unprivileged`.
    """
    return _start(orders, is_privileged=False)


def start_unprivileged(orders: Orders) -> int:
    """The same from a process that stays as it is: only the program gives up privileges."""
    return _start(orders, is_privileged=True)


def prefer_for_oom() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
            file.write(_MORE_KILLABLE)
    except PermissionError:
        return  # whoever started the yard made it even more killable, and a job with it


def restrict(orders: Orders) -> None:
    """Give up, for this process and all it starts, what a program must not have. Only the uid is left as it is."""
    _drop_bounding_set()
    identity.give_up_privileges()
    _leave_session_keyring(orders)
    if orders.has_own_network:
        socket_filter.forbid_other_sockets()
    if not system_calls.has_landlock_scopes() and not orders.has_own_network:  # to which abstract sockets belong
        status.report(orders.status_fd, status.NOTE, "Abstract unix sockets of the host can be reached.")


def _drop_bounding_set() -> None:
    try:
        identity.drop_bounding_set()
    except PermissionError:
        return  # some hosts withhold even that capability; without any privilege the set has no effect


def _leave_session_keyring(orders: Orders) -> None:
    try:
        system_calls.leave_session_keyring()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):  # of which the program has as little use as we
            status.report(orders.status_fd, status.NOTE, "The program has the session keyring of the yard.")


def _start(orders: Orders, *, is_privileged: bool) -> int:
    failures, failed = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(failures)
        _become_program(orders, failed, is_privileged=is_privileged)
    os.close(failed)
    os.close(orders.output_fd)
    failure = _read_all(failures)
    os.close(failures)
    if failure:
        status.report(orders.status_fd, status.UNUSABLE, failure.decode(errors="replace"))
        os.waitpid(pid, 0)
        os._exit(1)
    status.report(orders.status_fd, status.RUNNING)
    return pid


def _become_program(orders: Orders, failed: int, *, is_privileged: bool) -> None:
    try:
        if is_privileged:
            _give_up(orders)
        _prepare(orders, failed)
        if orders.stays:
            raise Entered(orders, failed)
        words = [*orders.launcher, *orders.argv]
        os.execvpe(words[0], words, orders.environment)
    except OSError as error:
        error.filename = error.filename or orders.argv[0]
        os.write(failed, status.describe_error(error).encode())
        os._exit(127)
    except Exception as error:  # such as the ValueError of a limit that may not be set
        os.write(failed, str(error).encode())
        os._exit(127)


def _give_up(orders: Orders) -> None:
    prefer_for_oom()
    if os.geteuid() == 0:
        identity.become(orders.uid, orders.gid)
    restrict(orders)
    system_calls.die_with_parent(signals.KILL)


def _prepare(orders: Orders, failed: int) -> None:
    os.setsid()
    os.umask(0o022)
    _limit(orders)
    if system_calls.has_landlock_scopes():
        system_calls.scope_sockets_and_signals()
    os.chdir(orders.working_folder)
    nothing = os.open("/dev/null", os.O_RDONLY)
    for target, source in enumerate((nothing, orders.output_fd, orders.output_fd)):
        os.dup2(source, target)
    os.closerange(3, failed)
    os.closerange(failed + 1, _MOST_FILES)
    signals.restore_defaults()


def _limit(orders: Orders) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if orders.most_processes:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        most = orders.most_processes if hard == resource.RLIM_INFINITY else min(hard, orders.most_processes)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _read_all(descriptor: int) -> bytes:
    data = b""
    while chunk := os.read(descriptor, 4096):
        data += chunk
    return data
