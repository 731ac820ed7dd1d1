"""Keeps one program on behalf of the process that launched it, as `python -I -S -c …` started by `launcher.py`.

A launcher has threads, secrets in its memory and descriptors of its own, so it does not fork itself: the fork of a
threaded process may find locks held for ever, and its memory would belong to the job's user. The keeper starts empty,
stays outside the sandbox, and holds the tree by its root. Its standard input is a pipe from the launcher: orders, then
one byte when the launcher holds a pidfd, then a byte to kill. When the launcher dies the pipe ends, and the tree too.

A warm worker forks keepers as well. It has no threads, secrets or descriptors either, and the program then goes on in
the interpreter that it was forked with.
"""

import os
import select
import time

from trainyard.instance.sandbox import groups, identity, init, processes, program, signals, status, system_calls
from trainyard.instance.sandbox.orders import Orders, decode
from trainyard.instance.sandbox.system_calls import NEW_NET, NEW_PID
from trainyard.instance.sandbox.watchdog import Watchdog

HELD, KILL = b"h", b"k"
STATUS, OUTPUT, NETWORK = 3, 4, 5  # the descriptors of a keeper that was forked; the last is the first of several

_CONTROL = 0
_TICK_S = 1.0  # orphans of a process group are reaped at least this often
_END_LIMIT_S = 30.0


def main() -> None:
    """Keep a program and never return, but for the process of a program that is entered."""
    orders = _read_orders()
    os.set_inheritable(orders.status_fd, False)
    os.set_inheritable(orders.output_fd, False)
    signals.block_all()
    try:
        _keep_namespace(orders) if orders.has_namespaces else _keep_group(orders)
    except OSError as error:
        status.report(orders.status_fd, status.UNUSABLE, status.describe_error(error))
    except Exception:
        os._exit(1)  # which the launcher takes for what it is: a keeper that is lost
    os._exit(0)  # an orderly end of the interpreter takes as long as its start


def _read_orders() -> Orders:
    size = int.from_bytes(_read_exactly(8), "little")
    return decode(_read_exactly(size))


def _read_exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.read(_CONTROL, size - len(data))
        if not chunk:
            os._exit(1)  # the launcher died before it had given its orders
        data += chunk
    return data


def _keep_namespace(orders: Orders) -> None:
    try:
        _enter_namespaces(orders)
    except OSError as error:
        status.report(orders.status_fd, status.REFUSED, status.describe_error(error))
        return
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.dup2(1, _CONTROL)  # /dev/null; closed, its number would go to something else
        init.run(orders, reader)
    os.close(reader)
    os.close(orders.output_fd)
    status.report(orders.status_fd, status.INIT, str(pid))
    os.write(writer, init.GO)  # its own reports come after this one
    watchdog = _watch(pid, orders, root=pid)
    os.waitpid(pid, 0)
    _finish(orders, watchdog)


def _enter_namespaces(orders: Orders) -> None:
    for descriptor in orders.network_fds:
        system_calls.enter_namespace(descriptor)
        os.close(descriptor)
    is_alone = orders.has_own_network and not orders.network_fds
    namespaces = NEW_PID | (NEW_NET if is_alone else 0)
    system_calls.unshare(namespaces) if os.geteuid() == 0 else identity.enter_user_namespace(namespaces)
    if is_alone:
        from trainyard.instance.sandbox.network_maker import raise_loopback  # which other programs need not wait for

        raise_loopback()


def _keep_group(orders: Orders) -> None:
    system_calls.adopt_orphans()
    pid = program.start_unprivileged(orders)
    status.report(orders.status_fd, status.INIT, str(pid))
    watchdog = _watch(pid, orders, root=os.getpid())
    _, state = os.waitpid(pid, 0)
    status.report(orders.status_fd, status.EXITED, str(os.waitstatus_to_exitcode(state)))
    if processes.kill_descendants(timeout_s=_END_LIMIT_S):
        _finish(orders, watchdog)


def _watch(pid: int, orders: Orders, *, root: int) -> Watchdog | None:
    """Return when `pid` has ended, unreaped. It is killed when the launcher says so or dies, or takes too much memory.

    `root` is whose descendants are the tree: init in its namespace, or this process, which then adopts orphans.
    """
    if os.read(_CONTROL, 1) != HELD:  # until the launcher holds a pidfd, the number must stay taken
        os.kill(pid, signals.KILL)
    watchdog = Watchdog(root, orders.watched_memory) if orders.watched_memory else None
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(_CONTROL, select.POLLIN)
    while True:
        now = time.monotonic()
        if watchdog and watchdog.look(now):
            os.kill(pid, signals.KILL)
        pause_s = watchdog.pause_s(now) if watchdog else _TICK_S if root != pid else None
        ready = {descriptor for descriptor, _ in poll.poll(None if pause_s is None else pause_s * 1000)}
        if pidfd in ready:
            os.close(pidfd)
            return watchdog
        if _CONTROL in ready:
            os.kill(pid, signals.KILL)
            poll.unregister(_CONTROL)
        if root != pid:
            processes.reap_others(pid)


def _finish(orders: Orders, watchdog: Watchdog | None) -> None:
    """Say that all has ended. The groups are the launcher's to remove when this process, the last in them, is gone."""
    is_oom = groups.oom_kills(orders.groups) > 0 or (watchdog is not None and watchdog.has_barked)
    status.report(orders.status_fd, status.ENDED, str(int(is_oom)))
    if _is_alone():
        groups.move(0, orders.origins)
        groups.remove(orders.groups, timeout_s=_END_LIMIT_S)


def _is_alone() -> bool:
    poll = select.poll()
    poll.register(_CONTROL, 0)
    return bool(poll.poll(0))
