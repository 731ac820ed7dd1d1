"""Which files are pictures that a browser may draw, by their first bytes."""

import struct
from dataclasses import dataclass

# A picture needs four bytes of a browser's memory for each pixel, however few the file has.
MAX_PIXELS = 64_000_000
MAX_BYTES = 16 * 1024 * 1024
# Enough for the headers, with a thumbnail, that a JPEG has before its size.
HEAD_BYTES = 128 * 1024

# The frames of a JPEG that tell its size.
_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a type that cannot contain scripts, as SVG can."""

    content_type: str
    width: int
    height: int

    @property
    def is_drawable(self) -> bool:
        return 0 < self.width * self.height <= MAX_PIXELS


def picture_of(head: bytes) -> Picture | None:
    """Return what picture a file is, whatever its name says; None if it is none."""
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return Picture("image/png", *struct.unpack_from(">II", head, 16))
        if head.startswith((b"GIF87a", b"GIF89a")):
            return Picture("image/gif", *struct.unpack_from("<HH", head, 6))
        if head.startswith(b"\xff\xd8\xff"):
            return _jpeg(head)
        if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
            return _webp(head)
    except struct.error:
        pass
    return None


def _jpeg(head: bytes) -> Picture | None:
    position = 2
    while position + 9 <= len(head) and head[position] == 0xFF:
        marker, length = head[position + 1], struct.unpack_from(">H", head, position + 2)[0]
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", head, position + 5)
            return Picture("image/jpeg", width, height)
        position += 2 + max(length, 2)
    return None


def _webp(head: bytes) -> Picture | None:
    match head[12:16]:
        case b"VP8X":
            width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
            return Picture("image/webp", width, height)
        case b"VP8L":
            bits = struct.unpack_from("<I", head, 21)[0]
            return Picture("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", head, 26)
            return Picture("image/webp", width & 0x3FFF, height & 0x3FFF)
    return None
