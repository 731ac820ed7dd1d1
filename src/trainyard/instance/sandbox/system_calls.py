"""System calls that Python has no function for. Each raises OSError, whose file name says what was tried.

This module and all that the supervisor imports use only modules that cost almost nothing to import: no typing, enum,
dataclasses, pathlib or re, each of which would add several milliseconds to every job's start. A test enforces this.
"""

import ctypes
import os

from trainyard.instance.sandbox import signals

NEW_MOUNT, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID = 0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000
NEW_NET, NEW_CGROUP = 0x40000000, 0x02000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x40000

# Attributes of mount_setattr.
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC = 0x1, 0x2, 0x4, 0x8
_IDMAP = 0x100000

_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_OPENAT2 = 428, 429, 437
_SYS_MOUNT_SETATTR, _SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_RESTRICT = 442, 444, 446
_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
_AT_FDCWD, _AT_RECURSIVE, _AT_EMPTY_PATH, _MNT_DETACH = -100, 0x8000, 0x1000, 2
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH, _MOVE_MOUNT_T_EMPTY_PATH = 1, 4, 0x40
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x2, 0x4, 0x8
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8
_CAPABILITY_VERSION_3 = 0x20080522
_LANDLOCK_VERSION = 1
_LANDLOCK_SCOPES_SINCE = 6
_LANDLOCK_ABSTRACT_SOCKETS, _LANDLOCK_SIGNALS = 1, 2
_KEYCTL_JOIN_SESSION_KEYRING = 1
_CLONE_VM, _IDLE_STACK_BYTES, _IDLE_S = 0x100, 64 << 10, 60

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(namespaces: int) -> None:
    _check(_libc.unshare(namespaces), "unshare")


def enter_namespace(descriptor: int) -> None:
    _check(_libc.setns(descriptor, 0), "setns")


def mount(source: str, target: str, *, kind: str = "", flags: int = 0, options: str = "") -> None:
    data = options.encode() if options else None
    done = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data)
    _check(done, f"mount {kind or source} on {target}")


class IdleProcess:
    """A process in new namespaces that does nothing until the `with` block ends, or for a minute.

    It shares the memory of this process, and runs a function of libc on a stack of its own: forking a warm worker would
    copy the page tables of its framework, which takes up to a tenth of a second.
    """

    def __init__(self, namespaces: int) -> None:
        self._stack = ctypes.create_string_buffer(_IDLE_STACK_BYTES)
        top = (ctypes.addressof(self._stack) + _IDLE_STACK_BYTES) & ~15
        sleep = ctypes.cast(_libc.sleep, ctypes.c_void_p)
        flags = _CLONE_VM | namespaces | signals.CHILD
        self._pid: int = _libc.clone(sleep, ctypes.c_void_p(top), flags, ctypes.c_void_p(_IDLE_S))
        _check(min(self._pid, 0), "start a process in other namespaces")

    def __enter__(self) -> int:
        return self._pid

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signals.KILL)
        os.waitpid(self._pid, 0)


def restrict_mount(target: str, attributes: int, *, is_recursive: bool = True) -> None:
    """Add attributes to a mount and to all mounts below it. Linux 5.12 and later does this in one call."""
    _set_attributes(_AT_FDCWD, target, attributes, flags=_AT_RECURSIVE if is_recursive else 0)


def restrict_tree(tree: int, attributes: int, *, is_recursive: bool = True) -> None:
    """Like `restrict_mount`, for a mount given by its descriptor."""
    _set_attributes(tree, "", attributes, flags=_AT_EMPTY_PATH | (_AT_RECURSIVE if is_recursive else 0))


def map_owner(tree: int, namespace: int) -> None:
    """Show the files of a detached mount with the owner that a user namespace maps theirs to.

    Requires Linux 5.12 and a file system that supports idmapped mounts; others refuse.
    """
    _set_attributes(tree, "", _IDMAP, namespace=namespace, flags=_AT_EMPTY_PATH)


def clone_mount(descriptor: int, *, is_recursive: bool = True) -> int:
    """Return a descriptor of a clone of the mount at `descriptor`; the clone is not attached anywhere yet."""
    return _syscall(
        "clone a mount",
        _SYS_OPEN_TREE,
        ctypes.c_long(descriptor),
        ctypes.c_char_p(b""),
        ctypes.c_ulong(_OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | (_AT_RECURSIVE if is_recursive else 0)),
    )


def attach_mount(tree: int, place: int) -> None:
    """Attach a mount that `clone_mount` made to the file or folder of another descriptor."""
    _syscall(
        "attach a mount",
        _SYS_MOVE_MOUNT,
        ctypes.c_long(tree),
        ctypes.c_char_p(b""),
        ctypes.c_long(place),
        ctypes.c_char_p(b""),
        ctypes.c_ulong(_MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH),
    )


def open_without_links(path: str, flags: int = 0) -> int:
    """Open an absolute path; ELOOP if there is a symbolic link in it."""
    return _open_at(_AT_FDCWD, path, flags=flags, resolve=_RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS, what=path)


def open_beneath(folder: str, path: str) -> int:
    """Open a path below a folder, and refuse links that lead out of the folder."""
    top = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
        return _open_at(top, path, flags=0, resolve=resolve, what=f"{path} below {folder}")
    finally:
        os.close(top)


def pivot_root(new_root: str, put_old: str) -> None:
    _check(_libc.pivot_root(os.fsencode(new_root), os.fsencode(put_old)), f"pivot_root to {new_root}")


def unmount(target: str) -> None:
    """Detach a mount and all below it; processes that still use it keep it alive, but invisible."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH), f"unmount {target}")


def set_host_name(name: str) -> None:
    data = name.encode()
    _check(_libc.sethostname(data, ctypes.c_size_t(len(data))), "sethostname")


def die_with_parent(signal: int) -> None:
    """Ask the kernel to send `signal` when the parent dies. A change of uid cancels this."""
    _prctl("PR_SET_PDEATHSIG", _PR_SET_PDEATHSIG, signal)


def set_dumpable(value: int) -> None:
    """With 0, other processes of the same user can neither trace this one nor read its memory."""
    _prctl("PR_SET_DUMPABLE", _PR_SET_DUMPABLE, value)


def adopt_orphans() -> None:
    _prctl("PR_SET_CHILD_SUBREAPER", _PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    _prctl("PR_SET_NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_calls(instructions: bytes) -> None:
    """Install a seccomp filter, a BPF program, for every system call of this process and of all it starts."""
    program = _SockFprog(len(instructions) // _INSTRUCTION_BYTES, instructions)
    zero = ctypes.c_ulong(0)
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    _check(_libc.prctl(_PR_SET_SECCOMP, mode, ctypes.byref(program), zero, zero), "PR_SET_SECCOMP")


def drop_bounding_capability(number: int) -> None:
    _prctl("PR_CAPBSET_DROP", _PR_CAPBSET_DROP, number)


def drop_capabilities() -> None:
    """Empty the ambient, effective, permitted and inheritable sets."""
    _prctl("PR_CAP_AMBIENT", _PR_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())), "capset")


def leave_session_keyring() -> None:
    """Replace the session keyring, which comes from the yard's login session, by an empty one."""
    number = _SYS_KEYCTL.get(os.uname().machine)
    if number is not None:
        _syscall("join a new session keyring", number, ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), ctypes.c_void_p())


def has_landlock_scopes() -> bool:
    version = _libc.syscall(
        ctypes.c_long(_SYS_LANDLOCK_CREATE), ctypes.c_void_p(), ctypes.c_size_t(0), ctypes.c_ulong(_LANDLOCK_VERSION)
    )
    return int(version) >= _LANDLOCK_SCOPES_SINCE


def scope_sockets_and_signals() -> None:
    """Cut this process and its children off from all other processes and from abstract sockets not their own."""
    attr = (ctypes.c_uint64 * 3)(0, 0, _LANDLOCK_ABSTRACT_SOCKETS | _LANDLOCK_SIGNALS)
    size = ctypes.c_size_t(ctypes.sizeof(attr))
    ruleset = _syscall("landlock ruleset", _SYS_LANDLOCK_CREATE, ctypes.byref(attr), size, ctypes.c_ulong(0))
    try:
        _syscall("landlock", _SYS_LANDLOCK_RESTRICT, ctypes.c_long(ruleset), ctypes.c_ulong(0))
    finally:
        os.close(ruleset)


def _open_at(folder: int, path: str, *, flags: int, resolve: int, what: str) -> int:
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC | flags, 0, resolve)
    return _syscall(
        what,
        _SYS_OPENAT2,
        ctypes.c_long(folder),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )


def _set_attributes(folder: int, path: str, attributes: int, *, flags: int, namespace: int = 0) -> None:
    attr = (ctypes.c_uint64 * 4)(attributes, 0, 0, namespace)
    _syscall(
        f"restrict the mount on {path}" if path else "restrict a mount",
        _SYS_MOUNT_SETATTR,
        ctypes.c_long(folder),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_ulong(flags),
        ctypes.byref(attr),
        ctypes.c_size_t(ctypes.sizeof(attr)),
    )


def _prctl(what: str, option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), what)


def _syscall(what: str, number: int, *arguments: object) -> int:
    _libc.syscall.restype = ctypes.c_long
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    _check(result, what)
    return result


def _check(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
