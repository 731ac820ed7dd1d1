"""Compare the tensors of two files, if the libraries that read them are installed."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import PickleError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

if TYPE_CHECKING:
    from torch import Tensor

_PICKLED = frozenset({".pt", ".pth", ".bin", ".ckpt"})
# What the libraries raise for a file that they cannot read, and Python for a library that is not installed.
_UNREADABLE = (
    ImportError,
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    PickleError,
    BadZipFile,
)
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


@dataclass(frozen=True, slots=True)
class Distance:
    """The largest difference of two corresponding numbers, and the name of the tensor; 0 if all are equal."""

    value: float = 0.0
    where: str = ""


NO_DISTANCE = Distance()


def tensor_distance(first: Path, second: Path) -> Distance | None:
    """Return the distance of two files; None if one cannot be read or they do not hold the same tensors."""
    try:
        ours, theirs = _values(first), _values(second)
    except _UNREADABLE:
        return None
    if ours is None or theirs is None or ours.keys() != theirs.keys():
        return None
    largest = NO_DISTANCE
    for name, value in ours.items():
        difference = _difference(value, theirs[name])
        if difference is None:
            return None
        largest = max(largest, Distance(difference, name), key=lambda each: each.value)
    return largest


def _values(path: Path) -> Mapping[str, Any] | None:
    """Return the tensors and plain values of a file by name; None for a file of another type."""
    if path.suffix in _PICKLED:
        import torch

        return dict(_flatten(torch.load(path, map_location="cpu", weights_only=True)))
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".npz", ".npy"):
        import numpy
        import torch

        loaded = numpy.load(path, allow_pickle=False)
        arrays = {"": loaded} if path.suffix == ".npy" else dict(loaded)
        return {name: torch.from_numpy(numpy.ascontiguousarray(array)) for name, array in arrays.items()}
    return None


def _read_safetensors(path: Path) -> Mapping[str, "Tensor"]:
    """Read a file that has the length of a JSON header in eight bytes, the header, and the bytes of the tensors."""
    import torch

    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        dtype = getattr(torch, _DTYPES[entry["dtype"]])
        part = data[8 + length + start : 8 + length + end]
        flat = torch.frombuffer(part, dtype=dtype) if part else torch.empty(0, dtype=dtype)
        found[name] = flat.reshape(entry["shape"])
    return found


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in nested dictionaries and lists, each with its path."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flatten(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _flatten(each, f"{name}[{number}]")
    else:
        yield name, value


def _difference(ours: Any, theirs: Any) -> float | None:
    """Return the largest difference; None for values of different types."""
    import torch

    if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return None
        if ours.numel() == 0 or torch.equal(ours, theirs):
            return 0.0
        return float((ours.double() - theirs.double()).abs().nan_to_num(nan=math.inf).max().item())
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return abs(float(ours) - float(theirs))
    return 0.0 if type(ours) is type(theirs) and ours == theirs else None
