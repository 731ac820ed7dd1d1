"""The safetensors format: a JSON header with the location of each tensor, then their bytes."""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.foundation.errors import Corrupt, InvalidRequest

# The length of the header comes first.
HEAD_BYTES = 8
# The dtype of string arrays, separated by zero bytes; only smdebug has them.
TEXT = "text"

_HEAD = struct.Struct("<Q")
# The limit of the format.
_MAX_HEADER_BYTES = 100_000_000
_METADATA = "__metadata__"

# Our names of dtypes, those of numpy and torch, to those of the format.
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
# numpy lacks these dtypes; it reads their bits.
_FOREIGN = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


@dataclass(frozen=True, slots=True)
class RawTensor:
    """The bytes of a tensor in the order of its elements, little-endian, with its dtype and shape."""

    dtype: str  # float32, bfloat16, float8_e4m3fn …
    shape: tuple[int, ...]
    data: bytes | memoryview

    @classmethod
    def of(cls, array: NDArray[Any]) -> "RawTensor":
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        return cls(plain.dtype.name, array.shape, plain.reshape(-1).view(np.uint8).data if plain.size else b"")

    def array(self) -> NDArray[Any]:
        """Return the tensor as a numpy array; a dtype that numpy lacks becomes float32."""
        if self.dtype == TEXT:
            return np.array(bytes(self.data).decode().split("\0"))
        bits = np.frombuffer(self.data, np.dtype(_FOREIGN.get(self.dtype, self.dtype)).newbyteorder("<"))
        return _widen(bits, self.dtype).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """The location of a tensor in a file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def encode(tensors: Mapping[str, RawTensor], metadata: Mapping[str, str] | None = None) -> Iterator[bytes | memoryview]:
    """Encode a file, piece by piece."""
    header_fields: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _WORDS:
            raise InvalidRequest(f'The tensor "{name}" has the dtype {tensor.dtype}, which safetensors do not support.')
        end = offset + len(tensor.data)
        header_fields[name] = {"dtype": _WORDS[tensor.dtype], "shape": tensor.shape, "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(header_fields, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    yield _HEAD.pack(len(header)) + header
    for tensor in tensors.values():
        yield tensor.data


def header_bytes(head: bytes) -> int:
    """Return the length of the header, from the first bytes of a file."""
    if len(head) < HEAD_BYTES:
        raise Corrupt("A safetensors file ends before its header.")
    (size,) = _HEAD.unpack_from(head)
    if size > _MAX_HEADER_BYTES:
        raise Corrupt(f"The header of a safetensors file cannot have {size} bytes.")
    return int(size)


def decode_header(header: bytes) -> dict[str, TensorLocation]:
    """Return the location of each tensor, from the start of the file."""
    try:
        header_fields = json.loads(header)
        data_start = HEAD_BYTES + len(header)
        return {name: _location(each, data_start) for name, each in header_fields.items() if name != _METADATA}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"Cannot read the header of a safetensors file: {error!r}.") from error


def _location(header_fields: Mapping[str, Any], data_start: int) -> TensorLocation:
    start, end = header_fields["data_offsets"]
    return TensorLocation(
        _NAMES[header_fields["dtype"]], tuple(header_fields["shape"]), data_start + start, data_start + end
    )


def _widen(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    wide = bits
    if dtype == "bfloat16":
        wide = np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)
    # The upper half of a 16-bit float.
    elif dtype == "float8_e5m2":
        wide = np.left_shift(bits, 8, dtype=np.uint16).view(np.float16).astype(np.float32)
    elif dtype == "float8_e4m3fn":
        wide = _e4m3fn_values()[bits]
    return wide


@cache
def _e4m3fn_values() -> NDArray[np.float32]:
    """Return all 256 values: four bits of exponent with a bias of 7, three of mantissa, no infinity."""
    bits = np.arange(256)
    exponents, mantissas = bits >> 3 & 15, bits & 7
    small = mantissas * 2.0**-9
    large = (8 + mantissas) * 2.0 ** (exponents - 10.0)
    magnitudes = np.where(exponents == 0, small, large)
    magnitudes[bits & 0x7F == 0x7F] = np.nan
    return np.where(bits & 0x80, -magnitudes, magnitudes).astype(np.float32)
