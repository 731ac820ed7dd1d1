"""Brings the code of a yard to a node that has nothing of it.

This module is sent by value, so that it imports nothing but the standard library. The code goes to a folder named for
what is in it, once for all processes of the node; who runs from there holds the lock beside it as long as it lives, and
what nobody holds any more is removed.
"""

import contextlib
import fcntl
import importlib.metadata
import io
import os
import shutil
import stat
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

LIBRARIES = "trainyard_libraries"  # beside the package, as engines/local/code.py expects it

Fetch = Callable[[Any], bytes]


class Sent(NamedTuple):
    """The code as it is sent: references to archives, which are fetched only where they are needed."""

    digest: str
    python: str
    platform: str
    code: Any
    libraries: Mapping[str, Any]


class Refused(Exception):
    """This node cannot run what was sent; the message says why, and what to do."""


def use_code(codes: Path, sent: Sent, *, fetch: Fetch) -> None:
    """Let this process import the code; Refused or OSError when it cannot be had."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if own != sent.python:
        raise Refused(f"its Ray runs on Python {own}, and the yard on {sent.python}. Use the same on both.")
    code = codes / sent.digest
    codes.mkdir(mode=0o700, parents=True, exist_ok=True)
    _hold(code, sent, fetch)
    _remove_unused(codes, but=code)
    if str(code) not in sys.path:  # a process may greet and then be an actor's
        sys.path.insert(0, str(code))
        sys.path.append(str(code / LIBRARIES))


def own_folder(folder: Path) -> Path:
    """The folder, made if need be; Refused when others could change what runs from there.

    By default it lies where everybody may put something: another user may have left a folder of that name, or a link to
    a folder of ours that everybody may write, such as /tmp of root.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    link, found = folder.lstat(), folder.stat()
    if link.st_uid not in (0, os.getuid()) or found.st_uid != os.getuid():
        raise Refused(f"{folder} belongs to another user. Name another folder with the setting ray_folder.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Refused(
            f"{folder} can be written by other users. Take that right away (`chmod go-w {folder}`), or name another "
            "folder with the setting ray_folder."
        )
    return folder


def _hold(code: Path, sent: Sent, fetch: Fetch) -> None:
    """Unpack the code if nobody has, and hold it as long as this process lives."""
    descriptor = _lock(code)
    while True:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if code.exists():
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not code.exists():
            _unpack(code, sent, fetch)


def _lock(code: Path) -> int:
    return os.open(code.with_name(f"{code.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _unpack(code: Path, sent: Sent, fetch: Fetch) -> None:
    """Beside its place and then renamed, so that it is whole or absent, also after a power cut."""
    lacking = [name for name in sent.libraries if not _has(name)]
    if lacking and sysconfig.get_platform() != sent.platform:
        raise Refused(
            f"it lacks {', '.join(lacking)}, and those of the yard are for {sent.platform} and not for "
            f"{sysconfig.get_platform()}. Install them on the node."
        )
    staging = code.with_name(f".{code.name}.new")
    shutil.rmtree(staging, ignore_errors=True)
    _extract(fetch(sent.code), staging)
    for name in lacking:
        _extract(fetch(sent.libraries[name]), staging / LIBRARIES)
    os.sync()  # once for thousands of files
    staging.rename(code)


def _has(library: str) -> bool:
    try:
        importlib.metadata.distribution(library)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _extract(archive: bytes, target: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(target, filter="data")


def _remove_unused(codes: Path, *, but: Path) -> None:
    """The locks stay: who waits for one that is removed, and who makes it anew, would not see each other."""
    for lock in codes.glob("*.lock"):
        code = lock.with_suffix("")
        if code == but or not code.exists():
            continue
        descriptor = _lock(code)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(code, ignore_errors=True)
        os.close(descriptor)
