"""Installs the code of a yard on a node that has none of it.

This module is sent by value, so it imports only the standard library. The code goes to a folder named after its digest,
once for all processes of the node. A process that runs from there holds the lock next to it as long as it lives; code
that nobody holds is removed.
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

# Next to the package, where engines/local/code.py expects it.
LIBRARIES = "trainyard_libraries"

Fetch = Callable[[Any], bytes]


class SentCode(NamedTuple):
    """The code as it is sent: references to archives, which a node fetches only if it needs them."""

    digest: str
    python: str
    platform: str
    code: Any
    libraries: Mapping[str, Any]


class NodeRefused(Exception):
    """This node cannot run the code; the message says why and what to do."""


def use_code(codes: Path, sent: SentCode, *, fetch: Fetch) -> None:
    """Make the code importable in this process. Raises NodeRefused or OSError if that is impossible."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if own != sent.python:
        raise NodeRefused(f"its Ray runs on Python {own}, and the yard on {sent.python}. Use the same on both.")
    code = codes / sent.digest
    codes.mkdir(mode=0o700, parents=True, exist_ok=True)
    _hold(code, sent, fetch)
    _remove_unused(codes, but=code)
    # A process may call this twice, for the handshake and for an instance.
    if str(code) not in sys.path:
        sys.path.insert(0, str(code))
        sys.path.append(str(code / LIBRARIES))


def own_folder(folder: Path) -> Path:
    """Create the folder if need be. Raises NodeRefused if other users could change what runs from there.

    By default it is in a folder that everybody may write: another user may have left a folder of that name, or a link
    to a folder of ours that everybody may write, such as /tmp of root.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    link, found = folder.lstat(), folder.stat()
    if link.st_uid not in (0, os.getuid()) or found.st_uid != os.getuid():
        raise NodeRefused(f"{folder} belongs to another user. Choose another folder with the setting ray_folder.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NodeRefused(
            f"other users can write to {folder}. Remove that permission (`chmod go-w {folder}`), or choose another "
            "folder with the setting ray_folder."
        )
    return folder


def _hold(code: Path, sent: SentCode, fetch: Fetch) -> None:
    """Unpack the code if nobody has done so, and hold it as long as this process lives."""
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


def _unpack(code: Path, sent: SentCode, fetch: Fetch) -> None:
    """Unpack to a staging folder and rename that, so that the code is whole or absent, even after a power cut."""
    missing = [name for name in sent.libraries if not _has(name)]
    if missing and sysconfig.get_platform() != sent.platform:
        raise NodeRefused(
            f"it lacks {', '.join(missing)}, and the yard has them for {sent.platform}, not for "
            f"{sysconfig.get_platform()}. Install them on the node."
        )
    staging = code.with_name(f".{code.name}.new")
    shutil.rmtree(staging, ignore_errors=True)
    _extract(fetch(sent.code), staging)
    for name in missing:
        _extract(fetch(sent.libraries[name]), staging / LIBRARIES)
    # Once for thousands of files.
    os.sync()
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
    """Remove code that nobody holds. Its lock stays, or two processes might hold different files of that name."""
    for lock in codes.glob("*.lock"):
        code = lock.with_suffix("")
        if code == but or not code.exists():
            continue
        descriptor = _lock(code)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(code, ignore_errors=True)
        os.close(descriptor)
