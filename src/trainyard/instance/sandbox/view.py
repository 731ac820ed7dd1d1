"""Plans what a program sees: nothing of the host but what is listed here.

The plan is a list of steps for mounts.py. A folder of the host is seen because the system needs it, because the
interpreter does, or because the request names it; what is hidden is masked wherever one of those would show it.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.sandbox.contract import ML, Bind, SandboxRequest
from trainyard.instance.sandbox.interpreters import interpreter_folders
from trainyard.instance.sandbox.limits import GroupView
from trainyard.instance.sandbox.orders import Step

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "nix", "gnu")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_GPU_DEVICES = ("nvidia*", "dri", "kfd", "dxg", "infiniband")  # the last is a network, of no namespace
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "fd/0"),
    ("stdout", "fd/1"),
    ("stderr", "fd/2"),
    ("ptmx", "pts/ptmx"),
)
_GROUPS = "/sys/fs/cgroup"
_LOCALHOST = ("127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback")


@dataclass(frozen=True, slots=True)
class _Shown:
    source: Path  # resolved
    target: str
    kind: str
    is_explicit: bool = True  # was asked for, so a hidden folder around it does not hide it
    step: Step = ()  # that shows it, where it is not a plain bind


def plan_view(
    request: SandboxRequest, *, uid: int, gid: int, groups: Sequence[GroupView] = (), root: Path = Path("/")
) -> list[Step]:
    """The steps that build the view, parents before what lies in them.

    `groups` are the control groups of the program, the only ones that it sees. `root` is the host's, but for tests.
    """
    hidden = [path.resolve() for path in (*request.hidden, *_sockets(request, root), *_links(request, root))]
    links = dict(_system_links(root))
    shown = [*_system(root), *_requested(request, hidden, links)]
    shown = [each for each in shown if each.is_explicit or not _lies_in_any(each.source, hidden)]
    masks = {target: path.is_dir() for each in shown for target, path in _masks(each, hidden)}
    masks |= {_GROUPS: True} if (root / _GROUPS[1:]).is_dir() else {}
    steps: list[tuple[str, Step]] = [(target, ("mask", target)) for target in masks]
    steps += [(each.target, each.step or ("bind", each.kind, str(each.source), each.target)) for each in shown]
    steps += _shown_groups(groups)
    ordered = [step for _, step in sorted(steps, key=_depth)]  # stable: what is asked for lies on what masks it
    return [
        *(("link", target, text) for target, text in links.items()),
        *ordered,
        *_plain_folders(),
        *_devices(request, root),
        *_texts(request, root, uid=uid, gid=gid),
        *(("seal", target) for target, is_folder in masks.items() if is_folder),
    ]


def shown_places(request: SandboxRequest, *, root: Path = Path("/")) -> list[Path]:
    """The files and folders of the host that a program is to see, hidden ones among them."""
    links = dict(_system_links(root))
    return [each.source for each in (*_system(root), *_requested(request, request.hidden, links))]


def _sockets(request: SandboxRequest, root: Path) -> Iterator[Path]:
    """Socket files in folders of the system: being read-only keeps nobody from connecting to one.

    A program with a network of its own gets none in folders that it shares with others either, but for its own.
    """
    places = tuple(f"/{name}/" for name in (*_SYSTEM, "opt")) if request.network is None else ("/",)
    own = (request.ml_folder.resolve(), request.scratch_folder.resolve())
    with suppress(OSError):
        for line in (root / "proc/net/unix").read_text(errors="replace").splitlines()[1:]:
            # A program in another sandbox may have given its socket any name: that of a folder of ours, or one with
            # line breaks in it, which the kernel shows as they are.
            path = "".join(line.split(maxsplit=7)[7:])
            if path.startswith(places) and not _lies_in_any(root / path[1:], own) and _is_socket(root / path[1:]):
                yield root / path[1:]


def _links(request: SandboxRequest, root: Path) -> Iterator[Path]:
    """What the host's own links look like from outside, which are not those of a program with another network."""
    if request.network is not None:
        yield from (root / "sys/class/net", root / "sys/devices/virtual/net")


def _system_links(root: Path) -> Iterator[tuple[str, str]]:
    for name in _SYSTEM:
        if (root / name).is_symlink():
            yield f"/{name}", str((root / name).readlink())
    for entry in _entries(root / "opt"):
        if entry.is_symlink() and entry.name != "ml":
            yield f"/opt/{entry.name}", str(entry.readlink())


def _system(root: Path) -> Iterator[_Shown]:
    """`/opt` is shown entry by entry, since the host's has no folder that `ml` could be mounted on."""
    entries = [(root / name, f"/{name}") for name in _SYSTEM]
    entries += [(entry, f"/opt/{entry.name}") for entry in _entries(root / "opt") if entry.name != "ml"]
    for entry, target in entries:
        if entry.exists() and not entry.is_symlink():
            yield _Shown(entry.resolve(), target, "read_only", is_explicit=False)
    yield _Shown(root / "sys", "/sys", "system", is_explicit=False)
    resolver = (root / "etc/resolv.conf").resolve()
    if resolver.exists() and not resolver.is_relative_to(root / "etc"):  # a resolver daemon keeps it under /run
        yield _Shown(resolver, "/" + str(resolver.relative_to(root)), "system")


def _requested(request: SandboxRequest, hidden: Sequence[Path], links: Mapping[str, str]) -> Iterator[_Shown]:
    private = [*hidden, Path(os.path.expanduser("~"))]  # not Path.home(), which fails without one
    for folder in interpreter_folders(request.interpreter, private):
        if folder.parts[1] not in _SYSTEM or _lies_in_any(folder.resolve(), hidden):
            yield _Shown(folder.resolve(), str(folder), "read_only")
    yield _Shown(request.scratch_folder.resolve() / "tmp", "/tmp", "writable")
    yield _Shown(request.scratch_folder.resolve() / "var-tmp", "/var/tmp", "writable")
    yield _Shown(request.ml_folder.resolve(), ML, "writable")
    for kind, binds in (("read_only", request.read_only), ("writable", request.writable)):
        yield from (_bound(bind, kind, links) for bind in binds)
    for each in request.copy_on_write:
        source = each.source.resolve()
        step = ("layers", str(source), str(each.changes.resolve()), each.target)
        yield _Shown(source, each.target, "layers", step=step)


def _bound(bind: Bind, kind: str, links: Mapping[str, str]) -> _Shown:
    """What a bind shows. Links are followed here; whoever binds meets none, or refuses what was changed since."""
    source = bind.source.resolve()
    shown = (source / bind.below).resolve() if bind.below else source
    if not shown.is_relative_to(source):
        raise InvalidRequest(f'"{bind.below}" leads out of the folder {bind.source}.')
    return _Shown(shown, _target(bind, links), kind)


def _target(bind: Bind, links: Mapping[str, str]) -> str:
    """Where a bind is seen, without the links of the system on the way: none is followed when the view is built."""
    target = os.path.normpath(bind.target or str(bind.source))
    if not target.startswith("/") or target == "/":
        raise InvalidRequest(f'"{bind.target}" is no place for {bind.source}; it must be an absolute path below "/".')
    top = next((link for link in links if f"{target}/".startswith(f"{link}/")), None)
    if top is None:
        return target
    return os.path.normpath(os.path.join(os.path.dirname(top), links[top]) + target.removeprefix(top))


def _masks(shown: _Shown, hidden: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    for path in hidden:
        if path != shown.source and path.is_relative_to(shown.source) and path.exists():
            yield f"{shown.target}/{path.relative_to(shown.source)}", path


def _shown_groups(groups: Sequence[GroupView]) -> Iterator[tuple[str, Step]]:
    """The groups of the program where it expects those of a container: at the top of each hierarchy."""
    for group in groups:
        if group.hierarchy != _GROUPS and os.path.dirname(group.hierarchy) != _GROUPS:
            continue
        yield group.hierarchy, ("bind", "system", group.folder, group.hierarchy)
        controllers = os.path.basename(group.hierarchy).split(",")
        for name in controllers if len(controllers) > 1 else ():
            yield f"{_GROUPS}/{name}", ("link", f"{_GROUPS}/{name}", ",".join(controllers))


def _plain_folders() -> Iterator[Step]:
    yield ("folder", "/run")
    yield ("link", "/var/run", "/run")


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


def _texts(request: SandboxRequest, root: Path, *, uid: int, gid: int) -> Iterator[Step]:
    """Files of /etc that are the job's own. One that is a link is replaced where the link leads."""
    names = [request.hostname] if not any(request.hostname in line.split()[1:] for line in request.hosts) else []
    texts = {
        "hosts": [*_LOCALHOST, *(f"127.0.0.1 {name}" for name in names), *request.hosts],
        "hostname": [request.hostname],
        "passwd": ["root:x:0:0:root:/root:/bin/sh", f"job:x:{uid}:{gid}:job:/tmp:/bin/sh"],
        "group": ["root:x:0:", f"job:x:{gid}:"],
    }
    if request.network is not None:
        # Whoever asks for a name that is not in these files is told that there is none, not to try again later: torch
        # looks for the name of each rank that connects, and warns of every answer but that.
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


def _depth(placed: tuple[str, Step]) -> int:
    return placed[0].count("/")
