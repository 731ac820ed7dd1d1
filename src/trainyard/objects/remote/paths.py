"""Where things lie in the remote bucket, and how keys are written as paths there.

    <prefix>/<account>/<bucket>/<key>                             objects
    <prefix>/.trainyard/buckets/<account>/<bucket>                what is known of a bucket
    <prefix>/.trainyard/more/<account>/<bucket>/<hash>/<id>       what is too long for the metadata of an object
    <prefix>/.trainyard/uploads/<account>/<bucket>/<upload>       an upload in parts
    <prefix>/.trainyard/parts/<upload>/…                          its parts; the name of a part tells all about it

obstore refuses paths with empty segments, with the segments `.` and `..`, and with control characters, and S3 refuses
those over 1024 bytes. Ordinary keys are their own path. The others are escaped so that the order of paths is still the
order of keys, and one too long ends in a hash instead of its last characters.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Checksum, ChecksumAlgorithm, ObjectPart

_LONGEST_PATH = 1024
HASH_LENGTH = 64
_LAST = "\U0010ffff"

# Each stands, in byte order, where the character stood that it replaces.
_ESCAPES = {
    **{chr(code): f" {chr(0x40 + code)}" for code in range(0x20)},
    " ": " ~",
    "~": "~!",
    "\x7f": "~~",
    "\ufffd": "\ufffd!",
    "\ufffe": "\ufffd@",
    "\uffff": "\ufffdA",
}
_END = " !"  # after a slash that ends the key: before all that can follow a slash
_DOT = ".!"  # a dot at the start of a segment
_SLASH = ".0/"  # a slash at the start of a segment, which would be empty
_ORIGINALS = {escape: char for char, escape in _ESCAPES.items()} | {_DOT: "."}


class Layout:
    """The paths under one prefix."""

    def __init__(self, prefix: str) -> None:
        self._root = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._own = f"{self._root}.trainyard"

    @property
    def bucket_records(self) -> str:
        return f"{self._own}/buckets"

    def bucket_record(self, ref: BucketRef) -> str:
        return f"{self.bucket_records}/{ref.account}/{ref.name}"

    def objects(self, ref: BucketRef) -> "KeyFolder":
        return KeyFolder(f"{self._root}{ref.account}/{ref.name}")

    def object(self, where: Location) -> str:
        return self.objects(where.bucket).path(where.key)

    def all_more(self, ref: BucketRef) -> str:
        return f"{self._own}/more/{ref.account}/{ref.name}"

    def more(self, ref: BucketRef, hashed: str, more_id: str) -> str:
        return f"{self.all_more(ref)}/{hashed}/{more_id}"

    def uploads(self, ref: BucketRef) -> str:
        return f"{self._own}/uploads/{ref.account}/{ref.name}"

    def upload(self, ref: BucketRef, upload_id: str) -> str:
        return f"{self.uploads(ref)}/{upload_id}"

    def parts(self, upload_id: str) -> str:
        return f"{self._own}/parts/{upload_id}"

    def part(self, upload_id: str, name: "PartName") -> str:
        return f"{self.parts(upload_id)}/{name}"


@dataclass(frozen=True, slots=True)
class KeyFolder:
    """A folder whose entries are keys."""

    path_of_folder: str

    @property
    def longest_name(self) -> int:
        """The bytes of a name that is not shortened."""
        return _LONGEST_PATH - len(self.path_of_folder.encode()) - 1 - HASH_LENGTH

    def path(self, key: str) -> str:
        name = encode_key(key)
        if len(name.encode()) > self.longest_name:
            name = _cut(name, self.longest_name) + key_hash(key)
        return f"{self.path_of_folder}/{name}"

    def name(self, path: str) -> str:
        return path[len(self.path_of_folder) + 1 :]

    def is_shortened(self, name: str) -> bool:
        return len(name.encode()) > self.longest_name

    def stem(self, name: str) -> bytes:
        """What all names have in common whose order a shortening may have changed."""
        return name.encode()[: self.longest_name - 4]

    def before(self, start: bytes) -> str:
        """A path that lies before those of all keys from `start` on, and after those of almost all others."""
        name = encode_key(_just_before(start)) if start else ""
        return f"{self.path_of_folder}/{_cut(name, self.longest_name - 4)}"


@dataclass(frozen=True, slots=True)
class PartName:
    """All about a part, so that a list of names is a list of parts. Of several of a number the last in order counts."""

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
    """The path of a key within its folder."""
    pieces: list[str] = []
    begins = True
    for char in key:
        if char == "/":
            pieces.append(_SLASH if begins else "/")
            begins = True
            continue
        pieces.append(_DOT if begins and char == "." else _ESCAPES.get(char, char))
        begins = False
    if begins:
        pieces.append(_END)
    return "".join(pieces)


def decode_key(name: str) -> str:
    """The key of a name that is not shortened."""
    chars: list[str] = []
    place, begins = 0, True
    while place < len(name):
        pair = name[place : place + 2]
        if begins and pair == _END:
            break
        if begins and name.startswith(_SLASH, place):
            chars.append("/")
            place += len(_SLASH)
            continue
        is_escape = pair in _ORIGINALS and (pair != _DOT or begins)
        chars.append(_ORIGINALS[pair] if is_escape else name[place])
        begins = chars[-1] == "/"
        place += 2 if is_escape else 1
    return "".join(chars)


def _cut(text: str, size: int) -> str:
    """As many whole characters as fit into `size` bytes."""
    return text.encode()[:size].decode(errors="ignore")


def _just_before(start: bytes) -> str:
    """The last text before `start`, or one that hardly any key lies between."""
    if start.endswith(b"\0"):
        return start[:-1].decode()
    try:
        return (start[:-1] + bytes([start[-1] - 1])).decode() + _LAST
    except UnicodeDecodeError:
        text = start.decode()
    code = ord(text[-1]) - 1
    return text[:-1] + chr(0xD7FF if 0xD800 <= code <= 0xDFFF else code) + _LAST
