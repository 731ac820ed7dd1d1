"""Gives a program its identity: its own user in its own user namespace, without privileges or a way to gain any."""

import os

from trainyard.instance.sandbox import system_calls
from trainyard.instance.sandbox.system_calls import NEW_USER


def enter_user_namespace(namespaces: int = 0) -> None:
    """Make a user namespace in which only this user exists, with the same uid, and other namespaces that it owns."""
    uid, gid = os.geteuid(), os.getegid()
    # After a change of uid, /proc/self would otherwise belong to root, and the maps could not be written.
    system_calls.set_dumpable(1)
    system_calls.unshare(NEW_USER | namespaces)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def open_mapping(uid: int, gid: int) -> int:
    """Return a descriptor of a user namespace that maps files of this user, who is root, to another user."""
    release, ready = os.pipe(), os.pipe()
    # A namespace needs a process in it until it is open.
    pid = os.fork()
    if pid == 0:
        _stay_in_namespace(ready[1], release)
    os.close(release[0])
    os.close(ready[1])
    try:
        if os.read(ready[0], 1) != b"r":
            raise PermissionError(1, "not permitted", "a user namespace for the owner of files")
        _write(f"/proc/{pid}/uid_map", f"{os.geteuid()} {uid} 1")
        _write(f"/proc/{pid}/gid_map", f"{os.getegid()} {gid} 1")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready[0])
        os.close(release[1])
        os.waitpid(pid, 0)


def switch_user(uid: int, gid: int) -> None:
    """Give up root for good. The bounding set is emptied first, since only root can do that."""
    drop_bounding_set()
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def forbid_user_namespaces() -> None:
    """Prevent the program from becoming root in a new namespace, where it could mount.

    The limit belongs to the current user namespace, and only its owner could lift it again.
    """
    _write("/proc/sys/user/max_user_namespaces", "0")


def give_up_privileges() -> None:
    """Empty all capability sets and make sure that starting a program cannot restore any capability."""
    system_calls.drop_capabilities()
    system_calls.forbid_new_privileges()


def drop_bounding_set() -> None:
    for number in range(_last_capability() + 1):
        system_calls.drop_bounding_capability(number)


def _stay_in_namespace(ready: int, release: tuple[int, int]) -> None:
    """Stay in a user namespace until the other end of `release` is closed; never return."""
    try:
        os.close(release[1])
        system_calls.unshare(NEW_USER)
        os.write(ready, b"r")
        os.read(release[0], 1)
    finally:
        os._exit(0)


def _last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap", "rb", buffering=0) as file:
        return int(file.read(16))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
