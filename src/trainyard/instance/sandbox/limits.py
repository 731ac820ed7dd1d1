"""Makes the control groups that limit a program, and says which limits they cannot enforce.

For each controller, the v2 hierarchy is used if it has the controller, else v1. New groups are children of this
process's own group, so that limits on the yard also apply to its jobs. Where v2 forbids that, because a group that has
processes cannot have limited children, they become siblings of this group or of one further up. The settings of groups
that are not ours never change.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.foundation.errors import Conflict
from trainyard.instance.sandbox import cgroups
from trainyard.instance.sandbox.contract import Isolation
from trainyard.link.contract import LimitSpec

_PERIOD_US = 100_000
_NPROC_COUNTS_PER_NAMESPACE = (5, 14)
# The kernel also counts the supervisor and init.
_OWN_PROCESSES = 2


@dataclass(frozen=True, slots=True)
class CgroupHierarchy:
    """One tree of control groups: its mount point, this process's own group in it, and the parent for new groups."""

    own: Path
    parent: Path
    controllers: frozenset[str]
    is_v2: bool
    top: Path


@dataclass(frozen=True, slots=True)
class VisibleCgroup:
    """A control group of a program, and where its hierarchy is mounted."""

    folder: str
    hierarchy: str


@dataclass(slots=True)
class CgroupLimits:
    """The groups that were made, the limits left to the supervisor, and the limits that nothing enforces."""

    cgroups: list[VisibleCgroup] = field(default_factory=list)
    original_cgroups: list[str] = field(default_factory=list)
    not_enforced: list[str] = field(default_factory=list)
    watchdog_memory_bytes: int = 0
    max_processes: int = 0

    @property
    def folders(self) -> list[str]:
        """The folders of the groups that were made."""
        return [group.folder for group in self.cgroups]


def cgroup_folders(name: str, hierarchies: Sequence[CgroupHierarchy]) -> list[Path]:
    """Return every folder that `make_cgroups` may make for this name."""
    parents = dict.fromkeys(place for hierarchy in hierarchies for place in (hierarchy.parent, hierarchy.own))
    return [_folder(parent, name) for parent in parents]


def make_cgroups(name: str, limits: LimitSpec, hierarchies: Sequence[CgroupHierarchy]) -> CgroupLimits:
    """Make the groups. A v2 group is made even without limits: once it is empty, all its processes are proven dead."""
    _require_unused(name, cgroup_folders(name, hierarchies))
    limited = CgroupLimits()
    wanted = [controller for controller in ("memory", "cpu", "pids") if _settings(controller, limits, is_v2=True)]
    unheld = set(wanted)
    for hierarchy in hierarchies:
        mine = [controller for controller in wanted if controller in hierarchy.controllers]
        folder = _folder(hierarchy.parent if mine else hierarchy.own, name)
        if not (mine or hierarchy.is_v2) or not _make(folder):
            continue
        limited.cgroups.append(VisibleCgroup(str(folder), str(hierarchy.top)))
        limited.original_cgroups.append(str(hierarchy.own))
        unheld -= {each for each in mine if _write(folder, _settings(each, limits, is_v2=hierarchy.is_v2))}
    limited.not_enforced.extend(_sentence(controller, limits) for controller in wanted if controller in unheld)
    return limited


def enter_cgroups(pid: int, limited: CgroupLimits) -> None:
    """Move a process into the groups, and remove each group that refuses it."""
    for group in list(limited.cgroups):
        try:
            cgroups.move_process(pid, [group.folder])
        except OSError as error:
            limited.cgroups.remove(group)
            Path(group.folder).rmdir()
            limited.not_enforced.append(
                f"The limits of the control group {group.folder} are not enforced: {error.strerror}."
            )


def apply_fallbacks(limited: CgroupLimits, limits: LimitSpec, isolation: Isolation) -> None:
    """Replace missing control groups: a watchdog for memory, and RLIMIT_NPROC in the user namespace for processes."""
    if limits.memory_bytes is not None and _sentence("memory", limits) in limited.not_enforced:
        limited.watchdog_memory_bytes = limits.memory_bytes
    if limits.processes is None or _sentence("pids", limits) not in limited.not_enforced:
        return
    if isolation is Isolation.NAMESPACES and _kernel() >= _NPROC_COUNTS_PER_NAMESPACE:
        # Root's supervisor is not in a user namespace, so it is not counted.
        own = _OWN_PROCESSES if os.geteuid() != 0 else 1
        limited.max_processes = limits.processes + own
        limited.not_enforced.remove(_sentence("pids", limits))


def own_hierarchies(proc: Path = Path("/proc/self")) -> list[CgroupHierarchy]:
    """Return the hierarchies in which this process can make groups: v2 first, then v1 ones with a controller we use."""
    mounts = _mounts((proc / "mountinfo").read_text())
    found = []
    for line in (proc / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        top = next((mount.target for mount in mounts if mount.has(names)), None)
        if top is None:
            continue
        own = top / path.lstrip("/")
        # In a container the path is often the one on the host.
        own = own if own.is_dir() else top
        found.append(_v1_hierarchy(own, names, top) if names else _v2_hierarchy(own, top))
    usable = [hierarchy for hierarchy in found if hierarchy.is_v2 or hierarchy.controllers]
    return sorted((each for each in usable if os.access(each.parent, os.W_OK)), key=lambda each: not each.is_v2)


def _v2_hierarchy(own: Path, top: Path) -> CgroupHierarchy:
    """Choose the nearest group, from our own upwards, that passes controllers to its children; else our own.

    It may pass only some of them, as set up by a service manager, so this tries to enable the rest.
    """
    for group in (own, *own.parents):
        controllers = frozenset(_words(group / "cgroup.subtree_control"))
        if controllers & {"memory", "cpu", "pids"} and os.access(group / "cgroup.procs", os.W_OK):
            return CgroupHierarchy(own, group, controllers | _enable_controllers(group), is_v2=True, top=top)
        if group == top:
            break
    return CgroupHierarchy(own, own, _enable_controllers(own), is_v2=True, top=top)


def _enable_controllers(group: Path) -> frozenset[str]:
    """Enable controllers for the children of a group and return them. Only the root and empty groups allow that."""
    with suppress(OSError):
        available = _words(group / "cgroup.controllers")
        wanted = [controller for controller in ("memory", "cpu", "pids") if controller in available]
        if wanted:
            (group / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in wanted))
            return frozenset(wanted)
    return frozenset()


def _v1_hierarchy(own: Path, names: str, top: Path) -> CgroupHierarchy:
    return CgroupHierarchy(own, own, frozenset(names.split(",")) & {"memory", "cpu", "pids"}, is_v2=False, top=top)


def _words(path: Path) -> Sequence[str]:
    with suppress(OSError):
        return path.read_text().split()
    return ()


@dataclass(frozen=True, slots=True)
class _CgroupMount:
    target: Path
    is_v2: bool
    options: frozenset[str]

    def has(self, names: str) -> bool:
        """Return whether this hierarchy has these controllers, as listed in /proc/self/cgroup; no names means v2."""
        return self.options.issuperset(names.split(",")) if names else self.is_v2


def _mounts(mountinfo: str) -> Sequence[_CgroupMount]:
    """Return where control groups are mounted. The v1 controllers are among the mount options."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            mounts.append(_CgroupMount(Path(before.split(" ")[4]), kind == "cgroup2", frozenset(options.split(","))))
    return mounts


def _folder(parent: Path, name: str) -> Path:
    return parent / f"trainyard-{name}"


def _require_unused(name: str, folders: Sequence[Path]) -> None:
    if cgroups.member_pids([str(folder) for folder in folders]):
        raise Conflict("sandbox", name, "is already running")


def _make(folder: Path) -> bool:
    """Make a group. First remove one that was left behind: its counters would be taken for this program's."""
    with suppress(OSError):
        if folder.exists():
            folder.rmdir()
        folder.mkdir()
        return True
    return False


def _settings(controller: str, limits: LimitSpec, *, is_v2: bool) -> Mapping[str, str]:
    """Return what to write to which file. Files marked with "?" are skipped if the kernel does not have them."""
    if controller == "memory" and limits.memory_bytes is not None:
        size = str(limits.memory_bytes)
        if is_v2:
            return {"memory.max": size, "?memory.swap.max": "0"}
        return {"memory.limit_in_bytes": size, "?memory.memsw.limit_in_bytes": size}
    if controller == "cpu" and limits.cpus is not None:
        # 1000 µs is the kernel's minimum.
        quota = max(round(limits.cpus * _PERIOD_US), 1000)
        # A burst carries unused time over to the next period: ranks wait for each other, then all continue at once.
        if is_v2:
            return {"cpu.max": f"{quota} {_PERIOD_US}", "?cpu.max.burst": str(quota)}
        return {
            "cpu.cfs_period_us": str(_PERIOD_US),
            "cpu.cfs_quota_us": str(quota),
            "?cpu.cfs_burst_us": str(quota),
        }
    if controller == "pids" and limits.processes is not None:
        return {"pids.max": str(limits.processes + _OWN_PROCESSES)}
    return {}


def _write(folder: Path, settings: Mapping[str, str]) -> bool:
    try:
        for name, value in settings.items():
            file = folder / name.removeprefix("?")
            if file.exists() or not name.startswith("?"):
                file.write_text(value)
    except OSError:
        return False
    return True


def _sentence(controller: str, limits: LimitSpec) -> str:
    if controller == "memory":
        size = f"{(limits.memory_bytes or 0) / 1024**2:.0f} MiB"
        return f"The kernel does not limit memory to {size}; a watchdog kills the job shortly after it exceeds that."
    if controller == "cpu":
        return f"The limit of {limits.cpus:g} CPUs is not enforced: this machine allows no control group for it."
    return f"The limit of {limits.processes} processes is not enforced: this machine allows no control group for it."


def _kernel() -> tuple[int, ...]:
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return tuple(int(number) for number in numbers.groups()) if numbers else (0, 0)
