"""Who a program is: a user of its own, in a user namespace of its own, with no privilege and no way to one."""

import os

from trainyard.instance.sandbox import system_calls
from trainyard.instance.sandbox.system_calls import NEW_USER


def enter_user_namespace(namespaces: int = 0) -> None:
    """Make a user namespace in which only this user exists, under the same number; and others that it will own."""
    uid, gid = os.geteuid(), os.getegid()
    system_calls.set_dumpable(1)  # or /proc/self belongs to root after a change of uid, and the maps cannot be written
    system_calls.unshare(NEW_USER | namespaces)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def open_mapping(uid: int, gid: int) -> int:
    """A descriptor of a user namespace that maps what belongs to this user, who is root, to another one."""
    asked, ready = os.pipe(), os.pipe()
    pid = os.fork()  # a namespace has to be somebody's until it is open
    if pid == 0:
        _stay_in_namespace(ready[1], asked)
    os.close(asked[0])
    os.close(ready[1])
    try:
        if os.read(ready[0], 1) != b"r":
            raise PermissionError(1, "not permitted", "a user namespace for the owner of files")
        _write(f"/proc/{pid}/uid_map", f"{os.geteuid()} {uid} 1")
        _write(f"/proc/{pid}/gid_map", f"{os.getegid()} {gid} 1")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready[0])
        os.close(asked[1])
        os.waitpid(pid, 0)


def become(uid: int, gid: int) -> None:
    """Give up root for good. The bounding set goes first, since only root can empty it."""
    drop_bounding_set()
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def forbid_user_namespaces() -> None:
    """Keep the program from being root of a namespace of its own, where it could mount.

    The limit belongs to the present user namespace, and only its owner could lift it again.
    """
    _write("/proc/sys/user/max_user_namespaces", "0")


def give_up_privileges() -> None:
    """Leave no capability in any set, and no way to gain one by starting a program."""
    system_calls.drop_capabilities()
    system_calls.forbid_new_privileges()


def drop_bounding_set() -> None:
    for number in range(_last_capability() + 1):
        system_calls.drop_bounding_capability(number)


def _stay_in_namespace(ready: int, asked: tuple[int, int]) -> None:
    """Be in a user namespace until the other end of `asked` is closed, and never return."""
    try:
        os.close(asked[1])
        system_calls.unshare(NEW_USER)
        os.write(ready, b"r")
        os.read(asked[0], 1)
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
