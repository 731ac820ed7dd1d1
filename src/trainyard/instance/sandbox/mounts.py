"""Builds what a program sees: a new root, filled with copies of mounts of the host, none of which is left but these.

A job's own folders may hold whatever its earlier programs left there, so the order decides what is safe:

1. Every source is opened on the host, by a path in which no symbolic link is met, and cloned as a mount of its own.
2. The new root is entered and the old one is detached. From here on no path leads to the host.
3. The clones are attached. A place in a job's folder is reached without following a link, and is made if it is missing.
"""

import errno
import os

from trainyard.instance.sandbox import identity
from trainyard.instance.sandbox.orders import Step
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

LAYERS = ("upper", "work")  # in the folder that takes the changes of one that is copy-on-write

# Names at the top of the new root while it is built. Nobody but us can write there.
_LOWER, _CHANGES, _TEXT = "/.lower", "/.changes", "/.text"

_ATTRIBUTES = {
    "read_only": READ_ONLY | NO_SUID | NO_DEVICES,
    "system": READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC,
    "writable": NO_SUID | NO_DEVICES,
    "device": NO_SUID | NO_EXEC,
}
_NO_FOLLOW = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class CannotLayer(OSError):
    """The kernel, or a file system, does not do what copy-on-write needs."""


def open_sources(steps: list[Step]) -> list[tuple[int, ...]]:
    """For each step the clones that it attaches: all that is shown of the host.

    A folder that was to be shown in its own place and is gone since that was planned has none.
    """
    return [_open_sources(step) for step in steps]


def isolate_mounts(staging: str) -> None:
    """Keep what is mounted here from the rest of the machine; OSError where this kernel cannot clone mounts."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    os.close(clone_of(staging))


def enter_new_root(staging: str) -> None:
    """Stand in an empty root of our own, with nothing of the host, and a /proc that knows only this pid namespace."""
    mount("tmpfs", staging, kind="tmpfs", flags=MS_NOSUID | MS_NODEV, options="mode=755,size=4m")
    os.chdir(staging)
    # The kernel lets an ordinary user mount a /proc only as long as the host's is still in sight.
    os.mkdir("proc", 0o755)
    mount("proc", "proc", kind="proc", flags=MS_NOSUID | MS_NODEV | MS_NOEXEC)
    restrict_mount("proc", NO_SUID)  # fails at once where the kernel is too old to restrict whole trees
    pivot_root(".", ".")  # the old root then lies over the new one
    unmount(".")
    os.chdir("/")


def fill_root(steps: list[Step], sources: list[tuple[int, ...]], *, uid: int, gid: int) -> None:
    """Carry out the steps that view.py planned, in their order, for a program of that user. The clones are closed."""
    mapping = -1
    try:
        for step, clones in zip(steps, sources, strict=True):
            if step[0] == "layers" and mapping < 0 and os.geteuid() == 0:
                mapping = _mapping(uid, gid)
            _carry_out(step, clones, mapping)
    finally:
        if mapping >= 0:
            os.close(mapping)
    seal("/")


def clone_of(path: str, *, is_recursive: bool = True) -> int:
    """A copy of what is mounted at a path of the host, and below it, to be attached elsewhere."""
    source = open_without_links(path)
    try:
        return clone_mount(source, is_recursive=is_recursive)
    finally:
        os.close(source)


def open_place(target: str, *, is_folder: bool) -> int:
    """A descriptor of the folder or file that something is mounted on, made empty if there is none.

    A symbolic link on the way is refused, for it may be one that a program left.
    """
    flags = os.O_DIRECTORY if is_folder else 0
    try:
        return open_without_links(target, flags)
    except FileNotFoundError:
        return _make_place(target, is_folder=is_folder)
    except OSError as error:
        raise _in_the_way(error, target) from error


def seal(target: str) -> None:
    """Make a mount of ours read-only now that its folders are made."""
    place = open_without_links(target)
    try:
        restrict_tree(place, READ_ONLY, is_recursive=False)
    finally:
        os.close(place)


def _open_sources(step: Step) -> tuple[int, ...]:
    match step:
        case ("bind", _, source, target):
            try:
                return (clone_of(source),)
            except FileNotFoundError:
                if source != target:
                    raise
                return ()
        case ("layers", source, changes, _):
            try:
                return clone_of(source, is_recursive=False), clone_of(changes, is_recursive=False)
            except OSError as error:
                raise _cannot_layer(error) from error
        case ("mask", _):
            return (clone_of("/dev/null"),)
    return ()


def _carry_out(step: Step, clones: tuple[int, ...], mapping: int) -> None:
    match step:
        case ("layers", _, _, target):
            lower, changes = clones
            _lay_over(lower, changes, target, mapping)
        case ("bind", kind, _, target):
            for clone in clones:
                _attach(clone, target, kind=kind)
        case ("folder", target):
            os.close(open_place(target, is_folder=True))
        case ("link", target, text):
            _make_link(target, text)
        case ("text", target, text):
            _replace_text(target, text)
        case ("tmpfs", target, options):
            _mount_new("tmpfs", target, flags=MS_NOSUID | MS_NODEV, options=options)
        case ("terminals", target):
            _mount_new("devpts", target, flags=MS_NOSUID | MS_NOEXEC, options="newinstance,ptmxmode=0666,mode=600")
        case ("mask", target):
            _mask(target, nothing=clones[0])
        case ("seal", target):
            seal(target)
        case _:
            raise AssertionError(f"the view has no step {step[0]}")


def _attach(tree: int, target: str, *, kind: str) -> None:
    """Show what was cloned, and close the clone."""
    try:
        restrict_tree(tree, _ATTRIBUTES[kind])
        place = open_place(target, is_folder=_is_folder(tree))
        try:
            attach_mount(tree, place)
        except OSError as error:
            raise _in_the_way(error, target) from error
        finally:
            os.close(place)
    finally:
        os.close(tree)


def _lay_over(lower: int, changes: int, target: str, mapping: int) -> None:
    """Show a folder copy-on-write, with its files owned as the user namespace of the descriptor maps them, if any."""
    os.close(open_place(target, is_folder=True))  # whatever is in its way is no fault of the layers
    try:
        if mapping >= 0:
            map_owner(lower, mapping)
        _attach_layer(lower, _LOWER)
        _attach_layer(changes, _CHANGES)
        upper, work = (f"{_CHANGES}/{name}" for name in LAYERS)
        for layer in (upper, work):
            os.close(open_without_links(layer, os.O_DIRECTORY))  # the kernel would follow a link
        # The constant names need no escaping; and userxattr serves within a user namespace as well as outside.
        options = f"lowerdir={_LOWER},upperdir={upper},workdir={work},index=off,userxattr"
        _mount_new("overlay", target, flags=MS_NOSUID | MS_NODEV, options=options)
    except OSError as error:
        raise _cannot_layer(error) from error
    finally:
        os.close(lower)
        os.close(changes)
    for folder in (_LOWER, _CHANGES):
        unmount(folder)
        os.rmdir(folder)


def _attach_layer(tree: int, folder: str) -> None:
    os.mkdir(folder, 0o700)
    place = open_without_links(folder)
    try:
        attach_mount(tree, place)
    finally:
        os.close(place)


def _mount_new(kind: str, target: str, *, flags: int, options: str) -> None:
    place = open_place(target, is_folder=True)
    try:
        mount(kind, f"/proc/self/fd/{place}", kind=kind, flags=flags, options=options)
    finally:
        os.close(place)


def _make_link(target: str, text: str) -> None:
    folder, _, name = target.rpartition("/")
    place = open_place(folder or "/", is_folder=True)
    try:
        os.symlink(text, name, dir_fd=place)
    finally:
        os.close(place)


def _replace_text(target: str, text: str) -> None:
    """Lay a file with this text over one that exists, or make it."""
    descriptor = os.open(_TEXT, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, text.encode())
    os.close(descriptor)
    _attach(clone_of(_TEXT), target, kind="system")
    os.unlink(_TEXT)


def _mask(target: str, *, nothing: int) -> None:
    """Hide a folder behind an empty one, a file behind nothing at all; what has gone since it was seen need not be."""
    try:
        place = open_without_links(target)
    except FileNotFoundError:
        os.close(nothing)
        return
    try:
        if _is_folder(place):
            options = "mode=755,size=64k"
            mount("tmpfs", f"/proc/self/fd/{place}", kind="tmpfs", flags=MS_NOSUID | MS_NODEV, options=options)
        else:
            attach_mount(nothing, place)
    finally:
        os.close(nothing)
        os.close(place)


def _make_place(target: str, *, is_folder: bool) -> int:
    folder, _, name = target.rpartition("/")
    above = open_place(folder or "/", is_folder=True)
    try:
        if is_folder:
            os.mkdir(name, 0o755, dir_fd=above)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=above))
        return os.open(name, _NO_FOLLOW | (os.O_DIRECTORY if is_folder else 0), dir_fd=above)
    except OSError as error:
        raise _in_the_way(error, target) from error
    finally:
        os.close(above)


def _is_folder(descriptor: int) -> bool:
    # The stat module would have to be imported for two of its constants.
    return os.fstat(descriptor).st_mode & 0o170000 == 0o040000


def _in_the_way(error: OSError, target: str) -> OSError:
    """The error as one who wrote the program understands it."""
    if error.errno == errno.ELOOP:
        return OSError(error.errno, "a symbolic link is in the place of this folder or of one above it", target)
    return OSError(error.errno, error.strerror, target)


def _cannot_layer(error: OSError) -> CannotLayer:
    return CannotLayer(error.errno, error.strerror, error.filename)


def _mapping(uid: int, gid: int) -> int:
    try:
        return identity.open_mapping(uid, gid)
    except OSError as error:
        raise _cannot_layer(error) from error
