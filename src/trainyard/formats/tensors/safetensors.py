"""Files of the safetensors format: a header of JSON that tells where each tensor lies, and their bytes behind it."""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.foundation.errors import Corrupt, InvalidRequest

HEAD_BYTES = 8  # which tell how long the header is
TEXT = "text"  # the dtype of arrays of texts, with a zero between two; only smdebug has such

_HEAD = struct.Struct("<Q")
_NO_MORE_THAN = 100_000_000  # bytes of a header, as the format has it
_METADATA = "__metadata__"

# Our names of dtypes, which are those of numpy and torch, and those of the format.
_WORDS = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_NAMES = {word: name for name, word in _WORDS.items()}
_FOREIGN = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}  # numpy has only their bits


@dataclass(frozen=True, slots=True)
class RawTensor:
    """The bytes of a tensor in the order of its elements, little-endian, with what they mean."""

    dtype: str  # float32, bfloat16, float8_e4m3fn …
    shape: tuple[int, ...]
    data: bytes | memoryview

    @classmethod
    def of(cls, array: NDArray[Any]) -> "RawTensor":
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        return cls(plain.dtype.name, array.shape, plain.reshape(-1).view(np.uint8).data if plain.size else b"")

    def array(self) -> NDArray[Any]:
        """The tensor as numpy has it: of a dtype that it does not know, as 32-bit floats."""
        if self.dtype == TEXT:
            return np.array(bytes(self.data).decode().split("\0"))
        bits = np.frombuffer(self.data, np.dtype(_FOREIGN.get(self.dtype, self.dtype)).newbyteorder("<"))
        return _widened(bits, self.dtype).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where in a file a tensor lies."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def encode(tensors: Mapping[str, RawTensor], metadata: Mapping[str, str] | None = None) -> Iterator[bytes | memoryview]:
    """A file, piece by piece."""
    told: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _WORDS:
            raise InvalidRequest(f'The tensor "{name}" is of dtype {tensor.dtype}, which safetensors do not hold.')
        end = offset + len(tensor.data)
        told[name] = {"dtype": _WORDS[tensor.dtype], "shape": tensor.shape, "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(told, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    yield _HEAD.pack(len(header)) + header
    for tensor in tensors.values():
        yield tensor.data


def header_bytes(head: bytes) -> int:
    """How long the header is that follows the first bytes of a file."""
    if len(head) < HEAD_BYTES:
        raise Corrupt("A file of tensors ends before its header.")
    (size,) = _HEAD.unpack_from(head)
    if size > _NO_MORE_THAN:
        raise Corrupt(f"The header of a file of tensors cannot have {size} bytes.")
    return int(size)


def decode_header(header: bytes) -> dict[str, Entry]:
    """Where each tensor lies, from the start of the file."""
    try:
        told = json.loads(header)
        behind = HEAD_BYTES + len(header)
        return {name: _entry(each, behind) for name, each in told.items() if name != _METADATA}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"The header of a file of tensors cannot be read: {error!r}.") from error


def _entry(told: Mapping[str, Any], behind: int) -> Entry:
    start, end = told["data_offsets"]
    return Entry(_NAMES[told["dtype"]], tuple(told["shape"]), behind + start, behind + end)


def _widened(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    wide = bits
    if dtype == "bfloat16":
        wide = np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)
    elif dtype == "float8_e5m2":  # the upper half of a 16-bit float
        wide = np.left_shift(bits, 8, dtype=np.uint16).view(np.float16).astype(np.float32)
    elif dtype == "float8_e4m3fn":
        wide = _e4m3fn()[bits]
    return wide


@cache
def _e4m3fn() -> NDArray[np.float32]:
    """All numbers of the kind: four bits of exponent with a bias of 7, three of mantissa, no infinity."""
    bits = np.arange(256)
    exponents, mantissas = bits >> 3 & 15, bits & 7
    small = mantissas * 2.0**-9
    large = (8 + mantissas) * 2.0 ** (exponents - 10.0)
    magnitudes = np.where(exponents == 0, small, large)
    magnitudes[bits & 0x7F == 0x7F] = np.nan
    return np.where(bits & 0x80, -magnitudes, magnitudes).astype(np.float32)
