"""Tensors in the event files of smdebug: a TFRecord whose data is an Event of TensorFlow, of which we read one tensor.

Protocol buffers are read as they lie on the wire: a tag with the number of a member and how it is encoded, and the
member. Of checksums smdebug writes a constant in place of that of the data, so that there is nothing to check.
"""

import struct
from collections.abc import Iterator

from trainyard.formats.tensors.safetensors import TEXT, RawTensor
from trainyard.foundation.errors import Corrupt

_HEADER_BYTES, _FOOTER_BYTES = 12, 4  # of a TFRecord
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# Members of Event, Summary, Value, TensorProto, TensorShapeProto and Dim.
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
    """The tensor of a record."""
    if len(record) < _HEADER_BYTES + _FOOTER_BYTES:
        raise Corrupt("A record of smdebug is cut off.")
    (size,) = struct.unpack_from("<Q", record)
    event = memoryview(record)[_HEADER_BYTES : _HEADER_BYTES + size]
    if len(event) < size:
        raise Corrupt("A record of smdebug is cut off.")
    tensor = event
    for member in (_EVENT_SUMMARY, _SUMMARY_VALUE, _VALUE_TENSOR):
        tensor = _member(tensor, member)
    return _decode_tensor(tensor)


def _decode_tensor(tensor: memoryview) -> RawTensor:
    dtype, content = "", memoryview(b"")
    shape: tuple[int, ...] = ()
    texts = []
    for number, value in _members(tensor):
        if number == _TENSOR_DTYPE and isinstance(value, int):
            dtype = _DTYPES.get(value, "")
        elif number == _TENSOR_SHAPE and isinstance(value, memoryview):
            shape = tuple(_dim(each) for each in _all(value, _SHAPE_DIM))
        elif number == _TENSOR_CONTENT and isinstance(value, memoryview):
            content = value
        elif number == _TENSOR_STRINGS and isinstance(value, memoryview):
            texts.append(bytes(value))
    if not dtype and texts:
        return RawTensor(TEXT, (len(texts),), b"\0".join(texts))
    if not dtype:
        raise Corrupt("A record of smdebug holds a tensor of a kind that is not known.")
    return RawTensor(dtype, shape, bytes(content))


def _dim(dim: memoryview) -> int:
    return next((value for number, value in _members(dim) if number == _DIM_SIZE and isinstance(value, int)), 0)


def _member(message: memoryview, wanted: int) -> memoryview:
    found = next(iter(_all(message, wanted)), None)
    if found is None:
        raise Corrupt("A record of smdebug holds no tensor.")
    return found


def _all(message: memoryview, wanted: int) -> list[memoryview]:
    return [value for number, value in _members(message) if number == wanted and isinstance(value, memoryview)]


def _members(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, place = _varint(message, place)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise Corrupt(f"A record of smdebug has a member of the unknown kind {kind}.")
        if place + size > len(message):
            raise Corrupt("A record of smdebug is cut off.")
        yield tag >> 3, message[place : place + size]
        place += size


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message) and shift < 64:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise Corrupt("A record of smdebug is cut off.")
