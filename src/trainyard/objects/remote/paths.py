"""The layout of the remote bucket, and how keys map to paths.

    <prefix>/<account>/<bucket>/<key>                             objects
    <prefix>/.trainyard/buckets/<account>/<bucket>                the record of a bucket
    <prefix>/.trainyard/more/<account>/<bucket>/<hash>/<id>       a description too long for the metadata of an object
    <prefix>/.trainyard/uploads/<account>/<bucket>/<upload>       a multipart upload
    <prefix>/.trainyard/parts/<upload>/…                          its parts; the name of a part describes it fully

obstore refuses paths with empty segments, the segments `.` and `..`, and control characters; S3 refuses paths over
1024 bytes. Ordinary keys are their own path. Other keys are escaped so that paths keep the order of keys, and a path
that is too long ends in a hash instead of its last characters.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Checksum, ChecksumAlgorithm, ObjectPart

_MAX_PATH_BYTES = 1024
HASH_LENGTH = 64
_LAST_CHARACTER = "\U0010ffff"

# Each sorts, in byte order, where the character it replaces would.
_ESCAPES = {
    **{chr(code): f" {chr(0x40 + code)}" for code in range(0x20)},
    " ": " ~",
    "~": "~!",
    "\x7f": "~~",
    "\ufffd": "\ufffd!",
    "\ufffe": "\ufffd@",
    "\uffff": "\ufffdA",
}
# Follows a slash at the end of the key, and sorts before anything else after a slash.
_TRAILING_SLASH = " !"
# A dot at the start of a segment.
_LEADING_DOT = ".!"
# A slash at the start of a segment, which would otherwise be empty.
_EMPTY_SEGMENT = ".0/"
_ORIGINALS = {escape: char for char, escape in _ESCAPES.items()} | {_LEADING_DOT: "."}


class RemoteLayout:
    """The paths under one prefix."""

    def __init__(self, prefix: str) -> None:
        self._root = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._private_root = f"{self._root}.trainyard"

    @property
    def bucket_records(self) -> str:
        return f"{self._private_root}/buckets"

    def bucket_record(self, ref: BucketRef) -> str:
        return f"{self.bucket_records}/{ref.account}/{ref.name}"

    def objects(self, ref: BucketRef) -> "KeyFolder":
        return KeyFolder(f"{self._root}{ref.account}/{ref.name}")

    def object(self, where: Location) -> str:
        return self.objects(where.bucket).path(where.key)

    def descriptions(self, ref: BucketRef) -> str:
        return f"{self._private_root}/more/{ref.account}/{ref.name}"

    def description(self, ref: BucketRef, key_digest: str, description_id: str) -> str:
        return f"{self.descriptions(ref)}/{key_digest}/{description_id}"

    def uploads(self, ref: BucketRef) -> str:
        return f"{self._private_root}/uploads/{ref.account}/{ref.name}"

    def upload(self, ref: BucketRef, upload_id: str) -> str:
        return f"{self.uploads(ref)}/{upload_id}"

    def parts(self, upload_id: str) -> str:
        return f"{self._private_root}/parts/{upload_id}"

    def part(self, upload_id: str, name: "PartName") -> str:
        return f"{self.parts(upload_id)}/{name}"


@dataclass(frozen=True, slots=True)
class KeyFolder:
    """A folder whose entries are keys."""

    path_of_folder: str

    @property
    def max_name_bytes(self) -> int:
        """The maximum bytes of a name that is not shortened."""
        return _MAX_PATH_BYTES - len(self.path_of_folder.encode()) - 1 - HASH_LENGTH

    def path(self, key: str) -> str:
        name = encode_key(key)
        if len(name.encode()) > self.max_name_bytes:
            name = _truncate(name, self.max_name_bytes) + key_hash(key)
        return f"{self.path_of_folder}/{name}"

    def name(self, path: str) -> str:
        return path[len(self.path_of_folder) + 1 :]

    def is_shortened(self, name: str) -> bool:
        return len(name.encode()) > self.max_name_bytes

    def stem(self, name: str) -> bytes:
        """Return the part that names have in common if shortening may have changed their order."""
        return name.encode()[: self.max_name_bytes - 4]

    def path_before(self, start: bytes) -> str:
        """Return a path before those of all keys from `start` on, and after almost all others."""
        name = encode_key(_just_before(start)) if start else ""
        return f"{self.path_of_folder}/{_truncate(name, self.max_name_bytes - 4)}"


@dataclass(frozen=True, slots=True)
class PartName:
    """A full description of a part, so that listing names lists parts. The highest `order` of a number wins."""

    order: int
    part: ObjectPart

    def __str__(self) -> str:
        part = self.part
        checksum = f"{part.checksum.algorithm}.{part.checksum.value.encode().hex()}" if part.checksum else "."
        return f"{part.number:05}.{self.order:016x}.{part.size}.{part.etag}.{to_micros(part.modified_at)}.{checksum}"


def read_part_name(text: str) -> PartName:
    number, order, size, etag, modified_at, algorithm, value = text.split(".")
    checksum = Checksum(ChecksumAlgorithm(algorithm), bytes.fromhex(value).decode()) if algorithm else None
    modified: datetime = from_micros(int(modified_at))
    return PartName(int(order, 16), ObjectPart(int(number), int(size), etag, modified, checksum))


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def encode_key(key: str) -> str:
    """Return the path of a key within its folder."""
    pieces: list[str] = []
    is_segment_start = True
    for char in key:
        if char == "/":
            pieces.append(_EMPTY_SEGMENT if is_segment_start else "/")
            is_segment_start = True
            continue
        pieces.append(_LEADING_DOT if is_segment_start and char == "." else _ESCAPES.get(char, char))
        is_segment_start = False
    if is_segment_start:
        pieces.append(_TRAILING_SLASH)
    return "".join(pieces)


def decode_key(name: str) -> str:
    """Return the key of a name that is not shortened."""
    chars: list[str] = []
    position, is_segment_start = 0, True
    while position < len(name):
        pair = name[position : position + 2]
        if is_segment_start and pair == _TRAILING_SLASH:
            break
        if is_segment_start and name.startswith(_EMPTY_SEGMENT, position):
            chars.append("/")
            position += len(_EMPTY_SEGMENT)
            continue
        is_escape = pair in _ORIGINALS and (pair != _LEADING_DOT or is_segment_start)
        chars.append(_ORIGINALS[pair] if is_escape else name[position])
        is_segment_start = chars[-1] == "/"
        position += 2 if is_escape else 1
    return "".join(chars)


def _truncate(text: str, size: int) -> str:
    """Return as many whole characters as fit into `size` bytes."""
    return text.encode()[:size].decode(errors="ignore")


def _just_before(start: bytes) -> str:
    """Return the last text before `start`, or one close to it."""
    if start.endswith(b"\0"):
        return start[:-1].decode()
    try:
        return (start[:-1] + bytes([start[-1] - 1])).decode() + _LAST_CHARACTER
    except UnicodeDecodeError:
        text = start.decode()
    code = ord(text[-1]) - 1
    return text[:-1] + chr(0xD7FF if 0xD800 <= code <= 0xDFFF else code) + _LAST_CHARACTER
