"""Pid 1 of a sandbox: builds it from within, starts the program, forwards SIGTERM to it and reaps its orphans.

When the program ends, init ends, and the kernel kills whatever else is left in the pid namespace.
"""

import os
import select

from trainyard.instance.sandbox import identity, mounts, program, signals, status, system_calls
from trainyard.instance.sandbox.orders import Orders
from trainyard.instance.sandbox.system_calls import NEW_CGROUP, NEW_IPC, NEW_MOUNT, NEW_UTS

GO = b"g"


def run(orders: Orders, keeper_fd: int) -> None:
    """Start when the keeper writes GO to `keeper_fd`, and never return; a program that is entered leaves from here."""
    try:
        _hold_program(orders, keeper_fd)
    except OSError as error:
        status.report(orders.status_fd, status.UNUSABLE, status.describe_error(error))
        os._exit(1)
    except Exception:
        os._exit(1)


def _hold_program(orders: Orders, keeper_fd: int) -> None:
    _die_with_keeper(keeper_fd)
    if os.read(keeper_fd, 1) != GO:
        os._exit(1)
    program.prefer_for_oom()
    _build(orders)
    _take_identity(orders)
    program.restrict(orders)
    _die_with_keeper(keeper_fd)
    system_calls.set_dumpable(0)  # the program runs as the same user and must not get hold of this process
    pid = program.start(orders)
    os.close(keeper_fd)
    status.report(orders.status_fd, status.EXITED, str(_wait_for(pid)))
    os._exit(0)


def _die_with_keeper(keeper_fd: int) -> None:
    system_calls.die_with_parent(signals.KILL)
    poll = select.poll()
    poll.register(keeper_fd, 0)
    if poll.poll(0):  # hung up: it died before the kernel was asked to tell
        os._exit(1)


def _build(orders: Orders) -> None:
    try:
        system_calls.unshare(NEW_MOUNT | NEW_UTS | NEW_IPC | NEW_CGROUP)
        mounts.isolate_mounts(orders.staging)
    except OSError as error:
        _refuse(orders, status.REFUSED, error)
    try:
        sources = mounts.open_sources(orders.steps)
        _enter(orders)
        mounts.fill_root(orders.steps, sources, uid=orders.uid, gid=orders.gid)
    except mounts.CannotLayer as error:
        _refuse(orders, status.NO_LAYERS, error)
    system_calls.set_host_name(orders.hostname)


def _enter(orders: Orders) -> None:
    try:
        mounts.enter_new_root(orders.staging)
    except OSError as error:
        _refuse(orders, status.REFUSED, error)


def _refuse(orders: Orders, word: str, error: OSError) -> None:
    status.report(orders.status_fd, word, status.describe_error(error))
    os._exit(1)


def _take_identity(orders: Orders) -> None:
    """Root reads the folders it binds as root, and only then becomes the job's user, before any foreign code runs."""
    if os.geteuid() == 0:
        identity.become(orders.uid, orders.gid)
        try:
            identity.enter_user_namespace()
        except OSError:
            _give_up_counting(orders)
            return  # where this user cannot make a user namespace, neither can the program
    try:
        identity.forbid_user_namespaces()
    except OSError:
        status.report(orders.status_fd, status.NOTE, "The program can make user namespaces of its own.")


def _give_up_counting(orders: Orders) -> None:
    """Outside a user namespace of its own, all processes of the user would count for the program."""
    if orders.most_processes:
        orders.most_processes = 0
        status.report(orders.status_fd, status.NOTE, "The number of processes is not limited.")


def _wait_for(program_pid: int) -> int:
    while True:
        if signals.next_signal() == signals.TERMINATE:
            os.kill(program_pid, signals.TERMINATE)
            os.kill(program_pid, signals.CONTINUE)  # or one that is stopped would never learn of it
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
