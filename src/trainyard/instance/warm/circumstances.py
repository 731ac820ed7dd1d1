"""What a program inherits from the process that starts it, so that a warm worker must have it as the agent has it."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
# Mounts come and go there that no job sees: its /tmp is its own.
_PASSING = ("/proc", "/sys", "/dev", "/run", "/snap", "/tmp", "/var/lib/docker", "/var/lib/containers")
_FOLDERS = tuple(f"{place}/" for place in _PASSING)
_SOURCES = (
    "instance/warm",
    "instance/sandbox",
    "instance/launch",
    "instance/hook",
    "instance/judge",
    "instance/recorder",
)


def circumstances() -> dict[str, Any]:
    """Plain values that are equal where two processes stand in the same place."""
    return {
        "namespaces": [_inode(f"/proc/self/ns/{name}") for name in _NAMESPACES],
        "cpus": sorted(os.sched_getaffinity(0)),
        # A worker of root is in the same namespace as the agent.
        "mounts": [] if os.geteuid() == 0 else lasting_mounts(_mount_info()),
    }


def state_of(folders: Iterable[str]) -> dict[str, int]:
    """When each folder of packages was changed last: by every installation, and by nothing else."""
    return {folder: stamp for folder in folders if (stamp := _changed(folder))}


def lasting_mounts(info: str) -> list[str]:
    """The device, root and target of each mount that a sandbox could be made of, from what the kernel tells."""
    mounts = [line.split(" ")[2:5] for line in info.splitlines()]
    return sorted(" ".join(mount) for mount in mounts if not f"{mount[2]}/".startswith(_FOLDERS))


def code_version(package: Path) -> str:
    """Which code this is, so that a worker and an agent of different code never meet."""
    files = [path for name in _SOURCES for path in sorted((package / name).glob("*.py"))]
    newest = max(path.stat().st_mtime_ns for path in files)
    return f"{package} {len(files)} {newest}"


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:  # this kernel has no such namespaces
        return 0


def _mount_info() -> str:
    return Path("/proc/self/mountinfo").read_text(errors="replace")


def _changed(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0
