"""Builds what a program sees: a new root, filled step by step from the old one, which is then let go.

The new root is entered before it is filled. So a symbolic link met on the way to a target leads to a place inside,
never to one of the host. Nothing is made in the system's folders either: they are read-only as soon as they are bound.
"""

import os

from trainyard.instance.sandbox import identity
from trainyard.instance.sandbox.orders import Step
from trainyard.instance.sandbox.system_calls import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    NO_DEVICES,
    NO_EXEC,
    NO_SUID,
    READ_ONLY,
    bind_as_owner,
    mount,
    open_beneath,
    pivot_root,
    restrict_mount,
    unmount,
)

HOST = "/.host"  # where the old root lies while the new one is filled
LAYERS = ("upper", "work")  # in the folder that takes the changes of one that is copy-on-write

_LOWER, _CHANGES = "/.lower", "/.changes"  # where layers lie while they are put together

_BINDS = {
    "read_only": READ_ONLY | NO_SUID | NO_DEVICES,
    "system": READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC,
    "writable": NO_SUID | NO_DEVICES,
    "device": NO_SUID | NO_EXEC,
}


class CannotLayer(OSError):
    """The kernel, or a file system, does not do what copy-on-write needs."""


def enter_new_root(staging: str) -> None:
    """Stand in an empty root of our own, with the old one under HOST and a /proc that knows only this pid namespace."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", staging, kind="tmpfs", flags=MS_NOSUID | MS_NODEV, options="mode=755,size=4m")
    os.mkdir(staging + HOST, 0o755)
    pivot_root(staging, staging + HOST)
    os.chdir("/")
    os.mkdir("/proc", 0o755)
    mount("proc", "/proc", kind="proc", flags=MS_NOSUID | MS_NODEV | MS_NOEXEC)
    restrict_mount("/proc", NO_SUID)  # fails at once where the kernel is too old to restrict whole trees


def fill_root(steps: list[Step], *, uid: int, gid: int) -> None:
    """Carry out the steps that view.py planned, in their order, for a program of that user."""
    mapping = -1
    try:
        for step in steps:
            if step[0] == "layers" and mapping < 0 and os.geteuid() == 0:
                mapping = _mapping(uid, gid)
            _carry_out(step, mapping)
    finally:
        if mapping >= 0:
            os.close(mapping)


def leave_old_root() -> None:
    """Nothing of the host stays reachable but what was bound."""
    unmount(HOST)
    os.rmdir(HOST)
    seal("/")


def bind(kind: str, source: str, target: str) -> None:
    """Show something of the host. What was to be in its own place and is gone since that was planned is left out."""
    place = HOST + source
    make_target(target, is_folder=os.path.isdir(place))
    try:
        mount(place, target, flags=MS_BIND | MS_REC)
    except FileNotFoundError:
        if source != target or os.path.lexists(place):
            raise
        return
    restrict_mount(target, _BINDS[kind])


def bind_beneath(kind: str, folder: str, path: str, target: str) -> None:
    """Bind what lies at a path below a folder, whatever others do to the path meanwhile."""
    descriptor = open_beneath(HOST + folder, path)
    try:
        make_target(target, is_folder=True)
        mount(f"/proc/self/fd/{descriptor}", target, flags=MS_BIND | MS_REC)
    finally:
        os.close(descriptor)
    restrict_mount(target, _BINDS[kind])


def lay_over(source: str, changes: str, target: str, mapping: int) -> None:
    """Show a folder copy-on-write, with its files owned as the user namespace of the descriptor maps them, if any."""
    make_target(target, is_folder=True)
    for folder in (_LOWER, _CHANGES):
        os.mkdir(folder, 0o700)
    try:
        if mapping >= 0:
            bind_as_owner(HOST + source, _LOWER, mapping)
        else:
            mount(HOST + source, _LOWER, flags=MS_BIND)
        mount(HOST + changes, _CHANGES, flags=MS_BIND)
        upper, work = (f"{_CHANGES}/{name}" for name in LAYERS)
        # The constant names need no escaping; and userxattr serves within a user namespace as well as outside.
        options = f"lowerdir={_LOWER},upperdir={upper},workdir={work},index=off,userxattr"
        mount("overlay", target, kind="overlay", flags=MS_NOSUID | MS_NODEV, options=options)
    except OSError as error:
        raise CannotLayer(error.errno, error.strerror, error.filename) from error
    for folder in (_LOWER, _CHANGES):
        unmount(folder)
        os.rmdir(folder)


def make_link(target: str, text: str) -> None:
    make_target(os.path.dirname(target), is_folder=True)
    os.symlink(text, target)


def replace_text(target: str, text: str) -> None:
    """Lay a file with this text over one that exists, or make it."""
    make_target(target, is_folder=False)
    staged = f"{HOST}.text"
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, text.encode())
    os.close(descriptor)
    mount(staged, target, flags=MS_BIND)
    restrict_mount(target, _BINDS["system"])
    os.unlink(staged)


def make_tmpfs(target: str, options: str) -> None:
    make_target(target, is_folder=True)
    mount("tmpfs", target, kind="tmpfs", flags=MS_NOSUID | MS_NODEV, options=options)


def make_terminals(target: str) -> None:
    make_target(target, is_folder=True)
    mount("devpts", target, kind="devpts", flags=MS_NOSUID | MS_NOEXEC, options="newinstance,ptmxmode=0666,mode=600")


def mask(target: str) -> None:
    """Hide a folder behind an empty one, a file behind nothing at all; what has gone since it was seen need not be."""
    if not os.path.lexists(target):
        return
    if os.path.isdir(target):
        mount("tmpfs", target, kind="tmpfs", flags=MS_NOSUID | MS_NODEV, options="mode=755,size=64k")
        return
    mount(f"{HOST}/dev/null", target, flags=MS_BIND)


def seal(target: str) -> None:
    """Make a mount of ours read-only now that its folders are made."""
    restrict_mount(target, READ_ONLY, is_recursive=False)


def make_target(target: str, *, is_folder: bool) -> None:
    """Make the folder or empty file that something is mounted on, if there is none."""
    if os.path.exists(target):
        return
    make_target(os.path.dirname(target), is_folder=True)
    if is_folder:
        os.mkdir(target, 0o755)
        return
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def _mapping(uid: int, gid: int) -> int:
    try:
        return identity.open_mapping(uid, gid)
    except OSError as error:
        raise CannotLayer(error.errno, error.strerror, error.filename) from error


def _carry_out(step: Step, mapping: int) -> None:
    match step:
        case ("layers", source, changes, target):
            lay_over(source, changes, target, mapping)
        case ("beneath", kind, folder, path, target):
            bind_beneath(kind, folder, path, target)
        case ("bind", kind, source, target):
            bind(kind, source, target)
        case ("folder", target):
            make_target(target, is_folder=True)
        case ("link", target, text):
            make_link(target, text)
        case ("text", target, text):
            replace_text(target, text)
        case ("tmpfs", target, options):
            make_tmpfs(target, options)
        case ("terminals", target):
            make_terminals(target)
        case ("mask", target):
            mask(target)
        case ("seal", target):
            seal(target)
        case _:
            raise AssertionError(f"the view has no step {step[0]}")
