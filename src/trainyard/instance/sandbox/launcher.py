"""Starts a program in its sandbox, and tells what that will leave on the machine."""

import logging
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest, TrainyardError, Unavailable
from trainyard.instance.sandbox import groups, keeper, status
from trainyard.instance.sandbox.contract import CannotLayer, Isolation, Sandboxed, SandboxLost, SandboxRequest
from trainyard.instance.sandbox.keeper_process import END, ForkedKeeper, KeeperProcess, Line, SpawnedKeeper
from trainyard.instance.sandbox.launched import LaunchedProgram
from trainyard.instance.sandbox.limits import (
    Limited,
    enter_groups,
    group_folders,
    hold_otherwise,
    make_groups,
    own_hierarchies,
)
from trainyard.instance.sandbox.mounts import LAYERS
from trainyard.instance.sandbox.orders import Orders
from trainyard.instance.sandbox.view import plan_view

_END_LIMIT_S = 30.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_OF_A_PROCESS_GROUP = (
    "The program is not sandboxed: it sees the files and processes that its user sees, and /opt/ml does not exist.",
    "What the program starts may stay behind if its keeper is killed.",
)

log = logging.getLogger(__name__)


def launch(request: SandboxRequest, output_fd: int) -> Sandboxed:
    """Start the program with its output and errors going to `output_fd`, which stays the caller's; return once it runs.

    Raises `Unavailable` where the machine refuses the isolation, `CannotLayer` where it refuses a folder copy-on-write,
    `InvalidRequest` for what can never run, `Conflict` when a sandbox of that name lives, `SandboxLost` when the keeper
    does not answer. Nothing is left behind then.
    May be called from any thread.
    """
    _check(request)
    uid, gid = _identity(request)
    _make_scratch(request, uid=uid, gid=gid)
    limited = make_groups(request.name, request.limits, own_hierarchies())
    try:
        hold_otherwise(limited, request.limits, request.isolation)
        warm = _start_warm(request, output_fd, limited=limited, uid=uid, gid=gid)
        return warm or _start(request, SpawnedKeeper(output_fd, _network(request)), limited=limited, uid=uid, gid=gid)
    except BaseException:
        groups.remove(limited.folders, timeout_s=_END_LIMIT_S)
        raise


def footprint(request: SandboxRequest) -> Sequence[Path]:
    """The control groups that `launch` may make: what a sweep has to kill and remove when all of us were killed.

    Everything else that a sandbox makes, namespaces and mounts, is gone when its last process is.
    """
    return group_folders(request.name, own_hierarchies())


def _check(request: SandboxRequest) -> None:
    if not _NAME.fullmatch(request.name):
        raise InvalidRequest(f'"{request.name}" cannot name a sandbox: letters, digits, "_", "." and "-", at most 200.')
    if not request.argv:
        raise InvalidRequest(f"Sandbox {request.name} has no program to run.")
    words = [*request.argv, *request.environment, *request.environment.values()]
    if any("\0" in word for word in words) or any("=" in name or not name for name in request.environment):
        raise InvalidRequest(f"An argument or environment variable of sandbox {request.name} cannot be passed on.")
    if os.geteuid() == 0 and not request.uid:
        raise InvalidRequest(f"Sandbox {request.name} is launched by root and needs a uid other than 0.")
    if request.network is not None and request.isolation is not Isolation.NAMESPACES:
        raise InvalidRequest(f"Sandbox {request.name} cannot have a network of its own without namespaces.")


def _identity(request: SandboxRequest) -> tuple[int, int]:
    """Only root can give a program a user other than its own."""
    if os.geteuid() != 0 or request.uid is None:
        return os.geteuid(), os.getegid()
    return request.uid, request.gid if request.gid else request.uid


def _make_scratch(request: SandboxRequest, *, uid: int, gid: int) -> None:
    for name, mode in (("tmp", 0o1777), ("var-tmp", 0o1777), ("root", 0o755)):
        folder = request.scratch_folder / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
        if os.geteuid() == 0 and name != "root":
            os.chown(folder, uid, gid)
    for each in request.copy_on_write:
        for name in LAYERS:
            folder = each.changes / name
            folder.mkdir(parents=True, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(folder, uid, gid)


def _network(request: SandboxRequest) -> Sequence[int]:
    return request.network.descriptors if request.network is not None else ()


def _start_warm(
    request: SandboxRequest, output_fd: int, *, limited: Limited, uid: int, gid: int
) -> LaunchedProgram | None:
    """The program forked from a warm worker; None when that cannot be: being warm never costs a job its start."""
    if request.forker is None or request.isolation is not Isolation.NAMESPACES:
        return None
    try:
        forked = ForkedKeeper(output_fd, _network(request), forker=request.forker)
        return _start(request, forked, limited=limited, uid=uid, gid=gid)
    except (TrainyardError, OSError) as error:
        log.warning("a warm start failed, a cold one follows", extra={"sandbox": request.name, "why": str(error)})
        return None


def _start(request: SandboxRequest, started: KeeperProcess, *, limited: Limited, uid: int, gid: int) -> LaunchedProgram:
    try:
        enter_groups(started.pid, limited)
        started.order(_orders(request, limited, uid=uid, gid=gid))  # planned while the keeper's interpreter starts
        report = _read_start(started, request)
    except BaseException:
        started.give_up()
        raise
    return LaunchedProgram(
        started,
        report.pidfd,
        name=request.name,
        pid=report.pid,
        isolation=request.isolation,
        folders=limited.folders,
        not_enforced=[*limited.not_enforced, *_notes(request), *report.notes],
    )


def _orders(request: SandboxRequest, limited: Limited, *, uid: int, gid: int) -> Orders:
    has_namespaces = request.isolation is Isolation.NAMESPACES
    return Orders(
        has_namespaces=has_namespaces,
        argv=list(request.argv),
        launcher=list(request.launcher),
        environment=dict(request.environment),
        working_folder=request.working_folder,
        staging=str(request.scratch_folder.resolve() / "root"),
        steps=plan_view(request, uid=uid, gid=gid, groups=limited.groups) if has_namespaces else [],
        hostname=request.hostname,
        uid=uid,
        gid=gid,
        groups=limited.folders,
        origins=limited.origins,
        most_processes=limited.most_processes,
        watched_memory=limited.watched_memory,
        has_own_network=request.network is not None,
        threads=max(1, int(request.limits.cpus)) if request.limits.cpus is not None else 0,
    )


@dataclass(slots=True)
class _Start:
    pid: int = 0
    pidfd: int = -1
    notes: list[str] = field(default_factory=list)
    is_running: bool = False


def _read_start(started: KeeperProcess, request: SandboxRequest) -> _Start:
    """Take in what the keeper reports until the program runs and its pidfd is held."""
    start = _Start()
    deadline = time.monotonic() + started.start_limit_s
    try:
        while not (start.is_running and start.pid):
            line = started.take_line()
            if line is None and started.await_report(deadline - time.monotonic()):
                continue
            _take_in(line, start, request)
            if line is not None and line.word == status.INIT:
                started.send(keeper.HELD)
    except BaseException:
        if start.pid:
            os.close(start.pidfd)
        raise
    return start


def _take_in(line: Line | None, start: _Start, request: SandboxRequest) -> None:
    if line is None or line == END:
        why = "does not answer" if line is None else "has ended"
        raise SandboxLost(f"Sandbox {request.name} did not start: its keeper {why}.")
    if line.word == status.REFUSED:
        raise Unavailable(f"This machine does not allow isolation by namespaces: {line.detail}.")
    if line.word == status.NO_LAYERS:
        raise CannotLayer(f"This machine cannot show a folder copy-on-write: {line.detail}.")
    if line.word == status.UNUSABLE:
        raise InvalidRequest(f"Sandbox {request.name} cannot start its program: {line.detail}.")
    if line.word == status.INIT:
        start.pid, start.pidfd = int(line.detail), os.pidfd_open(int(line.detail))
    if line.word == status.NOTE:
        start.notes.append(line.detail)
    if line.word == status.RUNNING:
        start.is_running = True


def _notes(request: SandboxRequest) -> list[str]:
    notes = list(_OF_A_PROCESS_GROUP) if request.isolation is Isolation.PROCESS_GROUP else []
    present = [path for path in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", path.name)]
    if request.limits.gpus and len(present) > len(request.limits.gpus):
        notes.append("GPUs of other jobs are kept apart only by CUDA_VISIBLE_DEVICES.")
    return notes
