"""Plans what a program sees: nothing of the host except what is listed here.

The plan is a list of steps for mounts.py. A folder of the host is visible because the system or the interpreter needs
it, or because the request names it. Hidden paths are masked wherever one of those would show them.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.sandbox.contract import ML, Bind, CopyOnWrite, SandboxRequest
from trainyard.instance.sandbox.interpreters import interpreter_folders, private_folders
from trainyard.instance.sandbox.limits import VisibleCgroup
from trainyard.instance.sandbox.spec import Step

_SYSTEM_FOLDERS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "nix", "gnu")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# InfiniBand comes last because it is left out of isolated sandboxes: it is a network that namespaces do not contain.
_GPU_DEVICES = ("nvidia*", "dri", "kfd", "dxg", "infiniband")
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "fd/0"),
    ("stdout", "fd/1"),
    ("stderr", "fd/2"),
    ("ptmx", "pts/ptmx"),
)
_CGROUP_ROOT = "/sys/fs/cgroup"
_LOCALHOST = ("127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback")


@dataclass(frozen=True, slots=True)
class _VisiblePath:
    """A host path and where the program sees it. `source` is resolved.

    An explicit path was requested, so it stays visible in a hidden folder. `step` shows it unless it is a plain bind.
    """

    source: Path
    target: str
    kind: str
    is_explicit: bool = True
    step: Step = ()


def plan_view(
    request: SandboxRequest, *, uid: int, gid: int, groups: Sequence[VisibleCgroup] = (), root: Path = Path("/")
) -> list[Step]:
    """Return the steps that build the view, parents before children.

    `groups` are the control groups of the program, the only ones it sees. `root` is the host's root, except in tests.
    """
    hidden = [path.resolve() for path in (*request.hidden, *_sockets(request, root), *_network_folders(request, root))]
    links = dict(_system_links(root))
    shown = [*_system_paths(root), *_requested_paths(request, hidden, links)]
    shown = [each for each in shown if each.is_explicit or not _lies_in_any(each.source, hidden)]
    masks = {target: path.is_dir() for each in shown for target, path in _masks(each, hidden)}
    masks |= {_CGROUP_ROOT: True} if (root / _CGROUP_ROOT[1:]).is_dir() else {}
    steps: list[tuple[str, Step]] = [(target, ("mask", target)) for target in masks]
    steps += [(each.target, each.step or ("bind", each.kind, str(each.source), each.target)) for each in shown]
    steps += _cgroup_steps(groups)
    # The sort is stable, so that a requested path is mounted over what masks it.
    ordered = [step for _, step in sorted(steps, key=_depth)]
    return [
        *(("link", target, text) for target, text in links.items()),
        *ordered,
        *_plain_folders(),
        *_files(request, root),
        *_devices(request, root),
        *_etc_files(request, root, uid=uid, gid=gid),
        *(("seal", target) for target, is_folder in masks.items() if is_folder),
    ]


def visible_paths(request: SandboxRequest, *, root: Path = Path("/")) -> list[Path]:
    """Return the files and folders of the host that a program would see, including hidden ones."""
    links = dict(_system_links(root))
    return [each.source for each in (*_system_paths(root), *_requested_paths(request, request.hidden, links))]


def _sockets(request: SandboxRequest, root: Path) -> Iterator[Path]:
    """Yield socket files to hide: those in system folders, since a read-only mount still allows connections.

    For a program with its own network, also those in folders that it shares with others; only its own sockets stay.
    """
    prefixes = tuple(f"/{name}/" for name in (*_SYSTEM_FOLDERS, "opt")) if request.network is None else ("/",)
    own = (request.ml_folder.resolve(), request.scratch_folder.resolve())
    with suppress(OSError):
        for line in (root / "proc/net/unix").read_text(errors="replace").splitlines()[1:]:
            # A program in another sandbox may have given its socket any name: that of one of our folders, or one with
            # line breaks, which the kernel shows unescaped.
            path = "".join(line.split(maxsplit=7)[7:])
            if path.startswith(prefixes) and not _lies_in_any(root / path[1:], own) and _is_socket(root / path[1:]):
                yield root / path[1:]


def _network_folders(request: SandboxRequest, root: Path) -> Iterator[Path]:
    """Yield the folders that describe the host's network links, to hide from a program with its own network."""
    if request.network is not None:
        yield from (root / "sys/class/net", root / "sys/devices/virtual/net")


def _system_links(root: Path) -> Iterator[tuple[str, str]]:
    for name in _SYSTEM_FOLDERS:
        if (root / name).is_symlink():
            yield f"/{name}", str((root / name).readlink())
    for entry in _entries(root / "opt"):
        if entry.is_symlink() and entry.name != "ml":
            yield f"/opt/{entry.name}", str(entry.readlink())


def _system_paths(root: Path) -> Iterator[_VisiblePath]:
    """Yield the system's folders. `/opt` is shown entry by entry, since the host's may have no mount point for `ml`."""
    entries = [(root / name, f"/{name}") for name in _SYSTEM_FOLDERS]
    entries += [(entry, f"/opt/{entry.name}") for entry in _entries(root / "opt") if entry.name != "ml"]
    for entry, target in entries:
        if entry.exists() and not entry.is_symlink():
            yield _VisiblePath(entry.resolve(), target, "read_only", is_explicit=False)
    yield _VisiblePath(root / "sys", "/sys", "system", is_explicit=False)
    resolver = (root / "etc/resolv.conf").resolve()
    # A resolver daemon keeps this file under /run.
    if resolver.exists() and not resolver.is_relative_to(root / "etc"):
        yield _VisiblePath(resolver, "/" + str(resolver.relative_to(root)), "system")


def _requested_paths(
    request: SandboxRequest, hidden: Sequence[Path], links: Mapping[str, str]
) -> Iterator[_VisiblePath]:
    overlaid = {each.target for each in request.copy_on_write}
    for folder in interpreter_folders(request.interpreter, private_folders(hidden)):
        is_visible = folder.parts[1] in _SYSTEM_FOLDERS and not _lies_in_any(folder.resolve(), hidden)
        if not is_visible and str(folder) not in overlaid:
            yield _VisiblePath(folder.resolve(), str(folder), "read_only")
    yield _VisiblePath(request.scratch_folder.resolve() / "tmp", "/tmp", "writable")
    yield _VisiblePath(request.scratch_folder.resolve() / "var-tmp", "/var/tmp", "writable")
    yield _VisiblePath(request.ml_folder.resolve(), ML, "writable")
    for kind, binds in (("read_only", request.read_only), ("writable", request.writable)):
        yield from (_bound_path(bind, kind, links) for bind in binds)
    for each in request.copy_on_write:
        yield _overlaid_path(each)
        yield from _mounts_below(each) if each.is_optional else ()


def _bound_path(bind: Bind, kind: str, links: Mapping[str, str]) -> _VisiblePath:
    """Resolve a bind. Links are followed here; mounting follows none, and so refuses a path that has changed since."""
    source = bind.source.resolve()
    shown = (source / bind.below).resolve() if bind.below else source
    if not shown.is_relative_to(source):
        raise InvalidRequest(f'"{bind.below}" is outside the folder {bind.source}.')
    return _VisiblePath(shown, _target(bind, links), kind)


def _overlaid_path(each: CopyOnWrite) -> _VisiblePath:
    source, verb = each.source.resolve(), "optional_overlay" if each.is_optional else "overlay"
    step = (verb, str(source), str(each.changes.resolve()), each.target)
    return _VisiblePath(source, each.target, "overlay", step=step)


def _mounts_below(each: CopyOnWrite) -> Iterator[_VisiblePath]:
    """Yield what is mounted below a folder of the machine, which an overlay would hide, such as drivers of a GPU."""
    source = str(each.source.resolve())
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            mounted = line.split()[4]
            # Spaces and the like are escaped, and no driver has one.
            if mounted.startswith(f"{source}/") and "\\" not in mounted:
                yield _VisiblePath(Path(mounted), each.target + mounted.removeprefix(source), "read_only")


def _target(bind: Bind, links: Mapping[str, str]) -> str:
    """Return the target of a bind with the system's own links resolved, since mounting follows no links."""
    target = os.path.normpath(bind.target or str(bind.source))
    if not target.startswith("/") or target == "/":
        raise InvalidRequest(f'{bind.source} cannot be shown at "{bind.target}"; use an absolute path below "/".')
    top = next((link for link in links if f"{target}/".startswith(f"{link}/")), None)
    if top is None:
        return target
    return os.path.normpath(os.path.join(os.path.dirname(top), links[top]) + target.removeprefix(top))


def _masks(shown: _VisiblePath, hidden: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    for path in hidden:
        if path != shown.source and path.is_relative_to(shown.source) and path.exists():
            yield f"{shown.target}/{path.relative_to(shown.source)}", path


def _cgroup_steps(groups: Sequence[VisibleCgroup]) -> Iterator[tuple[str, Step]]:
    """Yield steps that show the program's groups as in a container: at the top of each hierarchy."""
    for group in groups:
        if group.hierarchy != _CGROUP_ROOT and os.path.dirname(group.hierarchy) != _CGROUP_ROOT:
            continue
        yield group.hierarchy, ("bind", "system", group.folder, group.hierarchy)
        controllers = os.path.basename(group.hierarchy).split(",")
        for name in controllers if len(controllers) > 1 else ():
            yield f"{_CGROUP_ROOT}/{name}", ("link", f"{_CGROUP_ROOT}/{name}", ",".join(controllers))


def _plain_folders() -> Iterator[Step]:
    yield ("folder", "/run")
    yield ("link", "/var/run", "/run")


def _files(request: SandboxRequest, root: Path) -> Iterator[Step]:
    for path, text in request.files.items():
        place = root / path[1:]
        if place.exists():
            yield ("text", "/" + str(place.resolve().relative_to(root)), text)
        else:
            yield ("script" if text.startswith("#!") else "file", path, text)


def _devices(request: SandboxRequest, root: Path) -> Iterator[Step]:
    names = list(_DEVICES)
    if request.limits.gpus:
        patterns = _GPU_DEVICES if request.network is None else _GPU_DEVICES[:-1]
        names += sorted(path.name for pattern in patterns for path in (root / "dev").glob(pattern))
    for name in names:
        if (root / "dev" / name).exists():
            yield ("bind", "device", f"/dev/{name}", f"/dev/{name}")
    yield from (("link", f"/dev/{name}", text) for name, text in _DEVICE_LINKS)
    yield ("terminals", "/dev/pts")
    memory = request.limits.memory_bytes
    yield ("tmpfs", "/dev/shm", "mode=1777" if memory is None else f"mode=1777,size={memory // 2}")


def _etc_files(request: SandboxRequest, root: Path, *, uid: int, gid: int) -> Iterator[Step]:
    """Yield steps for the job's own files in /etc. If one is a link, the file that it leads to is replaced."""
    names = [request.hostname] if not any(request.hostname in line.split()[1:] for line in request.hosts) else []
    texts = {
        "hosts": [*_LOCALHOST, *(f"127.0.0.1 {name}" for name in names), *request.hosts],
        "hostname": [request.hostname],
        "passwd": ["root:x:0:0:root:/root:/bin/sh", f"job:x:{uid}:{gid}:job:/tmp:/bin/sh"],
        "group": ["root:x:0:", f"job:x:{gid}:"],
    }
    if request.network is not None:
        # The answer for a name that is not in these files is "not found" instead of "try again": torch looks up the
        # name of each rank that connects, and warns about every other answer.
        texts["nsswitch.conf"] = ["passwd: files", "group: files", "hosts: files"]
    for name, lines in texts.items():
        path = (root / "etc" / name).resolve()
        if path.exists():
            yield ("text", "/" + str(path.relative_to(root)), "".join(f"{line}\n" for line in lines))


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_socket(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(path.stat().st_mode)
    return False


def _lies_in_any(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _depth(step_at_target: tuple[str, Step]) -> int:
    return step_at_target[0].count("/")
