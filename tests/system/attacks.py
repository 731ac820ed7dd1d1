"""A hostile program: tries one attack after another and writes the outcome of each as a line of JSON.

A training job runs it against a real yard, and every attack must be refused. As a control, to prove that a successful
attack would be noticed, `python attacks.py control TARGETS` runs it outside a sandbox as the user of the yard, against
decoys; there, attacks whose `works_for` names that user must succeed. It needs only the standard library.

Each attack is a function that raises OSError if it is refused and returns if it succeeds. It runs in its own process,
so that it cannot affect the next.
"""

import ctypes
import errno
import fcntl
import json
import os
import platform
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT, USER = "root", "ordinary user"
PATIENCE_S = 20

# Other paths at which the attacks look for the files of the yard.
DETOURS: Mapping[str, str] = {
    "": "",
    " through its own root": "/proc/self/root",
    " through the root of init": "/proc/1/root",
    " through its working folder": "/proc/self/cwd/../../../../../../../..",
    " through a parent of its folder": "/opt/ml/../..",
    " where the old root lay": "/.host",
}
SECRETS = (
    "the administrator's keys",
    "the database",
    "the private key of the certificate",
    "the data file of a stored object",
    "the spool of a job",
    "a file of another job",
    "a file of another user's job",
    "a file in the home of a user",
)
_SYSTEM_CALLS = {
    "x86_64": {"add_key": 248, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "init_module": 175},
    "aarch64": {"add_key": 217, "keyctl": 219, "bpf": 280, "perf_event_open": 241, "init_module": 105},
}.get(platform.machine(), {})
_SYSTEM_CALLS |= {"pidfd_open": 434, "pidfd_getfd": 438, "fsopen": 430, "open_tree": 428, "mount_setattr": 442}

IS_CONTROL = "control" in sys.argv

libc = ctypes.CDLL(None, use_errno=True)


class Targets:
    """The targets of the attacks, from the targets.json of the test."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.secrets: Mapping[str, str] = values["secrets"]
        # Occurs in the names of secret files and nowhere else.
        self.word: str = values["word"]
        self.pids: list[int] = values["pids"]  # the first is a victim, the others are the yard's
        # Some hosts protect their init even from root.
        self.init = self.pids[0] if IS_CONTROL else 1
        self.socket: str = values["socket"]
        self.abstract: str = values["abstract"]
        self.memory_key: int = values["memory_key"]
        self.folder: str = values["folder"]  # where the program may write
        self.object: str = values["object"]  # a file of a channel


@dataclass(frozen=True)
class Attack:
    name: str
    run: Callable[[Targets], None]
    works_for: tuple[str, ...]  # outside a sandbox
    # The attack may succeed inside, but must not change what is stored.
    is_judged_outside: bool = False


ATTACKS: dict[str, Attack] = {}


def attack(
    name: str, *, works_for: tuple[str, ...] = (ROOT, USER), is_judged_outside: bool = False
) -> Callable[[Callable[[Targets], None]], Callable[[Targets], None]]:
    def add(run: Callable[[Targets], None]) -> Callable[[Targets], None]:
        assert name not in ATTACKS, name
        ATTACKS[name] = Attack(name, run, works_for, is_judged_outside)
        return run

    return add


def refuse(why: str) -> OSError:
    return OSError(errno.EPERM, why)


def check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)
    return result


def system_call(name: str, *arguments: Any) -> int:
    libc.syscall.restype = ctypes.c_long
    return check(libc.syscall(ctypes.c_long(_SYSTEM_CALLS[name]), *arguments), name)


# Files


def _add_readings() -> None:
    for secret in SECRETS:
        for words, way in DETOURS.items():
            works = (ROOT, USER) if words in ("", " through its own root") else ()
            attack(f"read {secret}{words}", works_for=works)(_reading(secret, way))


def _reading(secret: str, way: str) -> Callable[[Targets], None]:
    def read(targets: Targets) -> None:
        if not Path(way + targets.secrets[secret]).read_bytes():
            raise refuse("it is empty")

    return read


_add_readings()


@attack("find a secret anywhere that can be seen")
def _(targets: Targets) -> None:
    # Too large to walk.
    known = {"/proc", "/sys", "/usr", sys.prefix, sys.base_prefix}
    for parent, folders, files in os.walk(_top(targets)):
        folders[:] = [name for name in folders if str(Path(parent, name)) not in known]
        if any(targets.word in name for name in (*folders, *files)):
            return
    raise refuse("no name contains the word")


def _top(targets: Targets) -> str:
    """Return where to start walking; the control does not walk the whole machine."""
    return str(Path(targets.secrets["a file of another job"]).parents[1]) if IS_CONTROL else "/"


@attack("read the shadow file", works_for=(ROOT,))
def _(targets: Targets) -> None:
    Path("/etc/shadow").read_bytes()


@attack("open a secret by its handle", works_for=(ROOT,))
def _(targets: Targets) -> None:
    """A file handle needs no path; it can be obtained outside and is easy to guess."""
    handle = (ctypes.c_uint32 * 34)(128)
    mount_id = ctypes.c_int()
    path = targets.secrets["the administrator's keys"] if IS_CONTROL else "/opt/ml/code/train.py"
    check(libc.name_to_handle_at(-100, path.encode(), handle, ctypes.byref(mount_id), 0), "name_to_handle_at")
    folder = os.open(str(Path(path).parent), os.O_RDONLY)
    check(libc.open_by_handle_at(folder, handle, os.O_RDONLY), "open_by_handle_at")


@attack("read a descriptor of a process of the host")
def _(targets: Targets) -> None:
    for entry in Path(f"/proc/{targets.pids[0]}/fd").iterdir():
        entry.readlink()


@attack("read the descriptors of init")
def _(targets: Targets) -> None:
    assert list(Path(f"/proc/{targets.init}/fd").iterdir())


@attack("read the environment of init")
def _(targets: Targets) -> None:
    Path(f"/proc/{targets.init}/environ").read_bytes()


@attack("read the memory of init")
def _(targets: Targets) -> None:
    Path(f"/proc/{targets.init}/mem").open("rb").close()


def _add_writings() -> None:
    places = {place: place for place in ("/", "/etc", "/usr", "/usr/local/bin", "/opt", "/dev", "/sys", "/proc")}
    places |= {"its environment": sys.prefix, "its interpreter's folder": sys.base_prefix}
    for words, place in places.items():
        # A program may change its own view of its environment, but not the environment.
        is_view = place == sys.prefix

        @attack(
            f"make a file in {words}",
            works_for=(ROOT,) if words in ("/etc", "/usr", "/opt") else (),
            is_judged_outside=is_view,
        )
        def _(targets: Targets, place: str = place, is_view: bool = is_view) -> None:
            probe = Path(place, f"probe-{targets.word}")
            probe.touch()
            if IS_CONTROL or not is_view:
                probe.unlink()


_add_writings()


# Stored objects. A program may change its own copy of a file, but not the stored one.


@attack("write to an object", is_judged_outside=True)
def _(targets: Targets) -> None:
    with Path(targets.object).open("r+b") as file:
        file.write(b"forged")


@attack("truncate an object", is_judged_outside=True)
def _(targets: Targets) -> None:
    os.truncate(targets.object, 1)


@attack("make an object writable", is_judged_outside=True)
def _(targets: Targets) -> None:
    Path(targets.object).chmod(0o777)


@attack("take an object as its own", works_for=(ROOT,), is_judged_outside=True)
def _(targets: Targets) -> None:
    if IS_CONTROL:
        os.chown(targets.object, 1, 1)
    os.chown(targets.object, os.getuid(), -1)


@attack("write to an object through a second name", is_judged_outside=True)
def _(targets: Targets) -> None:
    second = f"{targets.object}.second"
    Path(second).hardlink_to(targets.object)
    Path(second).write_bytes(b"forged")


@attack("open an object for writing again", is_judged_outside=True)
def _(targets: Targets) -> None:
    descriptor = os.open(targets.object, os.O_RDONLY)
    os.write(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR), b"forged")


@attack("punch a hole into an object", is_judged_outside=True)
def _(targets: Targets) -> None:
    descriptor = os.open(targets.object, os.O_RDWR)
    check(libc.fallocate(descriptor, 3, ctypes.c_long(0), ctypes.c_long(1)), "fallocate")


@attack("set the times of an object", is_judged_outside=True)
def _(targets: Targets) -> None:
    os.utime(targets.object, (1, 1))


@attack("put another file in the place of an object", is_judged_outside=True)
def _(targets: Targets) -> None:
    forged = Path(f"{targets.object}.forged")
    forged.write_bytes(b"forged")
    forged.rename(targets.object)


# Processes of the host


def _add_signals() -> None:
    for number in (signal.SIGCONT, signal.SIGURG):

        @attack(f"send {number.name} to a process of the host")
        def _(targets: Targets, number: int = number) -> None:
            os.kill(targets.pids[0], number)


_add_signals()


@attack("find a process of the yard")
def _(targets: Targets) -> None:
    for pid in targets.pids:
        if Path(f"/proc/{pid}/cmdline").read_bytes() and pid != os.getpid():
            return
    raise refuse("there is none")


@attack("find any process that is not of the job")
def _(targets: Targets) -> None:
    own = {1, os.getpid(), os.getppid()}
    found = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()} - own
    found |= {pid for pid in range(2, 5000) if pid not in own and _exists(pid)}
    if not found:
        raise refuse("there is none")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@attack("hold a process of the host by a descriptor")
def _(targets: Targets) -> None:
    system_call("pidfd_open", ctypes.c_int(targets.pids[0]), ctypes.c_uint(0))


@attack("take a descriptor out of a process of the host")
def _(targets: Targets) -> None:
    held = system_call("pidfd_open", ctypes.c_int(targets.pids[0]), ctypes.c_uint(0))
    system_call("pidfd_getfd", ctypes.c_int(held), ctypes.c_int(0), ctypes.c_uint(0))


@attack("trace a process of the host")
def _(targets: Targets) -> None:
    pid = targets.pids[0]
    check(libc.ptrace(16, pid, None, None), "PTRACE_ATTACH")
    os.waitpid(pid, 0)
    libc.ptrace(17, pid, None, None)


@attack("trace init")
def _(targets: Targets) -> None:
    check(libc.ptrace(16, targets.init, None, None), "PTRACE_ATTACH")
    os.waitpid(targets.init, 0)
    libc.ptrace(17, targets.init, None, None)


@attack("read the memory of a process of the host")
def _(targets: Targets) -> None:
    Path(f"/proc/{targets.pids[0]}/mem").open("rb").close()


@attack("read the memory of a process of the host by a system call")
def _(targets: Targets) -> None:
    address = _first_mapping(targets.pids[0])
    buffer = ctypes.create_string_buffer(8)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    remote = (ctypes.c_size_t * 2)(address, 8)
    call = libc.process_vm_readv
    call.restype = ctypes.c_ssize_t
    check(call(targets.pids[0], local, 1, remote, 1, 0), "process_vm_readv")


def _first_mapping(pid: int) -> int:
    maps = Path(f"/proc/{pid}/maps").read_text()
    return int(maps.partition("-")[0], 16)


@attack("watch a process of the host by performance events", works_for=())
def _(targets: Targets) -> None:
    event = (ctypes.c_uint32 * 32)(1, 128)
    for pid in targets.pids:
        system_call("perf_event_open", event, ctypes.c_int(pid), ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_ulong(0))


@attack("slow a process of the host down")
def _(targets: Targets) -> None:
    os.setpriority(os.PRIO_PROCESS, targets.pids[0], 5)


@attack("limit a process of the host")
def _(targets: Targets) -> None:
    import resource

    resource.prlimit(targets.pids[0], resource.RLIMIT_CORE, (0, 0))


# Sockets, memory and keys of the host


@attack("reach a socket file of the host")
def _(targets: Targets) -> None:
    socket.socket(socket.AF_UNIX).connect(targets.socket)


@attack("reach an abstract socket of the host")
def _(targets: Targets) -> None:
    socket.socket(socket.AF_UNIX).connect(f"\0{targets.abstract}")


@attack("send a datagram to an abstract socket of the host")
def _(targets: Targets) -> None:
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", f"\0{targets.abstract}-datagrams")


@attack("attach shared memory of the host")
def _(targets: Targets) -> None:
    check(libc.shmget(targets.memory_key, 0, 0), "shmget")


@attack("open shared memory of the host by its name")
def _(targets: Targets) -> None:
    Path("/dev/shm", targets.word).read_bytes()


@attack("find a key in the keyring of the yard's user")
def _(targets: Targets) -> None:
    for keyring in (-3, -4, -5):  # of the session, the user and the user's session
        found = _search(keyring, targets.word)
        if found:
            return
    raise refuse("no keyring has it")


def _search(keyring: int, word: str) -> bool:
    try:
        system_call(
            "keyctl", ctypes.c_long(10), ctypes.c_long(keyring), b"user", f"secret-{word}".encode(), ctypes.c_long(0)
        )
    except OSError:
        return False
    return True


@attack("open a raw socket", works_for=(ROOT,))
def _(targets: Targets) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)


@attack("open a socket that hears all packets", works_for=(ROOT,))
def _(targets: Targets) -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)


# Mounts, namespaces and privileges


@attack("mount a file system", works_for=(ROOT,))
def _(targets: Targets) -> None:
    check(libc.mount(b"none", _fresh_folder(targets), b"tmpfs", ctypes.c_ulong(0), None), "mount")


@attack("bind a folder", works_for=(ROOT,))
def _(targets: Targets) -> None:
    check(libc.mount(b"/usr", _fresh_folder(targets), None, ctypes.c_ulong(0x1000), None), "bind")


def _fresh_folder(targets: Targets) -> bytes:
    """Return a new folder, so that the mounts of one attack do not affect the next."""
    return tempfile.mkdtemp(dir=targets.folder).encode()


@attack("make the system writable", works_for=())
def _(targets: Targets) -> None:
    for place in (b"/usr", b"/etc", b"/"):
        check(libc.mount(None, place, None, ctypes.c_ulong(0x20 | 0x1000), None), "remount")


@attack("make the system writable by another call", works_for=())
def _(targets: Targets) -> None:
    change = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
    arguments = (ctypes.c_long(-100), b"/usr", ctypes.c_ulong(0x8000), ctypes.byref(change), ctypes.c_size_t(32))
    system_call("mount_setattr", *arguments)


@attack("take a mount away", works_for=())
def _(targets: Targets) -> None:
    for place in (b"/opt/ml", b"/etc/hosts", b"/proc", b"/usr"):
        check(libc.umount2(place, 2), "umount2")


@attack("begin a mount by the new calls", works_for=(ROOT,))
def _(targets: Targets) -> None:
    system_call("fsopen", b"tmpfs", ctypes.c_uint(0))


@attack("copy a tree of mounts", works_for=(ROOT,))
def _(targets: Targets) -> None:
    system_call("open_tree", ctypes.c_int(-100), b"/", ctypes.c_uint(1 | 0x8000))


@attack("change the root folder", works_for=(ROOT,))
def _(targets: Targets) -> None:
    os.chroot(targets.folder)


@attack("rename the host", works_for=(ROOT,))
def _(targets: Targets) -> None:
    check(libc.sethostname(b"forged", 6), "sethostname")


def _add_namespaces() -> None:
    kinds = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "network": 0x40000000, "control group": 0x2000000}
    for kind, flag in kinds.items():

        @attack(f"make a {kind} namespace", works_for=(ROOT, USER) if kind == "user" else (ROOT,))
        def _(targets: Targets, flag: int = flag) -> None:
            check(libc.unshare(flag), "unshare")

    for kind in ("mnt", "pid", "user", "net"):

        @attack(f"enter the {kind} namespace of init", works_for=(ROOT,) if kind != "user" else ())
        def _(targets: Targets, kind: str = kind) -> None:
            check(libc.setns(os.open(f"/proc/{targets.init}/ns/{kind}", os.O_RDONLY), 0), "setns")


_add_namespaces()


@attack("become root", works_for=(ROOT,))
def _(targets: Targets) -> None:
    os.setresuid(0, 0, 0)


@attack("become root by a program with the setuid bit", works_for=(ROOT,))
def _(targets: Targets) -> None:
    """The test has put such a program where jobs see it, if it could; those of the system ask for a password."""
    for program in (f"/usr/local/bin/setuid-{targets.word}", "/usr/bin/id"):
        if Path(program).exists():
            done = subprocess.run([program, "-u"], capture_output=True, text=True, check=False)
            if done.stdout.strip() == "0":
                return
    raise refuse("none makes it root")


@attack("become root by su, sudo, mount or newuidmap", works_for=(ROOT,))
def _(targets: Targets) -> None:
    # Jobs have a sudo that runs its arguments as the user that they are.
    for command in (["su", "-c", "id -u"], ["sudo", "-n", "id", "-u"], ["pkexec", "id", "-u"]):
        if _run(command).stdout == b"0\n":
            return
    if _run(["mount", "-t", "tmpfs", "none", "/tmp"]).returncode == 0:
        return
    raise refuse("none makes it root")


def _run(command: list[str]) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, b"", b"")


@attack("give a program of its own the setuid bit of another", works_for=(ROOT,))
def _(targets: Targets) -> None:
    program = Path(targets.folder, "id")
    program.write_bytes(Path("/usr/bin/id").read_bytes())
    os.chown(program, 0, 0)
    program.chmod(0o4755)


@attack("gain by a setuid program of its own", works_for=())
def _(targets: Targets) -> None:
    program = Path(targets.folder, "own-id")
    program.write_bytes(Path("/usr/bin/id").read_bytes())
    program.chmod(0o6755)
    done = subprocess.run([program, "-u"], capture_output=True, text=True, check=True)
    if done.stdout.strip() == str(os.getuid()):
        raise refuse("it is still the same user")


@attack("leave its groups", works_for=(ROOT,))
def _(targets: Targets) -> None:
    os.setgroups([0])


@attack("write its own map of users", works_for=())
def _(targets: Targets) -> None:
    Path("/proc/self/uid_map").write_text("0 0 1")


@attack("protect itself from running out of memory", works_for=())
def _(targets: Targets) -> None:
    Path("/proc/self/oom_score_adj").write_text("-1000")


# The kernel


@attack("load a program into the kernel", works_for=())
def _(targets: Targets) -> None:
    attributes = ctypes.create_string_buffer(128)
    ctypes.memmove(attributes, (ctypes.c_uint32 * 4)(1, 4, 4, 1), 16)  # an array map
    system_call("bpf", ctypes.c_int(0), attributes, ctypes.c_uint(128))


@attack("load a module", works_for=())
def _(targets: Targets) -> None:
    system_call("init_module", b"", ctypes.c_ulong(0), b"")


@attack("make a device", works_for=(ROOT,))
def _(targets: Targets) -> None:
    os.mknod(f"{targets.folder}/memory", stat.S_IFCHR | 0o666, os.makedev(1, 1))


@attack("see devices that are not harmless", works_for=())
def _(targets: Targets) -> None:
    harmless = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd"}
    harmless |= {"stdin", "stdout", "stderr"}
    if {entry.name for entry in Path("/dev").iterdir()} <= harmless:
        raise refuse("there are none")


for _file in (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sysrq-trigger",
    "/sys/kernel/uevent_helper",
):

    @attack(f"open {_file} for writing", works_for=(ROOT,) if "sys/kernel/core" in _file or "sys/vm" in _file else ())
    def _(targets: Targets, file: str = _file) -> None:
        Path(file).open("r+").close()


def _control_groups() -> Iterator[Path]:
    top = Path("/sys/fs/cgroup")
    yield top
    if top.is_dir():
        yield from (entry for entry in top.iterdir() if entry.is_dir())


@attack("make a control group", works_for=(ROOT,))
def _(targets: Targets) -> None:
    for group in _control_groups():
        try:
            (group / targets.word).mkdir()
            (group / targets.word).rmdir()
        except OSError:
            continue
        return
    raise refuse("none takes one")


@attack("leave its control group", works_for=(ROOT,))
def _(targets: Targets) -> None:
    for group in _control_groups():
        try:
            (group / "cgroup.procs").open("r+").close()
        except OSError:
            continue
        return
    raise refuse("none can be opened")


@attack("name a program that control groups run", works_for=())
def _(targets: Targets) -> None:
    for group in _control_groups():
        try:
            (group / "release_agent").open("r+").close()
        except OSError:
            continue
        return
    raise refuse("none can be opened")


@attack("type into the terminal of the yard", works_for=())
def _(targets: Targets) -> None:
    terminal = os.open("/dev/tty", os.O_RDWR)
    fcntl.ioctl(terminal, 0x5412, b"x")  # TIOCSTI


def main() -> None:
    file = sys.argv[2] if IS_CONTROL else Path(__file__).with_name("targets.json")
    targets = Targets(json.loads(Path(file).read_text()))
    if not targets.folder:
        targets.folder = tempfile.mkdtemp()
    for each in ATTACKS.values():
        sys.stdout.write(json.dumps({"attack": each.name, "refused": outcome(each, targets)}) + "\n")
    sys.stdout.flush()


def outcome(each: Attack, targets: Targets) -> str:
    """Return why an attack was refused, or nothing if it succeeded."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(PATIENCE_S)
        try:
            each.run(targets)
        except OSError as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode()[:500])
        except BaseException as error:
            os.write(writer, f"broken: {error!r}".encode()[:500])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        why = told.read().decode(errors="replace")
    _, state = os.waitpid(pid, 0)
    return why or (f"broken: {state}" if state else "")


if __name__ == "__main__":
    main()
