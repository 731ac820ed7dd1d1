"""Starts a program in its sandbox, and names what a crash would leave on the machine."""

import logging
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import InvalidRequest, TrainyardError, Unavailable
from trainyard.instance.sandbox import cgroups, status, supervisor
from trainyard.instance.sandbox.contract import (
    CopyOnWriteUnavailable,
    Isolation,
    Sandboxed,
    SandboxLost,
    SandboxRequest,
)
from trainyard.instance.sandbox.launched_program import LaunchedProgram
from trainyard.instance.sandbox.limits import (
    CgroupLimits,
    apply_fallbacks,
    cgroup_folders,
    enter_cgroups,
    make_cgroups,
    own_hierarchies,
)
from trainyard.instance.sandbox.mounts import OVERLAY_FOLDERS
from trainyard.instance.sandbox.spec import SandboxSpec
from trainyard.instance.sandbox.supervisor_process import (
    STATUS_EOF,
    ForkedSupervisor,
    SpawnedSupervisor,
    StatusLine,
    SupervisorProcess,
)
from trainyard.instance.sandbox.view import plan_view

_END_TIMEOUT_S = 30.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_PROCESS_GROUP_NOTES = (
    "The program is not sandboxed: it sees the files and processes that its user sees, and /opt/ml does not exist.",
    "Processes that the program starts may keep running if its supervisor is killed.",
)

log = logging.getLogger(__name__)


def launch(request: SandboxRequest, output_fd: int) -> Sandboxed:
    """Start the program with stdout and stderr on `output_fd`, which the caller still owns; return once it runs.

    Raises `Unavailable` if the machine refuses the isolation, `CopyOnWriteUnavailable` if it refuses an overlay,
    `InvalidRequest` for a program that can never run, `Conflict` if a sandbox of that name is running, and
    `SandboxLost` if the supervisor does not answer. In each case nothing is left behind. May be called from any thread.
    """
    _check(request)
    uid, gid = _identity(request)
    _make_scratch(request, uid=uid, gid=gid)
    limited = make_cgroups(request.name, request.limits, own_hierarchies())
    try:
        apply_fallbacks(limited, request.limits, request.isolation)
        warm = _start_warm(request, output_fd, limited=limited, uid=uid, gid=gid)
        if request.forker is not None and warm is None:
            _clear_layers(request)
        return warm or _start(
            request, SpawnedSupervisor(output_fd, _network(request)), limited=limited, uid=uid, gid=gid
        )
    except BaseException:
        cgroups.remove_cgroups(limited.folders, timeout_s=_END_TIMEOUT_S)
        raise


def footprint(request: SandboxRequest) -> Sequence[Path]:
    """Return the control groups that `launch` may make, which a sweep empties and removes after a crash.

    All else that a sandbox makes, namespaces and mounts, disappears with its last process.
    """
    return cgroup_folders(request.name, own_hierarchies())


def _check(request: SandboxRequest) -> None:
    if not _NAME.fullmatch(request.name):
        raise InvalidRequest(
            f'"{request.name}" is not a valid sandbox name: use up to 200 letters, digits, "_", "." and "-".'
        )
    if not request.argv:
        raise InvalidRequest(f"Sandbox {request.name} has no program to run.")
    words = [*request.argv, *request.environment, *request.environment.values()]
    if any("\0" in word for word in words) or any("=" in name or not name for name in request.environment):
        raise InvalidRequest(f"An argument or environment variable of sandbox {request.name} cannot be passed on.")
    if os.geteuid() == 0 and not request.uid:
        raise InvalidRequest(f"Sandbox {request.name} is launched by root and needs a uid other than 0.")
    if request.network is not None and request.isolation is not Isolation.NAMESPACES:
        raise InvalidRequest(f"Sandbox {request.name} cannot have its own network without namespaces.")


def _identity(request: SandboxRequest) -> tuple[int, int]:
    """Return the uid and gid of the program. Only root can choose a user other than its own."""
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
    _make_layers(request)


def _make_layers(request: SandboxRequest) -> None:
    uid, gid = _identity(request)
    for each in request.copy_on_write:
        for name in OVERLAY_FOLDERS:
            folder = each.changes / name
            folder.mkdir(parents=True, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(folder, uid, gid)


def _clear_layers(request: SandboxRequest) -> None:
    """Let optional overlays be mounted again: the kernel refuses layers of one whose data may not be on the disk."""
    for each in request.copy_on_write:
        if each.is_optional:
            for name in OVERLAY_FOLDERS:
                remove_tree(each.changes / name)
    _make_layers(request)


def _network(request: SandboxRequest) -> Sequence[int]:
    return request.network.descriptors if request.network is not None else ()


def _start_warm(
    request: SandboxRequest, output_fd: int, *, limited: CgroupLimits, uid: int, gid: int
) -> LaunchedProgram | None:
    """Fork the program from a warm worker; return None if that fails, since it must never keep a job from starting."""
    if request.forker is None or request.isolation is not Isolation.NAMESPACES:
        return None
    try:
        forked = ForkedSupervisor(output_fd, _network(request), forker=request.forker)
        return _start(request, forked, limited=limited, uid=uid, gid=gid)
    except (TrainyardError, OSError) as error:
        log.warning("warm start failed, starting cold", extra={"sandbox": request.name, "why": str(error)})
        return None


def _start(
    request: SandboxRequest, started: SupervisorProcess, *, limited: CgroupLimits, uid: int, gid: int
) -> LaunchedProgram:
    try:
        enter_cgroups(started.pid, limited)
        # The view is planned here, while the interpreter of the supervisor starts.
        started.send_spec(_make_spec(request, limited, uid=uid, gid=gid))
        report = _read_start(started, request)
    except BaseException:
        started.abort()
        raise
    return LaunchedProgram(
        started,
        report.pidfd,
        name=request.name,
        pid=report.pid,
        isolation=request.isolation,
        folders=limited.folders,
        not_enforced=[*limited.not_enforced, *_unenforced_notes(request), *report.notes],
    )


def _make_spec(request: SandboxRequest, limited: CgroupLimits, *, uid: int, gid: int) -> SandboxSpec:
    has_namespaces = request.isolation is Isolation.NAMESPACES
    return SandboxSpec(
        has_namespaces=has_namespaces,
        argv=list(request.argv),
        launcher=list(request.launcher),
        environment=dict(request.environment),
        working_folder=request.working_folder,
        staging=str(request.scratch_folder.resolve() / "root"),
        steps=plan_view(request, uid=uid, gid=gid, groups=limited.cgroups) if has_namespaces else [],
        hostname=request.hostname,
        uid=uid,
        gid=gid,
        cgroups=limited.folders,
        original_cgroups=limited.original_cgroups,
        max_processes=limited.max_processes,
        watchdog_memory_bytes=limited.watchdog_memory_bytes,
        has_own_network=request.network is not None,
        threads=max(1, int(request.limits.cpus)) if request.limits.cpus is not None else 0,
    )


@dataclass(slots=True)
class _StartReport:
    pid: int = 0
    pidfd: int = -1
    notes: list[str] = field(default_factory=list)
    is_running: bool = False


def _read_start(started: SupervisorProcess, request: SandboxRequest) -> _StartReport:
    """Read what the supervisor reports until the program runs and we hold its pidfd."""
    start = _StartReport()
    deadline = time.monotonic() + started.start_timeout_s
    try:
        while not (start.is_running and start.pid):
            line = started.read_status()
            if line is None and started.wait_readable(deadline - time.monotonic()):
                continue
            _handle_status(line, start, request)
            if line is not None and line.word == status.INIT:
                started.send(supervisor.PIDFD_OPEN)
    except BaseException:
        if start.pid:
            os.close(start.pidfd)
        raise
    return start


def _handle_status(line: StatusLine | None, start: _StartReport, request: SandboxRequest) -> None:
    if line is None or line == STATUS_EOF:
        why = "does not answer" if line is None else "has ended"
        raise SandboxLost(f"Sandbox {request.name} did not start: its supervisor {why}.")
    if line.word == status.REFUSED:
        raise Unavailable(f"This machine does not allow isolation with namespaces: {line.detail}.")
    if line.word == status.NO_OVERLAY:
        raise CopyOnWriteUnavailable(f"This machine cannot show a folder copy-on-write: {line.detail}.")
    if line.word == status.UNUSABLE:
        raise InvalidRequest(f"Sandbox {request.name} cannot start its program: {line.detail}.")
    if line.word == status.INIT:
        start.pid, start.pidfd = int(line.detail), os.pidfd_open(int(line.detail))
    if line.word == status.NOTE:
        start.notes.append(line.detail)
    if line.word == status.RUNNING:
        start.is_running = True


def _unenforced_notes(request: SandboxRequest) -> list[str]:
    notes = list(_PROCESS_GROUP_NOTES) if request.isolation is Isolation.PROCESS_GROUP else []
    present = [path for path in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", path.name)]
    if request.limits.gpus and len(present) > len(request.limits.gpus):
        notes.append("Only CUDA_VISIBLE_DEVICES separates the GPUs of this job from those of other jobs.")
    return notes
