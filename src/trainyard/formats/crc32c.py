"""CRC-32C, the Castagnoli polynomial: by a C library if one is installed, else in Python.

TFRecord files store it masked, because the CRC of data that contains its own CRC is weak.
"""

import struct
from collections.abc import Callable
from functools import cache

# The polynomial with its bits reversed.
_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_WORD_BYTES = 4
_STEP_BYTES = 1 << 16
_MASK_DELTA = 0xA282EAD8

Crc = Callable[[bytes, int], int]


def crc32c(data: bytes, crc: int = 0) -> int:
    """Return the checksum of data, or continue the checksum `crc` of the data before it."""
    return _fastest_crc()(data, crc)


def masked_crc32c(data: bytes) -> int:
    """Return the checksum as TFRecord files store it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ONES


def plain_crc32c(data: bytes, crc: int = 0) -> int:
    """Compute `crc32c` without a library: 32 bits at a time, by four tables that fit into the cache."""
    first, second, third, fourth = _tables()
    crc ^= _ONES
    whole = len(data) - len(data) % _WORD_BYTES
    view = memoryview(data)
    # In steps, because a word in a list takes nine times its bytes.
    for start in range(0, whole, _STEP_BYTES):
        step = view[start : min(start + _STEP_BYTES, whole)]
        for word in struct.unpack(f"<{len(step) // _WORD_BYTES}I", step):
            crc ^= word
            crc = fourth[crc & 0xFF] ^ third[crc >> 8 & 0xFF] ^ second[crc >> 16 & 0xFF] ^ first[crc >> 24]
    for byte in view[whole:]:
        crc = first[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ _ONES


@cache
def _fastest_crc() -> Crc:
    """Return the fastest implementation; called for the first checksum, because importing awscrt takes 57 ms."""
    try:
        from awscrt import checksums
    except ImportError:
        return plain_crc32c
    implementation: Crc = checksums.crc32c
    return implementation


@cache
def _tables() -> tuple[list[int], ...]:
    """Return the tables of a byte followed by 8, 16, 24 and 32 zero bits."""
    return tuple([_shift(byte, shifts) for byte in range(256)] for shifts in (8, 16, 24, 32))


def _shift(crc: int, shifts: int) -> int:
    for _ in range(shifts):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc
