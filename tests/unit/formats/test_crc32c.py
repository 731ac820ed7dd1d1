"""CRC-32C against the vectors of RFC 3720 and of a TensorBoard file."""

import random

import pytest

from trainyard.formats.crc32c import crc32c, masked_crc32c, plain_crc32c

VECTORS = {
    b"": 0,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
}


@pytest.mark.parametrize("count", [crc32c, plain_crc32c])
def test_known_checksums_are_counted(count: object) -> None:
    assert callable(count)
    assert {data: count(data) for data in VECTORS} == VECTORS


def test_a_checksum_continues_that_of_the_data_before() -> None:
    for count in (crc32c, plain_crc32c):
        assert count(b"6789", count(b"12345")) == VECTORS[b"123456789"]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 65535, 65536, 65537, 200_001])
def test_both_ways_of_counting_agree(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert plain_crc32c(data) == crc32c(data)


def test_the_masked_checksum_is_the_one_that_event_files_begin_with() -> None:
    assert masked_crc32c((24).to_bytes(8, "little")).to_bytes(4, "little") == bytes.fromhex("a37f4b22")
