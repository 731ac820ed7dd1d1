"""FUSE messages, byte for byte as in the kernel's header."""

import stat
import struct

from trainyard.instance.agent.data.remote_files import fuse
from trainyard.instance.agent.data.remote_files.fuse import Feature, FileAttributes, FuseNode, Opcode

LOOK = FileAttributes(uid=7, gid=8, seconds=1_700_000_000)
FILE, FOLDER = FuseNode(5, 1000, False), FuseNode(6, 0, True)


def test_a_request_is_its_head_and_its_body() -> None:
    message = struct.pack("<IIQQIIII", 47, Opcode.LOOKUP, 99, 1, 0, 0, 4242, 0) + b"name.x\0"
    assert fuse.read_request(message) == (Opcode.LOOKUP, 99, 1, b"name.x\0")


def test_a_span_is_read_past_the_handle() -> None:
    assert fuse.read_span(struct.pack("<QQIIQII", 3, 4096, 8192, 0, 0, 0, 0)) == (4096, 8192)


def test_answers_tell_their_length_and_errors_are_negative() -> None:
    assert struct.unpack("<IiQ", fuse.reply_header(99, 10)) == (26, 0, 99)
    assert struct.unpack("<IiQ", fuse.reply_header(99, 0, error=5)) == (16, -5, 99)


def test_kernel_and_server_agree_on_what_both_can() -> None:
    told = fuse.init_reply(Feature.ASYNC_READ | Feature.NO_OPEN | 1 << 30)
    major, minor, ahead, features = struct.unpack_from("<IIII", told)
    assert (major, minor, ahead) == (7, 31, 2 << 20)
    assert features == Feature.ASYNC_READ | Feature.NO_OPEN
    assert len(told) == 64


def test_attributes_are_those_of_files_that_everybody_may_read_and_nobody_write() -> None:
    told = fuse.attributes_reply(FILE, LOOK)
    assert len(told) == 104
    number, size, blocks = struct.unpack_from("<QQQ", told, 16)
    mode, links, uid, gid = struct.unpack_from("<IIII", told, 16 + 60)
    assert (number, size, blocks) == (5, 1000, 2)
    assert (mode, links, uid, gid) == (stat.S_IFREG | 0o444, 1, 7, 8)
    (mode,) = struct.unpack_from("<I", fuse.attributes_reply(FOLDER, LOOK), 16 + 60)
    assert mode == stat.S_IFDIR | 0o555


def test_entries_of_a_folder_are_padded_to_eight_bytes() -> None:
    plain = fuse.directory_entry(b"abc", FILE, next_offset=4, common=None)
    assert struct.unpack_from("<QQII", plain) == (5, 4, 3, stat.S_IFREG >> 12)
    assert plain[24:] == b"abc" + bytes(5)
    whole = fuse.directory_entry(b"abc", FILE, next_offset=4, common=LOOK)
    assert whole == fuse.entry_reply(FILE, LOOK) + plain
    assert len(fuse.entry_reply(FILE, LOOK)) == len(fuse.no_entry_reply()) == 128


def test_a_name_that_does_not_exist_has_no_node() -> None:
    assert struct.unpack_from("<Q", fuse.no_entry_reply()) == (0,)


def test_the_file_system_is_full() -> None:
    blocks, free, available, files = struct.unpack_from("<QQQQ", fuse.statfs_reply(3, 10_000))
    assert (blocks, free, available, files) == (3, 0, 0, 3)
    assert len(fuse.statfs_reply(3, 10_000)) == 80
