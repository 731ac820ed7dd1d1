"""What the kernel is told of links and addresses, byte for byte."""

import errno
import struct

import pytest

from trainyard.instance.sandbox.network.netlink import (
    link_header,
    pack_attribute,
    pack_message,
    pack_number,
    pack_text,
    parse_acknowledgement,
)


def test_an_attribute_tells_its_length_and_is_padded_to_whole_words() -> None:
    assert pack_attribute(3, b"abcde") == struct.pack("=HH", 9, 3) + b"abcde\0\0\0"
    assert pack_attribute(3, b"abcd") == struct.pack("=HH", 8, 3) + b"abcd"


def test_a_text_ends_with_a_zero_and_a_number_is_one_word() -> None:
    assert pack_text(3, "eth0") == struct.pack("=HH", 9, 3) + b"eth0\0\0\0\0"
    assert pack_number(4, 65535) == struct.pack("=HHI", 8, 4, 65535)


def test_only_the_flags_that_are_named_change() -> None:
    assert struct.unpack("=BxHiII", link_header(7, flags=1)) == (0, 0, 7, 1, 1)
    assert struct.unpack("=BxHiII", link_header(7)) == (0, 0, 7, 0, 0)


def test_a_message_begins_with_its_whole_length() -> None:
    assert pack_message(16, b"body", flags=5, sequence=3) == struct.pack("=IHHII", 20, 16, 5, 3, 0) + b"body"


def told(kind: int, code: int) -> bytes:
    return struct.pack("=IHHIIi", 36, kind, 0, 1, 0, code) + bytes(16)


def test_an_answer_is_done_or_an_error() -> None:
    assert parse_acknowledgement(told(2, 0)) == 0
    assert parse_acknowledgement(told(2, -errno.EPERM)) == errno.EPERM
    with pytest.raises(OSError, match="unexpected"):
        parse_acknowledgement(told(16, 0))
