"""The last steps of a process before it becomes the user's program.

Most programs are executed. A program that reuses the interpreter it was forked from is entered instead: its process
leaves the whole call stack by raising `ProgramEntered`.
"""

import errno
import os
import resource

from trainyard.instance.sandbox import identity, signals, socket_filter, status, system_calls
from trainyard.instance.sandbox.spec import SandboxSpec

_MAX_OPEN_FILES = 65536
# If the whole machine runs out of memory, the kernel kills a job before the yard.
_OOM_SCORE_ADJ = "500"


class ProgramEntered(BaseException):
    """The program's process is in its sandbox and ready to run it. A failure to do so is written to `failure_fd`."""

    def __init__(self, spec: SandboxSpec, failure_fd: int) -> None:
        super().__init__()
        self.spec = spec
        self.failure_fd = failure_fd


def start(spec: SandboxSpec) -> int:
    """Fork the program and return its pid once its image is loaded. Exit if it cannot be started.

    The program inherits the privileges of this process. A process that has not given up its own calls
    `start_unprivileged`.
    """
    return _start(spec, is_privileged=False)


def start_unprivileged(spec: SandboxSpec) -> int:
    """Like `start`, but only the program gives up its privileges, while this process keeps them."""
    return _start(spec, is_privileged=True)


def prefer_for_oom() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
            file.write(_OOM_SCORE_ADJ)
    except PermissionError:
        # The yard was started with an even higher value, which the job inherits.
        return


def restrict(spec: SandboxSpec) -> None:
    """Give up, for this process and all it starts, everything a program must not have; the uid stays."""
    _drop_bounding_set()
    identity.give_up_privileges()
    _leave_session_keyring(spec)
    if spec.has_own_network:
        socket_filter.forbid_other_sockets()
    # Abstract sockets belong to the network namespace.
    if not system_calls.has_landlock_scopes() and not spec.has_own_network:
        status.report(spec.status_fd, status.NOTE, "Abstract unix sockets of the host can be reached.")


def _drop_bounding_set() -> None:
    try:
        identity.drop_bounding_set()
    except PermissionError:
        # Some hosts withhold even that capability. Without privileges the set has no effect.
        return


def _leave_session_keyring(spec: SandboxSpec) -> None:
    try:
        system_calls.leave_session_keyring()
    except OSError as error:
        # With these errors the program cannot use keyrings either.
        if error.errno not in (errno.EPERM, errno.ENOSYS):
            status.report(spec.status_fd, status.NOTE, "The program shares the session keyring of the yard.")


def _start(spec: SandboxSpec, *, is_privileged: bool) -> int:
    failures, failure_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(failures)
        _become_program(spec, failure_fd, is_privileged=is_privileged)
    os.close(failure_fd)
    os.close(spec.output_fd)
    failure = _read_all(failures)
    os.close(failures)
    if failure:
        status.report(spec.status_fd, status.UNUSABLE, failure.decode(errors="replace"))
        os.waitpid(pid, 0)
        os._exit(1)
    status.report(spec.status_fd, status.RUNNING)
    return pid


def _become_program(spec: SandboxSpec, failure_fd: int, *, is_privileged: bool) -> None:
    try:
        if is_privileged:
            _give_up_privileges(spec)
        _prepare(spec, failure_fd)
        if spec.reuses_interpreter:
            raise ProgramEntered(spec, failure_fd)
        words = [*spec.launcher, *spec.argv]
        os.execvpe(words[0], words, spec.environment)
    except OSError as error:
        error.filename = error.filename or spec.argv[0]
        os.write(failure_fd, status.describe_error(error).encode())
        os._exit(127)
    except Exception as error:
        # Such as the ValueError of a limit that may not be set.
        os.write(failure_fd, str(error).encode())
        os._exit(127)


def _give_up_privileges(spec: SandboxSpec) -> None:
    prefer_for_oom()
    if os.geteuid() == 0:
        identity.switch_user(spec.uid, spec.gid)
    restrict(spec)
    system_calls.die_with_parent(signals.KILL)


def _prepare(spec: SandboxSpec, failure_fd: int) -> None:
    os.setsid()
    os.umask(0o022)
    _limit(spec)
    if system_calls.has_landlock_scopes():
        system_calls.scope_sockets_and_signals()
    os.chdir(spec.working_folder)
    nothing = os.open("/dev/null", os.O_RDONLY)
    for target, source in enumerate((nothing, spec.output_fd, spec.output_fd)):
        os.dup2(source, target)
    os.closerange(3, failure_fd)
    os.closerange(failure_fd + 1, _MAX_OPEN_FILES)
    signals.restore_defaults()


def _limit(spec: SandboxSpec) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if spec.max_processes:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        most = spec.max_processes if hard == resource.RLIM_INFINITY else min(hard, spec.max_processes)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _read_all(descriptor: int) -> bytes:
    data = b""
    while chunk := os.read(descriptor, 4096):
        data += chunk
    return data
