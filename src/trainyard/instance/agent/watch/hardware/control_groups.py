"""The control groups of a process, of both versions: what they count, and what they limit."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# Larger limits are the kernel's way to say that there is none.
_NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A group of one hierarchy, below the place where the hierarchy is mounted."""

    folder: Path
    top: Path
    is_v2: bool

    @property
    def line(self) -> Iterator[Path]:
        """The folders from the group up to the top: a limit of each counts."""
        yield self.folder
        if self.folder != self.top:
            yield from (folder for folder in self.folder.parents if folder.is_relative_to(self.top))


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """The groups of a process by controller; that of version 2 has all controllers that have no group of version 1."""

    by_controller: Mapping[str, ControlGroup]

    @classmethod
    def of(cls, root: Path, pid: int | str) -> "ControlGroups":
        """Find the groups of a process; none if it is gone, or where there are no control groups."""
        try:
            lines = (root / "proc" / str(pid) / "cgroup").read_text().splitlines()
            mounts = (root / "proc/self/mountinfo").read_text().splitlines()
        except OSError:
            return cls({})
        found: dict[str, ControlGroup] = {}
        for line in lines:
            _, names, path = line.split(":", 2)
            place = next((place for mount in mounts if (place := _place(root, mount, names))), None)
            if place is not None:
                group = _group(place, path)
                found.update(dict.fromkeys(names.split(","), group))
        return cls(found)

    def group_with(self, controller: str, file: str) -> ControlGroup | None:
        """Return the group of a controller if it has a file, which a group lacks if it does not count that."""
        for name in (controller, ""):
            group = self.by_controller.get(name)
            if group is not None and (group.folder / file).exists():
                return group
        return None

    def without(self, others: "ControlGroups") -> "ControlGroups":
        """Return the groups that do not contain the other process: what they count is not about that one."""
        folders = {folder for group in others.by_controller.values() for folder in group.line}
        return ControlGroups({name: group for name, group in self.by_controller.items() if group.folder not in folders})

    def core_limit(self) -> float | None:
        """Return how many cores the processes may use at once; None if nothing limits them."""
        limits = []
        group = self.by_controller.get("cpu", self.by_controller.get(""))
        for folder in group.line if group is not None else ():
            if group is not None and group.is_v2:
                words = _words(folder / "cpu.max")
            else:
                words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
            if len(words) == 2 and words[0].isdigit() and int(words[1]):
                limits.append(int(words[0]) / int(words[1]))
        return min(limits, default=None)

    def memory_limit(self) -> int | None:
        """Return how many bytes of memory the processes may use; None if nothing limits them."""
        group = self.by_controller.get("memory", self.by_controller.get(""))
        if group is None:
            return None
        file = "memory.max" if group.is_v2 else "memory.limit_in_bytes"
        words = [word for folder in group.line for word in _words(folder / file)[:1]]
        return min((int(word) for word in words if word.isdigit() and int(word) < _NO_LIMIT_BYTES), default=None)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a hierarchy is mounted, and which of its groups is there: in a container, often not the top one."""

    top: Path
    shown: str
    is_v2: bool


def _place(root: Path, mount: str, names: str) -> _Place | None:
    """Return the place in a line of mountinfo if that hierarchy has these controllers; no names means version 2."""
    before, _, after = mount.partition(" - ")
    words, kinds = before.split(" "), after.split(" ")
    is_v2 = kinds[0] == "cgroup2"
    if kinds[0] not in ("cgroup", "cgroup2") or is_v2 != (not names):
        return None
    if names and not set(names.split(",")) <= set(kinds[2].split(",")):
        return None
    return _Place(root / words[4].lstrip("/"), words[3], is_v2)


def _group(place: _Place, path: str) -> ControlGroup:
    below = PurePosixPath(path)
    if below.is_relative_to(place.shown):
        below = below.relative_to(place.shown)
    folder = place.top / str(below).lstrip("/")
    return ControlGroup(folder if folder.is_dir() else place.top, place.top, place.is_v2)


def _words(file: Path) -> list[str]:
    with suppress(OSError):
        return file.read_text().split()
    return []
