"""Builds what a program sees: a new root with clones of selected host mounts, and nothing else of the host.

A job's own folders may hold whatever its earlier programs left there, so safety depends on the order:

1. Open every source on the host, by a path without symbolic links, and clone it as a separate mount.
2. Enter the new root and detach the old one. From then on no path leads to the host.
3. Attach the clones. A mount point in a job's folder is opened without following links, and is made if it is missing.
"""

import errno
import os

from trainyard.instance.sandbox import identity
from trainyard.instance.sandbox.spec import Step
from trainyard.instance.sandbox.system_calls import (
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    NO_DEVICES,
    NO_EXEC,
    NO_SUID,
    READ_ONLY,
    attach_mount,
    clone_mount,
    map_owner,
    mount,
    open_without_links,
    pivot_root,
    restrict_mount,
    restrict_tree,
    unmount,
)

# Subfolders of `CopyOnWrite.changes`.
OVERLAY_FOLDERS = ("upper", "work")

# Names at the top of the new root while it is being built. Only we can write there.
_LAYERS, _TEXT = "/.layers", "/.text"

_ATTRIBUTES = {
    "read_only": READ_ONLY | NO_SUID | NO_DEVICES,
    "system": READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC,
    "writable": NO_SUID | NO_DEVICES,
    "device": NO_SUID | NO_EXEC,
}
_NO_FOLLOW = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class OverlayError(OSError):
    """The kernel or a file system lacks what an overlay needs."""


class _OptionalOverlayError(OverlayError):
    """The program cannot change a folder that it should: it is read-only, or its files belong to another user."""


class OwnerMappings:
    """User namespaces that show the files of other owners as those of the program. Only root can make them."""

    def __init__(self, steps: list[Step], *, uid: int, gid: int) -> None:
        """Open those for the overlays among the steps, before this process enters any namespace."""
        self._uid = uid
        self._opened: dict[tuple[int, int], int] = {}
        self._error: OSError | None = None
        if os.geteuid() == 0:
            sources = [step[1] for step in steps if step[0] in ("overlay", "optional_overlay")]
            for owner in {_owner_of(source) for source in sources} - {None}:
                self._open(owner, gid)

    def show_as_own(self, tree: int) -> None:
        """Map the owner of a detached mount's top folder to the user of the program."""
        status = os.fstat(tree)
        if os.geteuid() != 0 or status.st_uid == self._uid:
            return
        mapping = self._opened.get((status.st_uid, status.st_gid))
        if mapping is None:
            raise self._error or OSError(errno.ESTALE, "its owner has changed")
        map_owner(tree, mapping)

    def close(self) -> None:
        for descriptor in self._opened.values():
            os.close(descriptor)
        self._opened.clear()

    def _open(self, owner: tuple[int, int] | None, gid: int) -> None:
        if owner is None or owner[0] == self._uid:
            return
        try:
            self._opened[owner] = identity.open_mapping(*owner, uid=self._uid, gid=gid)
        except OSError as error:
            self._error = error


def open_sources(steps: list[Step]) -> list[tuple[int, ...]]:
    """Return the clones that each step attaches: all that is visible of the host.

    There is none for a folder that was planned under its own host path but has since disappeared.
    """
    return [_open_sources(step) for step in steps]


def isolate_mounts(staging: str) -> None:
    """Hide mounts made here from the rest of the machine; OSError if this kernel cannot clone mounts."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    os.close(clone_path(staging))


def enter_new_root(staging: str) -> None:
    """Enter an empty root with nothing of the host, and with a /proc that shows only this pid namespace."""
    mount("tmpfs", staging, kind="tmpfs", flags=MS_NOSUID | MS_NODEV, options="mode=755,size=4m")
    os.chdir(staging)
    # The kernel lets an ordinary user mount /proc only while the host's is still visible.
    os.mkdir("proc", 0o755)
    mount("proc", "proc", kind="proc", flags=MS_NOSUID | MS_NODEV | MS_NOEXEC)
    # Fails early on kernels that are too old to restrict whole trees.
    restrict_mount("proc", NO_SUID)
    # Puts the old root on top of the new one.
    pivot_root(".", ".")
    unmount(".")
    os.chdir("/")


def fill_root(steps: list[Step], sources: list[tuple[int, ...]], mappings: OwnerMappings) -> list[OverlayError]:
    """Apply the steps that view.py planned, in order, and close the clones and the mappings.

    Return why the program cannot change what optional overlays show.
    """
    failures: list[OverlayError] = []
    try:
        for step, clones in zip(steps, sources, strict=True):
            try:
                _apply_step(step, clones, mappings)
            except _OptionalOverlayError as error:
                failures.append(error)
    finally:
        mappings.close()
    _detach_layers()
    make_read_only("/")
    return failures


def clone_path(path: str, *, is_recursive: bool = True) -> int:
    """Clone what is mounted at a host path, and below it, so that it can be attached elsewhere."""
    source = open_without_links(path)
    try:
        return clone_mount(source, is_recursive=is_recursive)
    finally:
        os.close(source)


def open_mount_point(target: str, *, is_folder: bool) -> int:
    """Open the folder or file to mount on; make an empty one if it is missing.

    Refuses a path with a symbolic link in it, which a program may have left there.
    """
    flags = os.O_DIRECTORY if is_folder else 0
    try:
        return open_without_links(target, flags)
    except FileNotFoundError:
        return _make_mount_point(target, is_folder=is_folder)
    except OSError as error:
        raise _mount_point_error(error, target) from error


def make_read_only(target: str) -> None:
    """Make one of our mounts read-only once its folders exist."""
    place = open_without_links(target)
    try:
        restrict_tree(place, READ_ONLY, is_recursive=False)
    finally:
        os.close(place)


def _open_sources(step: Step) -> tuple[int, ...]:
    match step:
        case ("bind", _, source, target):
            try:
                return (clone_path(source),)
            except FileNotFoundError:
                if source != target:
                    raise
                return ()
        case ("overlay", source, changes, _):
            try:
                return clone_path(source, is_recursive=False), clone_path(changes, is_recursive=False)
            except OSError as error:
                raise _overlay_error(error) from error
        case ("optional_overlay", source, changes, _):
            return _open_optional_sources(source, changes)
        case ("mask", _):
            return (clone_path("/dev/null"),)
    return ()


def _open_optional_sources(source: str, changes: str) -> tuple[int, ...]:
    """Return the clone to show if no overlay is possible, and those of the overlay if they can be had."""
    try:
        fallback = clone_path(source)
    except FileNotFoundError:
        return ()
    try:
        return fallback, clone_path(source, is_recursive=False), clone_path(changes, is_recursive=False)
    except OSError:
        # Folders with mounts in them cannot be cloned alone by an ordinary user.
        return (fallback,)


def _owner_of(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_uid, status.st_gid


def _apply_step(step: Step, clones: tuple[int, ...], mappings: OwnerMappings) -> None:
    match step:
        case ("overlay", _, _, target):
            lower, changes = clones
            _mount_overlay(lower, changes, target, mappings, is_volatile=False)
        case ("optional_overlay", _, _, target):
            _mount_optional_overlay(clones, target, mappings)
        case ("bind", kind, _, target):
            for clone in clones:
                _attach(clone, target, kind=kind)
        case ("folder", target):
            os.close(open_mount_point(target, is_folder=True))
        case ("link", target, text):
            _make_link(target, text)
        case ("text", target, text):
            _replace_text(target, text)
        case ("script" | "file" as kind, target, text):
            _write_file(target, text, mode=0o755 if kind == "script" else 0o644)
        case ("tmpfs", target, options):
            _mount_filesystem("tmpfs", target, flags=MS_NOSUID | MS_NODEV, options=options)
        case ("terminals", target):
            _mount_filesystem(
                "devpts", target, flags=MS_NOSUID | MS_NOEXEC, options="newinstance,ptmxmode=0666,mode=600"
            )
        case ("mask", target):
            _mask(target, null_device=clones[0])
        case ("seal", target):
            make_read_only(target)
        case _:
            raise AssertionError(f"unknown step {step[0]} in the view")


def _attach(tree: int, target: str, *, kind: str) -> None:
    """Attach a clone to its target, and close it."""
    try:
        restrict_tree(tree, _ATTRIBUTES[kind])
        place = open_mount_point(target, is_folder=_is_folder(tree))
        try:
            attach_mount(tree, place)
        except OSError as error:
            raise _mount_point_error(error, target) from error
        finally:
            os.close(place)
    finally:
        os.close(tree)


def _mount_optional_overlay(clones: tuple[int, ...], target: str, mappings: OwnerMappings) -> None:
    if not clones:
        return
    fallback, *layers = clones
    try:
        if not layers:
            raise OverlayError(errno.EINVAL, "it has other mounts in it", target)
        # Without `volatile`, unmounting it would wait until the whole file system is on the disk.
        _mount_overlay(layers[0], layers[1], target, mappings, is_volatile=True)
    except OverlayError as error:
        _attach(fallback, target, kind="read_only")
        raise _OptionalOverlayError(error.errno, error.strerror, error.filename) from error
    owner = os.fstat(fallback).st_uid
    os.close(fallback)
    # An overlay keeps the modes and owners of its files, which only root can map.
    if os.geteuid() not in (0, owner):
        raise _OptionalOverlayError(errno.EPERM, "its files belong to another user", target)


def _mount_overlay(lower: int, changes: int, target: str, mappings: OwnerMappings, *, is_volatile: bool) -> None:
    """Show a folder copy-on-write."""
    # First, so that an obstacle at the target is not reported as a missing overlay feature.
    os.close(open_mount_point(target, is_folder=True))
    try:
        mappings.show_as_own(lower)
        folder = _make_layer_folder()
        _attach_layer(lower, f"{folder}/lower")
        _attach_layer(changes, f"{folder}/changes")
        upper, work = (f"{folder}/changes/{name}" for name in OVERLAY_FOLDERS)
        for layer in (upper, work):
            # Refuses links, which the kernel would follow.
            os.close(open_without_links(layer, os.O_DIRECTORY))
        # These names need no escaping, and userxattr works both inside and outside a user namespace.
        options = f"lowerdir={folder}/lower,upperdir={upper},workdir={work},index=off,userxattr"
        options += ",volatile" if is_volatile else ""
        _mount_filesystem("overlay", target, flags=MS_NOSUID | MS_NODEV, options=options)
    except OSError as error:
        raise _overlay_error(error) from error
    finally:
        os.close(lower)
        os.close(changes)


def _make_layer_folder() -> str:
    """Make a folder to attach the layers of one overlay in. It lies in a mount of its own, to be detached at once."""
    if not os.path.isdir(_LAYERS):
        os.mkdir(_LAYERS, 0o700)
        mount("tmpfs", _LAYERS, kind="tmpfs", flags=MS_NOSUID | MS_NODEV, options="mode=700,size=1m")
    folder = f"{_LAYERS}/{len(os.listdir(_LAYERS))}"
    os.mkdir(folder, 0o700)
    return folder


def _detach_layers() -> None:
    """Detach the layers of all overlays, which must not be visible. Each detachment would wait for the kernel."""
    if os.path.isdir(_LAYERS):
        unmount(_LAYERS)
        os.rmdir(_LAYERS)


def _attach_layer(tree: int, folder: str) -> None:
    os.mkdir(folder, 0o700)
    place = open_without_links(folder)
    try:
        attach_mount(tree, place)
    finally:
        os.close(place)


def _mount_filesystem(kind: str, target: str, *, flags: int, options: str) -> None:
    place = open_mount_point(target, is_folder=True)
    try:
        mount(kind, f"/proc/self/fd/{place}", kind=kind, flags=flags, options=options)
    finally:
        os.close(place)


def _make_link(target: str, text: str) -> None:
    folder, _, name = target.rpartition("/")
    place = open_mount_point(folder or "/", is_folder=True)
    try:
        os.symlink(text, name, dir_fd=place)
    finally:
        os.close(place)


def _replace_text(target: str, text: str) -> None:
    """Show a file with this text in place of the file at the target, which is made if it is missing."""
    descriptor = os.open(_TEXT, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, text.encode())
    os.close(descriptor)
    _attach(clone_path(_TEXT), target, kind="system")
    os.unlink(_TEXT)


def _write_file(target: str, text: str, *, mode: int) -> None:
    folder, _, name = target.rpartition("/")
    place = open_mount_point(folder, is_folder=True)
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=place)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    finally:
        os.close(place)


def _mask(target: str, *, null_device: int) -> None:
    """Hide a folder behind an empty one, and a file behind /dev/null. Skip a target that has disappeared."""
    try:
        place = open_without_links(target)
    except FileNotFoundError:
        os.close(null_device)
        return
    try:
        if _is_folder(place):
            options = "mode=755,size=64k"
            mount("tmpfs", f"/proc/self/fd/{place}", kind="tmpfs", flags=MS_NOSUID | MS_NODEV, options=options)
        else:
            attach_mount(null_device, place)
    finally:
        os.close(null_device)
        os.close(place)


def _make_mount_point(target: str, *, is_folder: bool) -> int:
    folder, _, name = target.rpartition("/")
    above = open_mount_point(folder or "/", is_folder=True)
    try:
        if is_folder:
            os.mkdir(name, 0o755, dir_fd=above)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=above))
        return os.open(name, _NO_FOLLOW | (os.O_DIRECTORY if is_folder else 0), dir_fd=above)
    except OSError as error:
        raise _mount_point_error(error, target) from error
    finally:
        os.close(above)


def _is_folder(descriptor: int) -> bool:
    # Spelled out, because importing `stat` for two constants costs time.
    return os.fstat(descriptor).st_mode & 0o170000 == 0o040000


def _mount_point_error(error: OSError, target: str) -> OSError:
    """Return the error in terms that the author of the program understands."""
    if error.errno == errno.ELOOP:
        return OSError(error.errno, "this folder, or one above it, is a symbolic link", target)
    return OSError(error.errno, error.strerror, target)


def _overlay_error(error: OSError) -> OverlayError:
    return OverlayError(error.errno, error.strerror, error.filename)
