"""Tensors in the event files of smdebug: each is a TFRecord with a TensorFlow Event of one tensor.

Protocol buffers are parsed directly: a tag with the number and the wire type of a field, then its value. smdebug writes
a constant instead of the checksum of the data, so there is nothing to verify.
"""

import struct
from collections.abc import Iterator

from trainyard.formats.tensors.encoding.safetensors import TEXT, RawTensor
from trainyard.foundation.errors import Corrupt

_HEADER_BYTES, _FOOTER_BYTES = 12, 4  # of a TFRecord
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# Field numbers of Event, Summary, Value, TensorProto, TensorShapeProto and Dim.
_EVENT_SUMMARY, _SUMMARY_VALUE, _VALUE_TENSOR = 5, 1, 8
_TENSOR_DTYPE, _TENSOR_SHAPE, _TENSOR_CONTENT, _TENSOR_STRINGS = 1, 2, 4, 8
_SHAPE_DIM, _DIM_SIZE = 2, 1

_DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    19: "float16",
    22: "uint32",
    23: "uint64",
}


def decode_record(record: bytes) -> RawTensor:
    """Return the tensor of a record."""
    if len(record) < _HEADER_BYTES + _FOOTER_BYTES:
        raise Corrupt("An smdebug record is truncated.")
    (size,) = struct.unpack_from("<Q", record)
    event = memoryview(record)[_HEADER_BYTES : _HEADER_BYTES + size]
    if len(event) < size:
        raise Corrupt("An smdebug record is truncated.")
    tensor = event
    for field in (_EVENT_SUMMARY, _SUMMARY_VALUE, _VALUE_TENSOR):
        tensor = _field(tensor, field)
    return _decode_tensor(tensor)


def _decode_tensor(tensor: memoryview) -> RawTensor:
    dtype, content = "", memoryview(b"")
    shape: tuple[int, ...] = ()
    texts = []
    for number, value in _fields(tensor):
        if number == _TENSOR_DTYPE and isinstance(value, int):
            dtype = _DTYPES.get(value, "")
        elif number == _TENSOR_SHAPE and isinstance(value, memoryview):
            shape = tuple(_dim(each) for each in _all_fields(value, _SHAPE_DIM))
        elif number == _TENSOR_CONTENT and isinstance(value, memoryview):
            content = value
        elif number == _TENSOR_STRINGS and isinstance(value, memoryview):
            texts.append(bytes(value))
    if not dtype and texts:
        return RawTensor(TEXT, (len(texts),), b"\0".join(texts))
    if not dtype:
        raise Corrupt("An smdebug record has a tensor of an unknown dtype.")
    return RawTensor(dtype, shape, bytes(content))


def _dim(dim: memoryview) -> int:
    return next((value for number, value in _fields(dim) if number == _DIM_SIZE and isinstance(value, int)), 0)


def _field(message: memoryview, wanted: int) -> memoryview:
    value = next(iter(_all_fields(message, wanted)), None)
    if value is None:
        raise Corrupt("An smdebug record has no tensor.")
    return value


def _all_fields(message: memoryview, wanted: int) -> list[memoryview]:
    return [value for number, value in _fields(message) if number == wanted and isinstance(value, memoryview)]


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    offset = 0
    while offset < len(message):
        tag, offset = _varint(message, offset)
        kind = tag & 7
        if kind == _VARINT:
            value, offset = _varint(message, offset)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, offset = _varint(message, offset)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise Corrupt(f"An smdebug record has a field of the unknown wire type {kind}.")
        if offset + size > len(message):
            raise Corrupt("An smdebug record is truncated.")
        yield tag >> 3, message[offset : offset + size]
        offset += size


def _varint(message: memoryview, offset: int) -> tuple[int, int]:
    value = shift = 0
    while offset < len(message) and shift < 64:
        byte = message[offset]
        value |= (byte & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if byte < 0x80:
            return value, offset
    raise Corrupt("An smdebug record is truncated.")
