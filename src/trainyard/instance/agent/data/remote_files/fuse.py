"""The FUSE messages that a read-only file system needs: `linux/fuse.h`, version 7.31."""

import stat
import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

MAJOR, MINOR = 7, 31
ROOT_NODE = 1
# The most that the kernel requests at once.
REQUEST_BYTES = 1 << 20
AHEAD_BYTES = 2 << 20
BUFFER_BYTES = REQUEST_BYTES + 4096

# How long the kernel may cache entries: nothing changes while the channel is mounted.
_FOREVER_S = 365 * 86400
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


class Opcode(IntEnum):
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
    """Features that kernel and server agree on at INIT.

    With NO_OPEN the kernel opens files without a request, after the first one was answered with ENOSYS.
    """

    ASYNC_READ = 1 << 0
    READDIRPLUS = 1 << 13
    READDIRPLUS_AUTO = 1 << 14
    NO_OPEN = 1 << 17
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


class FuseRequest(NamedTuple):
    """A request of the kernel; `code` is an `Opcode` or an unknown number."""

    code: int
    unique: int
    node: int
    body: bytes


class ReadSpan(NamedTuple):
    """A span of a file or of the entries of a folder."""

    offset: int
    size: int


class FuseNode(NamedTuple):
    """What the kernel knows about a file or folder."""

    number: int
    size: int
    is_folder: bool


class FileAttributes(NamedTuple):
    """The attributes that all files of a mount share; `seconds` is the time of them all, since 1970."""

    uid: int
    gid: int
    seconds: int


def read_request(message: bytes) -> FuseRequest:
    _, code, unique, node, *_ = _IN.unpack_from(message)
    return FuseRequest(code, unique, node, message[_IN.size :])


def read_features(body: bytes) -> int:
    """The features that the kernel offers at INIT."""
    return int(_INIT_IN.unpack_from(body)[3])


def read_span(body: bytes) -> ReadSpan:
    _, offset, size = _READ.unpack_from(body)
    return ReadSpan(offset, size)


def read_interrupted(body: bytes) -> int:
    """The number of the request that was interrupted."""
    return int.from_bytes(body[:8], "little")


def reply_header(unique: int, size: int, *, error: int = 0) -> bytes:
    """The header of a reply with `size` bytes."""
    return _OUT.pack(_OUT.size + size, -error, unique)


def init_reply(features: int) -> bytes:
    """The reply to INIT. The kernel reads ahead as far as this, or as the mount's own setting if that is less."""
    return _INIT_OUT.pack(
        MAJOR, MINOR, AHEAD_BYTES, features & FEATURES, 64, 48, REQUEST_BYTES, 1, REQUEST_BYTES // _BLOCK, 0, 0
    )


def attributes_reply(node: FuseNode, common: FileAttributes) -> bytes:
    """The reply to GETATTR."""
    return _ATTRIBUTES_OUT.pack(_FOREVER_S, 0, 0) + _attributes(node, common)


def entry_reply(node: FuseNode, common: FileAttributes) -> bytes:
    """The reply to LOOKUP."""
    return _ENTRY.pack(node.number, 0, _FOREVER_S, _FOREVER_S, 0, 0) + _attributes(node, common)


def no_entry_reply() -> bytes:
    """The reply to LOOKUP for a missing name, which the kernel may cache."""
    return _ENTRY.pack(0, 0, _FOREVER_S, 0, 0, 0) + bytes(_ATTRIBUTES.size)


def directory_entry(name: bytes, node: FuseNode, *, next_offset: int, common: FileAttributes | None) -> bytes:
    """One entry of a folder, with its attributes if `common` is given."""
    kind = stat.S_IFDIR if node.is_folder else stat.S_IFREG
    entry = _NAME.pack(node.number, next_offset, len(name), kind >> 12) + name
    entry += bytes(-len(entry) % 8)
    return entry if common is None else entry_reply(node, common) + entry


def statfs_reply(files: int, size_bytes: int) -> bytes:
    """The reply to STATFS: a full file system."""
    return _SPACE.pack(-(-size_bytes // _BLOCK), 0, 0, files, 0, _BLOCK, 255, _BLOCK, 0)


def _attributes(node: FuseNode, common: FileAttributes) -> bytes:
    mode = stat.S_IFDIR | 0o555 if node.is_folder else stat.S_IFREG | 0o444
    times = (common.seconds, common.seconds, common.seconds, 0, 0, 0)
    links = 2 if node.is_folder else 1
    return _ATTRIBUTES.pack(
        node.number, node.size, -(-node.size // 512), *times, mode, links, common.uid, common.gid, 0, _BLOCK, 0
    )
