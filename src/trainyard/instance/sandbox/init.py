"""Pid 1 of a sandbox: builds it from within, starts the program, forwards SIGTERM to it and reaps its orphans.

When the program ends, init ends, and the kernel kills everything else in the pid namespace.
"""

import os
import select

from trainyard.instance.sandbox import identity, mounts, program, signals, status, system_calls
from trainyard.instance.sandbox.spec import SandboxSpec
from trainyard.instance.sandbox.system_calls import NEW_CGROUP, NEW_IPC, NEW_MOUNT, NEW_UTS

GO = b"g"


def run(spec: SandboxSpec, supervisor_fd: int, mappings: mounts.OwnerMappings) -> None:
    """Start when the supervisor writes GO to `supervisor_fd`. Never return, except by raising `ProgramEntered`."""
    try:
        _supervise_program(spec, supervisor_fd, mappings)
    except OSError as error:
        status.report(spec.status_fd, status.UNUSABLE, status.describe_error(error))
        os._exit(1)
    except Exception:
        os._exit(1)


def _supervise_program(spec: SandboxSpec, supervisor_fd: int, mappings: mounts.OwnerMappings) -> None:
    _die_with_supervisor(supervisor_fd)
    if os.read(supervisor_fd, 1) != GO:
        os._exit(1)
    program.prefer_for_oom()
    _build(spec, mappings)
    _take_identity(spec)
    program.restrict(spec)
    _die_with_supervisor(supervisor_fd)
    # The program runs as the same user and must not be able to trace this process.
    system_calls.set_dumpable(0)
    pid = program.start(spec)
    os.close(supervisor_fd)
    status.report(spec.status_fd, status.EXITED, str(_wait_for(pid)))
    os._exit(0)


def _die_with_supervisor(supervisor_fd: int) -> None:
    system_calls.die_with_parent(signals.KILL)
    poll = select.poll()
    poll.register(supervisor_fd, 0)
    if poll.poll(0):
        # Hung up: the supervisor died before the kernel could watch it for us.
        os._exit(1)


def _build(spec: SandboxSpec, mappings: mounts.OwnerMappings) -> None:
    try:
        system_calls.unshare(NEW_MOUNT | NEW_UTS | NEW_IPC | NEW_CGROUP)
        mounts.isolate_mounts(spec.staging)
    except OSError as error:
        _refuse(spec, status.REFUSED, error)
    try:
        sources = mounts.open_sources(spec.steps)
        _enter_root(spec)
        failures = mounts.fill_root(spec.steps, sources, mappings)
    except mounts.OverlayError as error:
        _refuse(spec, status.NO_OVERLAY, error)
    if failures:
        status.report(spec.status_fd, status.NOTE, _read_only_note(failures[0]))
    system_calls.set_host_name(spec.hostname)


def _read_only_note(error: OSError) -> str:
    return (
        "The program cannot change its environment, so packages that it installs go to its home folder: this machine "
        f"cannot show the environment copy-on-write ({status.describe_error(error)})."
    )


def _enter_root(spec: SandboxSpec) -> None:
    try:
        mounts.enter_new_root(spec.staging)
    except OSError as error:
        _refuse(spec, status.REFUSED, error)


def _refuse(spec: SandboxSpec, word: str, error: OSError) -> None:
    status.report(spec.status_fd, word, status.describe_error(error))
    os._exit(1)


def _take_identity(spec: SandboxSpec) -> None:
    """Become the job's user. Root does this after it has bound folders that only it can read, before any user code."""
    if os.geteuid() == 0:
        identity.switch_user(spec.uid, spec.gid)
        try:
            identity.enter_user_namespace()
        except OSError:
            _drop_process_limit(spec)
            # If this user cannot make user namespaces, neither can the program.
            return
    try:
        identity.forbid_user_namespaces()
    except OSError:
        status.report(spec.status_fd, status.NOTE, "The program can create its own user namespaces.")


def _drop_process_limit(spec: SandboxSpec) -> None:
    """Drop RLIMIT_NPROC: without its own user namespace, the program would be charged for all processes of the user."""
    if spec.max_processes:
        spec.max_processes = 0
        status.report(spec.status_fd, status.NOTE, "The number of processes is not limited.")


def _wait_for(program_pid: int) -> int:
    while True:
        if signals.next_signal() == signals.TERMINATE:
            os.kill(program_pid, signals.TERMINATE)
            # A stopped program would never see the signal otherwise.
            os.kill(program_pid, signals.CONTINUE)
            continue
        code = _reap(program_pid)
        if code is not None:
            return code


def _reap(program_pid: int) -> int | None:
    while True:
        try:
            pid, state = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == program_pid:
            return os.waitstatus_to_exitcode(state)
        if pid == 0:
            return None
