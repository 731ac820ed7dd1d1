"""Supervises one program for the process that launched it: `python -I -S -c …`, started by `launcher.py`.

A launcher has threads, descriptors, and secrets in its memory, so it does not fork the program itself: a fork of a
threaded process may find locks held forever, and the job's user would own a copy of its memory. The supervisor starts
empty, stays outside the sandbox, and controls the tree through its root. Its standard input is a pipe from the
launcher: the spec, then one byte once the launcher holds a pidfd, then a byte to kill. When the launcher dies, the pipe
closes and the tree is killed.

A warm worker forks supervisors too. It has no threads, secrets or descriptors either, and the program then runs in the
interpreter that was forked.
"""

import os
import select
import time

from trainyard.instance.sandbox import (
    cgroups,
    identity,
    init,
    mounts,
    processes,
    program,
    signals,
    status,
    system_calls,
)
from trainyard.instance.sandbox.spec import SandboxSpec, decode_spec
from trainyard.instance.sandbox.system_calls import NEW_NET, NEW_PID
from trainyard.instance.sandbox.watchdog import MemoryWatchdog

PIDFD_OPEN, KILL = b"h", b"k"
# The descriptors of a forked supervisor. Network namespaces come last, since there may be several.
STATUS_FD, OUTPUT_FD, FIRST_NETWORK_FD = 3, 4, 5

_CONTROL_FD = 0
# How often orphans of a process group are reaped, at least.
_TICK_S = 1.0
_END_TIMEOUT_S = 30.0


def main() -> None:
    """Supervise a program and never return, except in the program's own process, by raising `ProgramEntered`."""
    spec = _read_spec()
    os.set_inheritable(spec.status_fd, False)
    os.set_inheritable(spec.output_fd, False)
    signals.block_all()
    try:
        _supervise_namespace(spec) if spec.has_namespaces else _supervise_group(spec)
    except OSError as error:
        status.report(spec.status_fd, status.UNUSABLE, status.describe_error(error))
    except Exception:
        # The launcher then reports a lost sandbox.
        os._exit(1)
    # An orderly shutdown of the interpreter takes as long as its start.
    os._exit(0)


def _read_spec() -> SandboxSpec:
    size = int.from_bytes(_read_exactly(8), "little")
    return decode_spec(_read_exactly(size))


def _read_exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.read(_CONTROL_FD, size - len(data))
        if not chunk:
            # The launcher died before it had sent the spec.
            os._exit(1)
        data += chunk
    return data


def _supervise_namespace(spec: SandboxSpec) -> None:
    mappings = mounts.OwnerMappings(spec.steps, uid=spec.uid, gid=spec.gid)
    try:
        _enter_namespaces(spec)
    except OSError as error:
        status.report(spec.status_fd, status.REFUSED, status.describe_error(error))
        return
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        # Descriptor 1 is /dev/null. If 0 were closed instead, something else would get that number.
        os.dup2(1, _CONTROL_FD)
        init.run(spec, reader, mappings)
    os.close(reader)
    mappings.close()
    os.close(spec.output_fd)
    status.report(spec.status_fd, status.INIT, str(pid))
    # Only now, so that the reports of init come after this one.
    os.write(writer, init.GO)
    watchdog = _watch(pid, spec, root=pid)
    os.waitpid(pid, 0)
    _finish(spec, watchdog)


def _enter_namespaces(spec: SandboxSpec) -> None:
    for descriptor in spec.network_fds:
        system_calls.enter_namespace(descriptor)
        os.close(descriptor)
    is_alone = spec.has_own_network and not spec.network_fds
    namespaces = NEW_PID | (NEW_NET if is_alone else 0)
    system_calls.unshare(namespaces) if os.geteuid() == 0 else identity.enter_user_namespace(namespaces)
    if is_alone:
        # Imported here, because other programs need not wait for it.
        from trainyard.instance.sandbox.network.maker import bring_up_loopback

        bring_up_loopback()


def _supervise_group(spec: SandboxSpec) -> None:
    system_calls.adopt_orphans()
    pid = program.start_unprivileged(spec)
    status.report(spec.status_fd, status.INIT, str(pid))
    watchdog = _watch(pid, spec, root=os.getpid())
    _, state = os.waitpid(pid, 0)
    status.report(spec.status_fd, status.EXITED, str(os.waitstatus_to_exitcode(state)))
    if processes.kill_descendants(timeout_s=_END_TIMEOUT_S):
        _finish(spec, watchdog)


def _watch(pid: int, spec: SandboxSpec, *, root: int) -> MemoryWatchdog | None:
    """Return when `pid` has ended, unreaped. Kill it if the launcher says so or dies, or if it uses too much memory.

    The descendants of `root` are the tree: `root` is init in its namespace, or this process, which then adopts orphans.
    """
    # Do not reap before the launcher holds a pidfd, or the pid could be reused.
    if os.read(_CONTROL_FD, 1) != PIDFD_OPEN:
        os.kill(pid, signals.KILL)
    watchdog = MemoryWatchdog(root, spec.watchdog_memory_bytes) if spec.watchdog_memory_bytes else None
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(_CONTROL_FD, select.POLLIN)
    while True:
        now = time.monotonic()
        if watchdog and watchdog.check(now):
            os.kill(pid, signals.KILL)
        pause_s = watchdog.pause_s(now) if watchdog else _TICK_S if root != pid else None
        ready = {descriptor for descriptor, _ in poll.poll(None if pause_s is None else pause_s * 1000)}
        if pidfd in ready:
            os.close(pidfd)
            return watchdog
        if _CONTROL_FD in ready:
            os.kill(pid, signals.KILL)
            poll.unregister(_CONTROL_FD)
        if root != pid:
            processes.reap_others(pid)


def _finish(spec: SandboxSpec, watchdog: MemoryWatchdog | None) -> None:
    """Report that the tree has ended. The launcher removes the groups once this process, the last in them, is gone."""
    is_oom = cgroups.oom_kill_count(spec.cgroups) > 0 or (watchdog is not None and watchdog.has_tripped)
    status.report(spec.status_fd, status.ENDED, str(int(is_oom)))
    if _is_alone():
        cgroups.move_process(0, spec.original_cgroups)
        cgroups.remove_cgroups(spec.cgroups, timeout_s=_END_TIMEOUT_S)


def _is_alone() -> bool:
    poll = select.poll()
    poll.register(_CONTROL_FD, 0)
    return bool(poll.poll(0))
