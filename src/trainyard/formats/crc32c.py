"""CRC-32C, the Castagnoli polynomial: in C where a library has it, otherwise here.

TFRecord files carry it masked, because the checksum of data that holds checksums of its own would be a weak one.
"""

import struct
from collections.abc import Callable
from functools import cache

_POLYNOMIAL = 0x82F63B78  # with its bits in reverse order, as the sums are counted
_ONES = 0xFFFFFFFF
_WORD_BYTES = 4
_STEP_BYTES = 1 << 16
_MASK_DELTA = 0xA282EAD8

Crc = Callable[[bytes, int], int]


def crc32c(data: bytes, crc: int = 0) -> int:
    """The checksum of some data, or of what `crc` is the checksum of with the data after it."""
    return _fastest()(data, crc)


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord files store it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ONES


def plain_crc32c(data: bytes, crc: int = 0) -> int:
    """The same as `crc32c`, without any library: 32 bits at a time, through four tables that fit into the cache."""
    first, second, third, fourth = _tables()
    crc ^= _ONES
    whole = len(data) - len(data) % _WORD_BYTES
    view = memoryview(data)
    for start in range(0, whole, _STEP_BYTES):  # in steps, for a word in a list takes nine times its bytes
        step = view[start : min(start + _STEP_BYTES, whole)]
        for word in struct.unpack(f"<{len(step) // _WORD_BYTES}I", step):
            crc ^= word
            crc = fourth[crc & 0xFF] ^ third[crc >> 8 & 0xFF] ^ second[crc >> 16 & 0xFF] ^ first[crc >> 24]
    for byte in view[whole:]:
        crc = first[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ _ONES


@cache
def _fastest() -> Crc:
    """Looked for when the first checksum is counted: importing awscrt takes 57 ms."""
    try:
        from awscrt import checksums
    except ImportError:
        return plain_crc32c
    found: Crc = checksums.crc32c
    return found


@cache
def _tables() -> tuple[list[int], ...]:
    """What a byte becomes when it is followed by 8, 16, 24 and 32 bits."""
    return tuple([_shifted(byte, shifts) for byte in range(256)] for shifts in (8, 16, 24, 32))


def _shifted(crc: int, shifts: int) -> int:
    for _ in range(shifts):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc
