"""What a program inherits from the process that starts it; a warm worker and an agent must agree in this."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
# Mounts that come and go here are invisible to jobs.
_TRANSIENT_MOUNTS = tuple(
    f"/{place}/" for place in ("proc", "sys", "dev", "run", "snap", "var/lib/docker", "var/lib/containers")
)
# The channels of other jobs. Only a yard that runs as root mounts these.
_CHANNEL_FILE_SYSTEM = "fuse.trainyard"
_CODE_FOLDERS = (
    "instance/warm",
    "instance/sandbox",
    "instance/launch",
    "instance/hook",
    "instance/rule_evaluation",
    "instance/recorder",
)


def process_context() -> dict[str, Any]:
    """Return plain values that are equal for two processes in the same context."""
    return {
        "namespaces": [_inode(f"/proc/self/ns/{name}") for name in _NAMESPACES],
        "cpus": sorted(os.sched_getaffinity(0)),
        # A worker of root is in the same namespace as the agent.
        "mounts": {} if os.geteuid() == 0 else stable_mounts(_mount_info()),
    }


def context_changes(
    before: Mapping[str, Any], after: Mapping[str, Any], *, visible_paths: Callable[[], Iterable[Path]]
) -> list[str]:
    """Describe the differences between two contexts. Mounts count only above or below a visible path."""
    differing = [name for name in ("namespaces", "cpus") if before[name] != after[name]]
    moved = dict(before["mounts"].items() ^ after["mounts"].items())
    if moved:
        visible = [path.parts for path in visible_paths()]
        differing += sorted(f"mount {target}" for target in moved if _affects(Path(target).parts, visible))
    return differing


def package_mtimes(folders: Iterable[str]) -> dict[str, int]:
    """Return when each package folder last changed; every installation changes it, and nothing else does."""
    return {folder: stamp for folder in folders if (stamp := _mtime_ns(folder))}


def stable_mounts(info: str) -> dict[str, str]:
    """Parse mountinfo into the device and root of what is mounted at each path that a job might see."""
    found = {}
    for line in info.splitlines():
        of_mount, _, of_system = line.partition(" - ")
        device, root, target = of_mount.split(" ")[2:5]
        if not f"{target}/".startswith(_TRANSIENT_MOUNTS) and of_system.split(" ")[0] != _CHANNEL_FILE_SYSTEM:
            found[target] = f"{device} {root}"
    return found


def code_version(package: Path) -> str:
    """Identify this code, so that a worker and an agent of different versions never meet."""
    files = [path for name in _CODE_FOLDERS for path in sorted((package / name).glob("*.py"))]
    newest = max(path.stat().st_mtime_ns for path in files)
    return f"{package} {len(files)} {newest}"


def _affects(target: tuple[str, ...], visible: Iterable[tuple[str, ...]]) -> bool:
    """Return whether a mount point is above or below one of the visible paths."""
    return any(target == path[: len(target)] or path == target[: len(path)] for path in visible)


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        # This kernel does not have this kind of namespace.
        return 0


def _mount_info() -> str:
    return Path("/proc/self/mountinfo").read_text(errors="replace")


def _mtime_ns(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0
