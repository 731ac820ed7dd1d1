"""A disk that forgets what was not synced: a file system in memory, mounted by FUSE, whose power can be cut.

    python -m tests.faults.forgetful_disk MOUNT LEFT SEED PROGRAM...

mounts itself on MOUNT, runs a program, and serves it until standard input ends: that is the power cut. It then kills
the program and writes the remaining content of the disk to the folder LEFT. All synced data is there. The rest is
random: each page of a file is the new or the old one, and of the changes to the names in a folder only the first few
may be there, as on a file system with a journal.
"""

import errno
import os
import random
import select
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.instance.sandbox.system_calls import MS_NODEV, MS_NOSUID, mount

PAGE = 4096
_MOST_WRITTEN = 128 * 1024
_BUFFER = _MOST_WRITTEN + PAGE
_ROOT = 1
# All changes come through the kernel, so it may cache answers.
_VALID_S = 60

_IN, _OUT = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
_INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY, _ATTRIBUTES_OUT = struct.Struct("<QQQQII"), struct.Struct("<QII")
_OPENED, _DIRECTORY_ENTRY = struct.Struct("<QII"), struct.Struct("<QQII")
_READ, _WRITE, _WRITTEN = struct.Struct("<QQI"), struct.Struct("<QQIIQII"), struct.Struct("<II")
_SETATTR = struct.Struct("<IIQQQQQQIIIIIIII")
_FALLOCATE = struct.Struct("<QQQII")
_STATFS = struct.Struct("<QQQQQIIII24x")
_SET_MODE, _SET_SIZE = 1 << 0, 1 << 3
_KEEP_SIZE = 1


@dataclass(eq=False)
class File:
    number: int
    mode: int
    now: bytearray = field(default_factory=bytearray)
    synced: bytes = b""

    def sync(self) -> None:
        self.synced = bytes(self.now)

    def left(self, dice: random.Random) -> bytes:
        """Return the content after a power cut: each page, and the length, is either the current or the synced one."""
        if self.now == self.synced:
            return self.synced
        size = dice.choice((len(self.now), len(self.synced)))
        pages = []
        for start in range(0, size, PAGE):
            source = dice.choice((bytes(self.now[start : start + PAGE]), self.synced[start : start + PAGE]))
            pages.append(source.ljust(PAGE, b"\0"))
        return b"".join(pages)[:size]


Names = dict[str, "File | Folder"]


@dataclass(eq=False)
class Folder:
    number: int
    mode: int
    now: Names = field(default_factory=dict)
    synced: Names = field(default_factory=dict)
    # All names, after each change since the last sync.
    changes: list[Names] = field(default_factory=list)

    def change(self) -> None:
        self.changes.append(dict(self.now))

    def sync(self) -> None:
        self.synced, self.changes = dict(self.now), []

    def left(self, dice: random.Random) -> Names:
        return dice.choice([self.synced, *self.changes])


class Refused(Exception):
    """The request is answered with an error number."""


class ForgetfulDisk:
    """Answers the requests of the kernel, one at a time."""

    def __init__(self, device: int) -> None:
        self._device = device
        self.root = Folder(_ROOT, stat.S_IFDIR | 0o755)
        self._nodes: dict[int, File | Folder] = {_ROOT: self.root}
        self._answers: dict[int, Callable[[int, bytes], bytes]] = {
            1: lambda node, body: self._entry(self._named(node, _text(body))),
            3: lambda node, _: self._attributes(self._nodes[node]),
            4: self._set_attributes,
            8: lambda node, body: self._entry(self._make(node, body[16:], int.from_bytes(body[:4], "little"))),
            9: lambda node, body: self._entry(self._make_folder(node, body)),
            10: self._remove,
            11: self._remove,
            12: lambda node, body: self._rename(node, body[:8], body[8:]),
            13: self._link,
            14: lambda *_: _OPENED.pack(0, 0, 0),
            15: self._read,
            16: self._write,
            17: lambda *_: _STATFS.pack(1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, PAGE, 255, PAGE, 0),
            18: lambda *_: b"",
            20: self._sync,
            26: self._welcome,
            27: lambda *_: _OPENED.pack(0, 0, 0),
            28: self._list,
            29: lambda *_: b"",
            30: self._sync,
            35: self._create,
            43: self._allocate,
            45: lambda node, body: self._rename(node, body[:8], body[16:]),
            50: self._sync_all,
        }

    def serve(self) -> None:
        """Answer one request."""
        message = os.read(self._device, _BUFFER)
        _, code, unique, node, *_ = _IN.unpack_from(message)
        if code in (2, 36, 42):  # FORGET, INTERRUPT and BATCH_FORGET have no answer
            return
        answer, error = b"", 0
        try:
            answer = self._answers[code](node, message[_IN.size :])
        except KeyError:
            error = errno.ENOSYS
        except Refused as refused:
            error = refused.args[0]
        os.write(self._device, _OUT.pack(_OUT.size + len(answer), -error, unique) + answer)

    def cut_power(self, target: Path, dice: random.Random) -> None:
        _lay_out(self.root, target, dice)

    def _folder(self, number: int) -> Folder:
        node = self._nodes[number]
        assert isinstance(node, Folder)
        return node

    def _file(self, number: int) -> File:
        node = self._nodes[number]
        assert isinstance(node, File)
        return node

    def _named(self, folder: int, name: str) -> File | Folder:
        found = self._folder(folder).now.get(name)
        if found is None:
            raise Refused(errno.ENOENT)
        return found

    def _add(self, folder: int, name: str, node: File | Folder) -> None:
        if name in self._folder(folder).now:
            raise Refused(errno.EEXIST)
        self._folder(folder).now[name] = node
        self._folder(folder).change()

    def _make(self, folder: int, name: bytes, mode: int) -> File:
        file = File(max(self._nodes) + 1, mode)
        self._add(folder, _text(name), file)
        self._nodes[file.number] = file
        return file

    def _make_folder(self, folder: int, body: bytes) -> Folder:
        made = Folder(max(self._nodes) + 1, stat.S_IFDIR | int.from_bytes(body[:4], "little"))
        self._add(folder, _text(body[8:]), made)
        self._nodes[made.number] = made
        return made

    def _create(self, folder: int, body: bytes) -> bytes:
        file = self._make(folder, body[16:], int.from_bytes(body[4:8], "little"))
        return self._entry(file) + _OPENED.pack(0, 0, 0)

    def _remove(self, folder: int, body: bytes) -> bytes:
        found = self._named(folder, _text(body))
        if isinstance(found, Folder) and found.now:
            raise Refused(errno.ENOTEMPTY)
        del self._folder(folder).now[_text(body)]
        self._folder(folder).change()
        return b""

    def _rename(self, folder: int, target: bytes, names: bytes) -> bytes:
        old, new, _ = names.split(b"\0", 2)
        node, there = self._named(folder, old.decode()), self._folder(int.from_bytes(target, "little"))
        del self._folder(folder).now[old.decode()]
        there.now[new.decode()] = node
        there.change()
        if there.number != folder:
            self._folder(folder).change()
        return b""

    def _link(self, folder: int, body: bytes) -> bytes:
        node = self._nodes[int.from_bytes(body[:8], "little")]
        self._add(folder, _text(body[8:]), node)
        return self._entry(node)

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, size = _READ.unpack_from(body)
        return bytes(self._file(node).now[offset : offset + size])

    def _write(self, node: int, body: bytes) -> bytes:
        _, offset, size, *_ = _WRITE.unpack_from(body)
        file, data = self._file(node), body[_WRITE.size : _WRITE.size + size]
        self._extend(file, offset)
        file.now[offset : offset + size] = data
        return _WRITTEN.pack(size, 0)

    def _allocate(self, node: int, body: bytes) -> bytes:
        _, offset, size, mode, _ = _FALLOCATE.unpack_from(body)
        if mode & ~_KEEP_SIZE:
            raise Refused(errno.EOPNOTSUPP)
        if not mode:
            self._extend(self._file(node), offset + size)
        return b""

    def _extend(self, file: File, size: int) -> None:
        file.now.extend(bytes(max(0, size - len(file.now))))

    def _set_attributes(self, node: int, body: bytes) -> bytes:
        valid, _, _, size, _, _, _, _, _, _, _, mode, *_ = _SETATTR.unpack_from(body)
        found = self._nodes[node]
        if valid & _SET_MODE:
            found.mode = mode
        if valid & _SET_SIZE and isinstance(found, File):
            del found.now[size:]
            self._extend(found, size)
        return self._attributes(found)

    def _sync(self, node: int, _: bytes) -> bytes:
        self._nodes[node].sync()
        return b""

    def _sync_all(self, *_: object) -> bytes:
        for node in self._nodes.values():
            node.sync()
        return b""

    def _list(self, folder: int, body: bytes) -> bytes:
        _, offset, size = _READ.unpack_from(body)
        told = b""
        for place, (name, node) in enumerate(list(self._folder(folder).now.items())[offset:], start=offset + 1):
            written = name.encode()
            entry = _DIRECTORY_ENTRY.pack(node.number, place, len(written), node.mode >> 12) + written
            entry += bytes(-len(entry) % 8)
            if len(told) + len(entry) > size:
                break
            told += entry
        return told

    def _welcome(self, _: int, body: bytes) -> bytes:
        big_writes = 1 << 5
        ahead = int.from_bytes(body[8:12], "little")
        return _INIT_OUT.pack(7, 31, ahead, big_writes, 16, 12, _MOST_WRITTEN, 1, _MOST_WRITTEN // PAGE, 0, 0)

    def _entry(self, node: File | Folder) -> bytes:
        return _ENTRY.pack(node.number, 0, _VALID_S, _VALID_S, 0, 0) + self._told(node)

    def _attributes(self, node: File | Folder) -> bytes:
        return _ATTRIBUTES_OUT.pack(_VALID_S, 0, 0) + self._told(node)

    def _told(self, node: File | Folder) -> bytes:
        size = len(node.now) if isinstance(node, File) else PAGE
        owner = os.geteuid(), os.getegid()
        return _ATTRIBUTES.pack(node.number, size, -(-size // 512), 0, 0, 0, 0, 0, 0, node.mode, 1, *owner, 0, PAGE, 0)


def _lay_out(folder: Folder, target: Path, dice: random.Random) -> None:
    target.mkdir()
    for name, node in folder.left(dice).items():
        if isinstance(node, Folder):
            _lay_out(node, target / name, dice)
        else:
            (target / name).write_bytes(node.left(dice))
            (target / name).chmod(stat.S_IMODE(node.mode))


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode()


def main(folder: Path, left: Path, seed: int, program: Sequence[str]) -> None:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40755,user_id={os.geteuid()},group_id={os.getegid()},default_permissions"
    mount("forgetful", str(folder), kind="fuse.forgetful", flags=MS_NOSUID | MS_NODEV, options=options)
    disk = ForgetfulDisk(device)
    running = subprocess.Popen([*program, str(folder)], stdin=subprocess.DEVNULL)
    while True:
        ready, _, _ = select.select([device, sys.stdin], [], [])
        if sys.stdin in ready:
            break
        disk.serve()
    running.kill()
    disk.cut_power(left, random.Random(seed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
