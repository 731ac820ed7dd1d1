"""The messages of FUSE, as far as files that nobody writes need them: `linux/fuse.h`, version 7.31."""

import stat
import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

MAJOR, MINOR = 7, 31
ROOT_NODE = 1
REQUEST_BYTES = 1 << 20  # the most that one answer carries, and that the kernel asks for at once
AHEAD_BYTES = 2 << 20
BUFFER_BYTES = REQUEST_BYTES + 4096

_FOREVER_S = 365 * 86400  # nothing changes while it is mounted
_BLOCK = 4096

_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_INIT_IN = struct.Struct("<IIII")
_INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
_READ = struct.Struct("<QQI")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_ATTRIBUTES_OUT = struct.Struct("<QII")
_NAME = struct.Struct("<QQII")
_SPACE = struct.Struct("<QQQQQIIII24x")


class Code(IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    READ = 15
    STATFS = 17
    INIT = 26
    READDIR = 28
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    READDIRPLUS = 44


class Feature(IntFlag):
    """What kernel and server agree on when they meet."""

    ASYNC_READ = 1 << 0
    READDIRPLUS = 1 << 13
    READDIRPLUS_AUTO = 1 << 14
    NO_OPEN = 1 << 17  # files are opened without asking, after the first time was answered ENOSYS
    PARALLEL_FOLDERS = 1 << 18
    MAX_PAGES = 1 << 22
    NO_OPEN_FOLDER = 1 << 24


FEATURES = (
    Feature.ASYNC_READ
    | Feature.READDIRPLUS
    | Feature.READDIRPLUS_AUTO
    | Feature.NO_OPEN
    | Feature.PARALLEL_FOLDERS
    | Feature.MAX_PAGES
    | Feature.NO_OPEN_FOLDER
)


class Request(NamedTuple):
    """What the kernel asks; `code` is one of `Code`, or another that this does not know."""

    code: int
    unique: int
    node: int
    body: bytes


class Span(NamedTuple):
    """A piece of a file or of the list of a folder."""

    offset: int
    size: int


class Node(NamedTuple):
    """What the kernel knows of a file or folder."""

    number: int
    size: int
    is_folder: bool


class Look(NamedTuple):
    """What is the same for all files of a mount."""

    uid: int
    gid: int
    seconds: int  # since 1970, of all times that files have


def read_request(message: bytes) -> Request:
    _, code, unique, node, *_ = _IN.unpack_from(message)
    return Request(code, unique, node, message[_IN.size :])


def read_features(body: bytes) -> int:
    """What the kernel can do."""
    return int(_INIT_IN.unpack_from(body)[3])


def read_span(body: bytes) -> Span:
    _, offset, size = _READ.unpack_from(body)
    return Span(offset, size)


def read_interrupted(body: bytes) -> int:
    """Which request nobody waits for any more."""
    return int.from_bytes(body[:8], "little")


def head(unique: int, size: int, *, error: int = 0) -> bytes:
    """What every answer begins with, before `size` bytes."""
    return _OUT.pack(_OUT.size + size, -error, unique)


def welcome(features: int) -> bytes:
    """The answer to INIT. The kernel reads ahead as far as this, or as it was told when it was mounted, if less."""
    return _INIT_OUT.pack(
        MAJOR, MINOR, AHEAD_BYTES, features & FEATURES, 64, 48, REQUEST_BYTES, 1, REQUEST_BYTES // _BLOCK, 0, 0
    )


def attributes(node: Node, look: Look) -> bytes:
    """The answer to GETATTR."""
    return _ATTRIBUTES_OUT.pack(_FOREVER_S, 0, 0) + _attributes(node, look)


def entry(node: Node, look: Look) -> bytes:
    """The answer to LOOKUP."""
    return _ENTRY.pack(node.number, 0, _FOREVER_S, _FOREVER_S, 0, 0) + _attributes(node, look)


def no_entry() -> bytes:
    """The answer to LOOKUP that there is no such name, which the kernel may remember."""
    return _ENTRY.pack(0, 0, _FOREVER_S, 0, 0, 0) + bytes(_ATTRIBUTES.size)


def listed(name: bytes, node: Node, *, next_offset: int, look: Look | None) -> bytes:
    """One name of a folder, with all that is known of it where there is a look."""
    kind = stat.S_IFDIR if node.is_folder else stat.S_IFREG
    told = _NAME.pack(node.number, next_offset, len(name), kind >> 12) + name
    told += bytes(-len(told) % 8)
    return told if look is None else entry(node, look) + told


def space(files: int, size_bytes: int) -> bytes:
    """The answer to STATFS: a file system that is full."""
    return _SPACE.pack(-(-size_bytes // _BLOCK), 0, 0, files, 0, _BLOCK, 255, _BLOCK, 0)


def _attributes(node: Node, look: Look) -> bytes:
    mode = stat.S_IFDIR | 0o555 if node.is_folder else stat.S_IFREG | 0o444
    times = (look.seconds, look.seconds, look.seconds, 0, 0, 0)
    links = 2 if node.is_folder else 1
    return _ATTRIBUTES.pack(
        node.number, node.size, -(-node.size // 512), *times, mode, links, look.uid, look.gid, 0, _BLOCK, 0
    )
