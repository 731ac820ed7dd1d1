"""Makes the control groups that hold a program to its share of the machine, and says what they cannot hold it to.

Of each controller the v2 hierarchy is taken where it has it, else that of v1. Groups are made below the one this
process is in, so that limits set on the yard hold for its jobs too. Where v2 forbids that, because a group with
processes cannot have limited children, those with limits are made beside it, or beside one further up. No setting of a
group that is not ours is ever changed.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.foundation.errors import Conflict
from trainyard.instance.sandbox import groups
from trainyard.instance.sandbox.contract import Isolation
from trainyard.link.contract import LimitSpec

_PERIOD_US = 100_000
_NPROC_COUNTS_PER_NAMESPACE = (5, 14)
_OWN_PROCESSES = 2  # keeper and init are counted too


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One tree of control groups: the group of it that this process is in, and that which new ones are made in."""

    own: Path
    parent: Path
    controllers: frozenset[str]
    is_v2: bool
    top: Path  # where it is mounted


@dataclass(frozen=True, slots=True)
class GroupView:
    """A control group that a program is in, and where the hierarchy that it belongs to is mounted."""

    folder: str
    hierarchy: str


@dataclass(slots=True)
class Limited:
    """What was made, what the keeper has to do itself, and what nobody does."""

    groups: list[GroupView] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    not_enforced: list[str] = field(default_factory=list)
    watched_memory: int = 0
    most_processes: int = 0

    @property
    def folders(self) -> list[str]:
        """Of the groups that were made."""
        return [group.folder for group in self.groups]


def group_folders(name: str, hierarchies: Sequence[Hierarchy]) -> list[Path]:
    """Every folder that `make_groups` may make for this name."""
    parents = dict.fromkeys(place for hierarchy in hierarchies for place in (hierarchy.parent, hierarchy.own))
    return [_folder(parent, name) for parent in parents]


def make_groups(name: str, limits: LimitSpec, hierarchies: Sequence[Hierarchy]) -> Limited:
    """Make the groups. A v2 group is made even with nothing to limit, since an empty group proves that all are dead."""
    _require_unused(name, group_folders(name, hierarchies))
    limited = Limited()
    wanted = [controller for controller in ("memory", "cpu", "pids") if _settings(controller, limits, is_v2=True)]
    unheld = set(wanted)
    for hierarchy in hierarchies:
        mine = [controller for controller in wanted if controller in hierarchy.controllers]
        folder = _folder(hierarchy.parent if mine else hierarchy.own, name)
        if not (mine or hierarchy.is_v2) or not _make(folder):
            continue
        limited.groups.append(GroupView(str(folder), str(hierarchy.top)))
        limited.origins.append(str(hierarchy.own))
        unheld -= {each for each in mine if _write(folder, _settings(each, limits, is_v2=hierarchy.is_v2))}
    limited.not_enforced.extend(_sentence(controller, limits) for controller in wanted if controller in unheld)
    return limited


def enter_groups(pid: int, limited: Limited) -> None:
    """Move a process in. A group that does not take it is given up."""
    for group in list(limited.groups):
        try:
            groups.move(pid, [group.folder])
        except OSError as error:
            limited.groups.remove(group)
            Path(group.folder).rmdir()
            limited.not_enforced.append(
                f"Limits of the control group {group.folder} are not enforced: {error.strerror}."
            )


def hold_otherwise(limited: Limited, limits: LimitSpec, isolation: Isolation) -> None:
    """Without control groups a watchdog looks after memory, and the user namespace counts its processes itself."""
    if limits.memory_bytes is not None and _sentence("memory", limits) in limited.not_enforced:
        limited.watched_memory = limits.memory_bytes
    if limits.processes is None or _sentence("pids", limits) not in limited.not_enforced:
        return
    if isolation is Isolation.NAMESPACES and _kernel() >= _NPROC_COUNTS_PER_NAMESPACE:
        own = _OWN_PROCESSES if os.geteuid() != 0 else 1  # a keeper of root is in no user namespace
        limited.most_processes = limits.processes + own
        limited.not_enforced.remove(_sentence("pids", limits))


def own_hierarchies(proc: Path = Path("/proc/self")) -> list[Hierarchy]:
    """Those this process is in that new groups can be made in: v2 first, then each of v1 with a controller we use."""
    mounts = _mounts((proc / "mountinfo").read_text())
    found = []
    for line in (proc / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        top = next((mount.target for mount in mounts if mount.has(names)), None)
        if top is None:
            continue
        own = top / path.lstrip("/")
        own = own if own.is_dir() else top  # in a container the path is often that outside of it
        found.append(_v1_hierarchy(own, names, top) if names else _v2_hierarchy(own, top))
    usable = [hierarchy for hierarchy in found if hierarchy.is_v2 or hierarchy.controllers]
    return sorted((each for each in usable if os.access(each.parent, os.W_OK)), key=lambda each: not each.is_v2)


def _v2_hierarchy(own: Path, top: Path) -> Hierarchy:
    """The nearest group, from our own upwards, that hands controllers to its children; else our own.

    Either is asked to hand down what it does not yet: a service manager may have enabled but one of them.
    """
    for group in (own, *own.parents):
        controllers = frozenset(_words(group / "cgroup.subtree_control"))
        if controllers & {"memory", "cpu", "pids"} and os.access(group / "cgroup.procs", os.W_OK):
            return Hierarchy(own, group, controllers | _enabled(group), is_v2=True, top=top)
        if group == top:
            break
    return Hierarchy(own, own, _enabled(own), is_v2=True, top=top)


def _enabled(group: Path) -> frozenset[str]:
    """The controllers that a group agrees to hand down, which it does when it is the top or has no processes."""
    with suppress(OSError):
        available = _words(group / "cgroup.controllers")
        wanted = [controller for controller in ("memory", "cpu", "pids") if controller in available]
        if wanted:
            (group / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in wanted))
            return frozenset(wanted)
    return frozenset()


def _v1_hierarchy(own: Path, names: str, top: Path) -> Hierarchy:
    return Hierarchy(own, own, frozenset(names.split(",")) & {"memory", "cpu", "pids"}, is_v2=False, top=top)


def _words(path: Path) -> Sequence[str]:
    with suppress(OSError):
        return path.read_text().split()
    return ()


@dataclass(frozen=True, slots=True)
class _Mount:
    target: Path
    is_v2: bool
    options: frozenset[str]

    def has(self, names: str) -> bool:
        """Whether this is the hierarchy of these controllers, as /proc/self/cgroup lists them: none is v2."""
        return self.options.issuperset(names.split(",")) if names else self.is_v2


def _mounts(mountinfo: str) -> Sequence[_Mount]:
    """Where control groups are mounted. The controllers of v1 stand among the options."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            mounts.append(_Mount(Path(before.split(" ")[4]), kind == "cgroup2", frozenset(options.split(","))))
    return mounts


def _folder(parent: Path, name: str) -> Path:
    return parent / f"trainyard-{name}"


def _require_unused(name: str, folders: Sequence[Path]) -> None:
    if groups.members([str(folder) for folder in folders]):
        raise Conflict("sandbox", name, "is running already")


def _make(folder: Path) -> bool:
    """Make a group. One that was left behind goes first, since its counters would be taken for this program's."""
    with suppress(OSError):
        if folder.exists():
            folder.rmdir()
        folder.mkdir()
        return True
    return False


def _settings(controller: str, limits: LimitSpec, *, is_v2: bool) -> Mapping[str, str]:
    """What to write into which file; names with a question mark are left out where the kernel has no such file."""
    if controller == "memory" and limits.memory_bytes is not None:
        size = str(limits.memory_bytes)
        if is_v2:
            return {"memory.max": size, "?memory.swap.max": "0"}
        return {"memory.limit_in_bytes": size, "?memory.memsw.limit_in_bytes": size}
    if controller == "cpu" and limits.cpus is not None:
        quota = max(round(limits.cpus * _PERIOD_US), 1000)  # the kernel's least
        # What was left of one period may be used in the next: ranks wait for each other, and then all want to go on.
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
        return f"Memory of {size} is watched, not limited by the kernel: a job above it is ended within a moment."
    if controller == "cpu":
        return f"The share of {limits.cpus:g} CPUs is not enforced: no control group can be made here that holds it."
    return (
        f"The limit of {limits.processes} processes is not enforced: no control group can be made here that holds it."
    )


def _kernel() -> tuple[int, ...]:
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return tuple(int(number) for number in numbers.groups()) if numbers else (0, 0)
