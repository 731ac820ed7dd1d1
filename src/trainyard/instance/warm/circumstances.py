"""What a program inherits from the process that starts it, so that a warm worker must have it as the agent has it."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
# Mounts come and go there that no job sees.
_PASSING = tuple(
    f"/{place}/" for place in ("proc", "sys", "dev", "run", "snap", "var/lib/docker", "var/lib/containers")
)
_OF_OTHER_JOBS = "fuse.trainyard"  # their channels; only jobs of root have such
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
        "mounts": {} if os.geteuid() == 0 else lasting_mounts(_mount_info()),
    }


def changes(before: Mapping[str, Any], after: Mapping[str, Any], *, shown: Callable[[], Iterable[Path]]) -> list[str]:
    """What differs between two of them, in words; of mounts only those on the way to what is shown, or in it."""
    differing = [name for name in ("namespaces", "cpus") if before[name] != after[name]]
    moved = dict(before["mounts"].items() ^ after["mounts"].items())
    if moved:
        places = [place.parts for place in shown()]
        differing += sorted(f"mount {target}" for target in moved if _concerns(Path(target).parts, places))
    return differing


def state_of(folders: Iterable[str]) -> dict[str, int]:
    """When each folder of packages was changed last: by every installation, and by nothing else."""
    return {folder: stamp for folder in folders if (stamp := _changed(folder))}


def lasting_mounts(info: str) -> dict[str, str]:
    """The device and the root of what is mounted at each place that a job might see, from what the kernel tells."""
    found = {}
    for line in info.splitlines():
        of_mount, _, of_system = line.partition(" - ")
        device, root, target = of_mount.split(" ")[2:5]
        if not f"{target}/".startswith(_PASSING) and of_system.split(" ")[0] != _OF_OTHER_JOBS:
            found[target] = f"{device} {root}"
    return found


def code_version(package: Path) -> str:
    """Which code this is, so that a worker and an agent of different code never meet."""
    files = [path for name in _SOURCES for path in sorted((package / name).glob("*.py"))]
    newest = max(path.stat().st_mtime_ns for path in files)
    return f"{package} {len(files)} {newest}"


def _concerns(target: tuple[str, ...], places: Iterable[tuple[str, ...]]) -> bool:
    """Whether a mount lies on the way to one of the places, or in it."""
    return any(target == place[: len(target)] or place == target[: len(place)] for place in places)


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
