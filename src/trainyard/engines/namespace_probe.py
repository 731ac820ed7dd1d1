"""Tries one kind of isolation in a child process: `python namespace_probe.py NAME FOLDER` exits with 0 or says why not.

A process that entered a namespace cannot leave it, so a probe never runs inside the program that asks. It runs as a
file and imports only the standard library.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

NEW_MOUNT, NEW_USER, NEW_PID, NEW_NET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
PRIVATE_RECURSIVE = 0x4000 | 0x40000

_NOBODY = 65534
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_SIOCBRADDBR = 0x89A0

_libc = ctypes.CDLL(None, use_errno=True)


def main(name: str, folder: Path) -> None:
    try:
        PROBES[name](folder)
    except OSError as error:
        sys.exit(f"{error.strerror or error}")


def enter_user_namespace() -> None:
    """Become the root of a user namespace, as a job's launcher does."""
    uid, gid = os.getuid(), os.getgid()
    _unshare(NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def try_user(folder: Path) -> None:
    # A root yard gives each user a uid of its own, so that has to work.
    if os.getuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        _make_dumpable()
    enter_user_namespace()


def try_mount(folder: Path) -> None:
    try_user(folder)
    _enter_mount_namespace()
    _mount("tmpfs", folder, "tmpfs")
    (folder / "file").write_text("visible in this namespace only")


def try_pid(folder: Path) -> None:
    try_user(folder)
    _enter_mount_namespace()
    _unshare(NEW_PID)
    child = os.fork()
    if child == 0:
        _check_sees_only_itself(folder)
    _, status = os.waitpid(child, 0)
    if status:
        raise OSError(os.waitstatus_to_exitcode(status), os.strerror(os.waitstatus_to_exitcode(status)))


def try_net(_: Path) -> None:
    """Do what a job's launcher does. Root needs no user namespace for it."""
    if os.getuid() != 0:
        enter_user_namespace()
    _unshare(NEW_NET | NEW_MOUNT | NEW_PID)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def try_bridge(folder: Path) -> None:
    try_net(folder)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCBRADDBR, b"trial\0")
    _add_veth_pair()


def try_overlay(folder: Path) -> None:
    enter_user_namespace()
    _enter_mount_namespace()
    lower, upper, work, merged = (folder / name for name in ("lower", "upper", "work", "merged"))
    for path in (lower, upper, work, merged):
        path.mkdir()
    (lower / "file").write_text("below")
    _mount("overlay", merged, "overlay", options=f"lowerdir={lower},upperdir={upper},workdir={work}")
    (merged / "file").write_text("above")
    if (lower / "file").read_text() != "below":
        raise OSError("a write went through to the layer below")


def try_fuse(folder: Path) -> None:
    enter_user_namespace()
    _enter_mount_namespace()
    device = os.open("/dev/fuse", os.O_RDWR)
    _mount("trial", folder, "fuse", options=f"fd={device},rootmode=40000,user_id=0,group_id=0")


def _add_veth_pair() -> None:
    """Send the kernel an RTM_NEWLINK message with a single attribute, the link kind veth."""
    # A header of 4 bytes and a zero-terminated word of 5, padded.
    kind = struct.pack("=HH8s", 9, 1, b"veth")
    link = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + struct.pack("=HH", 4 + len(kind), 18) + kind
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(link), 16, 0x605, 1, 0) + link)
        code = -struct.unpack_from("=i", kernel.recv(4096), 16)[0]
    if code:
        raise OSError(code, f"veth pair: {os.strerror(code)}")


def _check_sees_only_itself(folder: Path) -> None:
    """Exit with 0 if this process is the first of its namespace and /proc shows no other; otherwise with an errno."""
    try:
        _mount("proc", folder, "proc")
        others = [path for path in folder.iterdir() if path.name.isdigit() and path.name != "1"]
        os._exit(0 if os.getpid() == 1 and not others else 1)
    except OSError as error:
        os._exit(error.errno or 1)


def _enter_mount_namespace() -> None:
    _unshare(NEW_MOUNT)
    _mount("none", Path("/"), None, flags=PRIVATE_RECURSIVE)


def _unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "unshare")


def _mount(source: str, target: Path, kind: str | None, *, flags: int = 0, options: str = "") -> None:
    result = _libc.mount(
        source.encode(), str(target).encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), options.encode()
    )
    _check(result, f"mount {kind}")


def _make_dumpable() -> None:
    """Own this process's /proc files again: the change of uid gave them to root, and the uid map is written there."""
    _check(_libc.prctl(4, 1, 0, 0, 0), "prctl")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


PROBES = {
    "user": try_user,
    "mount": try_mount,
    "pid": try_pid,
    "net": try_net,
    "bridge": try_bridge,
    "overlay": try_overlay,
    "fuse": try_fuse,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
