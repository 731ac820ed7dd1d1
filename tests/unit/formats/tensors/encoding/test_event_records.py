"""smdebug records: any bytes are a tensor or corrupt."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.formats.tensors.encoding.event_records import decode_record
from trainyard.formats.tensors.encoding.safetensors import RawTensor
from trainyard.foundation.errors import Corrupt


def record(event: bytes) -> bytes:
    return len(event).to_bytes(8, "little") + bytes(4) + event + bytes(4)


def member(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def test_a_tensor_is_found_among_members_of_every_kind() -> None:
    shape = member(2, member(2, b"\x08\x02" + member(2, b"rows")) + member(2, b"\x08\x01"))
    tensor = b"\x08\x01" + shape + member(4, b"\0\0\x80?\0\0\0@")
    event = (
        b"\x09"
        + bytes(8)
        + b"\x10\x05"
        + b"\x3d"
        + bytes(4)
        + member(5, member(1, member(1, b"tag") + member(8, tensor)))
    )
    found = decode_record(record(event))
    assert (found.dtype, found.shape, found.array().tolist()) == ("float32", (2, 1), [[1.0], [2.0]])


def test_a_record_without_a_tensor_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="has no tensor"):
        decode_record(record(b"\x10\x05"))
    with pytest.raises(Corrupt, match="unknown wire type 3"):
        decode_record(record(b"\x0b"))
    with pytest.raises(Corrupt, match="an unknown dtype"):
        decode_record(record(member(5, member(1, member(8, b"\x08\x7f")))))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_tensor_or_corrupt(noise: bytes) -> None:
    for data in (noise, record(noise)):
        with suppress(Corrupt):
            assert isinstance(decode_record(data), RawTensor)
