"""Which tensors and arrays are in a file, read from its header alone."""

import json
import math
import re
import struct
from typing import Any

from trainyard.server.services.contract import Shape

# The format allows 100 MB; a model with a hundred thousand tensors needs less than this.
MAX_HEADER_BYTES = 12 * 1024 * 1024
MAX_SHOWN = 5000
NUMPY_MAGIC = b"\x93NUMPY"

_MAX_DIMENSIONS = 64
_DESCRIPTION = re.compile(r"'descr':\s*('[^']{0,40}'|\[.{0,2000}?\])")
_SHAPE = re.compile(r"'shape':\s*\(([0-9, ]{0,400})\)")


def safetensors_header_size(head: bytes) -> int | None:
    """Return how long the header is of a file that begins like safetensors; None for any other file."""
    if len(head) < 9 or head[8:9] != b"{":
        return None
    size: int = struct.unpack_from("<Q", head)[0]
    return size if 2 <= size <= MAX_HEADER_BYTES else None


def safetensors_tensors(header: bytes) -> Shape | None:
    """Return the tensors that a header names, in the order of their bytes; None if it is no such header."""
    try:
        fields = json.loads(header)
        metadata = fields.pop("__metadata__", {})
        tensors = [_tensor(name, each) for name, each in fields.items()]
        about = {str(name): str(value)[:500] for name, value in list(metadata.items())[:50]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    tensors.sort(key=lambda each: each["start"])
    return {
        "tensors": tensors[:MAX_SHOWN],
        "total": len(tensors),
        "elements": sum(math.prod(each["shape"]) for each in tensors),
        "bytes": sum(each["bytes"] for each in tensors),
        "metadata": about,
    }


def numpy_array(head: bytes) -> Shape | None:
    """Return the dtype and shape of a numpy array, by the start of its file; None if it is none."""
    if not head.startswith(NUMPY_MAGIC) or len(head) < 12:
        return None
    # Versions differ in how the length of the header is written.
    length, start = (struct.unpack_from("<H", head, 8)[0], 10) if head[6] == 1 else (_long_length(head), 12)
    text = head[start : start + length].decode("latin-1")
    dtype, shape = _DESCRIPTION.search(text), _SHAPE.search(text)
    if dtype is None or shape is None:
        return None
    sides = [int(each) for each in shape[1].split(",") if each.strip()][:_MAX_DIMENSIONS]
    return {
        "dtype": dtype[1].strip("'"),
        "shape": sides,
        "elements": math.prod(sides),
        "isColumnMajor": "'fortran_order': True" in text,
    }


def _long_length(head: bytes) -> int:
    return int(struct.unpack_from("<I", head, 8)[0])


def _tensor(name: str, fields: dict[str, Any]) -> Shape:
    start, end = (int(each) for each in fields["data_offsets"])
    shape = [int(each) for each in fields["shape"]][:_MAX_DIMENSIONS]
    return {
        "name": str(name)[:500],
        "dtype": str(fields["dtype"])[:40],
        "shape": shape,
        "bytes": end - start,
        "start": start,
    }
