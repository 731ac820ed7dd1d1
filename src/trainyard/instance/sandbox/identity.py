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


def open_mapping(owner: int, group: int, *, uid: int, gid: int) -> int:
    """Return a descriptor of a user namespace that maps the files of an owner to another user, if this user is root."""
    # A namespace needs a process in it until it is open.
    with system_calls.IdleProcess(NEW_USER) as pid:
        _write(f"/proc/{pid}/uid_map", f"{owner} {uid} 1")
        _write(f"/proc/{pid}/gid_map", f"{group} {gid} 1")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


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


def _last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap", "rb", buffering=0) as file:
        return int(file.read(16))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
