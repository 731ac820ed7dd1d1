"""How far apart the tensors of two files are, where the libraries that can read them are here."""

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
# What the libraries make of a file that they cannot read, and Python of a library that is not here.
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
    """The largest difference of two numbers at the same place, and the tensor that has it; 0 where all are equal."""

    value: float = 0.0
    where: str = ""


NONE = Distance()


def distance(first: Path, second: Path) -> Distance | None:
    """How far two files are apart; None where they hold something else than the same tensors, or cannot be read."""
    try:
        ours, theirs = _values(first), _values(second)
    except _UNREADABLE:
        return None
    if ours is None or theirs is None or ours.keys() != theirs.keys():
        return None
    furthest = NONE
    for name, value in ours.items():
        apart = _apart(value, theirs[name])
        if apart is None:
            return None
        furthest = max(furthest, Distance(apart, name), key=lambda each: each.value)
    return furthest


def _values(path: Path) -> Mapping[str, Any] | None:
    """Tensors and plain values by name; None for a file of another kind."""
    if path.suffix in _PICKLED:
        import torch

        return dict(_flat(torch.load(path, map_location="cpu", weights_only=True)))
    if path.suffix == ".safetensors":
        return _safe(path)
    if path.suffix in (".npz", ".npy"):
        import numpy
        import torch

        loaded = numpy.load(path, allow_pickle=False)
        arrays = {"": loaded} if path.suffix == ".npy" else dict(loaded)
        return {name: torch.from_numpy(numpy.ascontiguousarray(array)) for name, array in arrays.items()}
    return None


def _safe(path: Path) -> Mapping[str, "Tensor"]:
    """A safetensors file: eight bytes with the length of a JSON header, the header, and the bytes of the tensors."""
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


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """What lies in dictionaries and lists, by the way to it."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _flat(each, f"{name}[{number}]")
    else:
        yield name, value


def _apart(ours: Any, theirs: Any) -> float | None:
    """The largest difference; None for two things that are not of one kind."""
    import torch

    if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return None
        if ours.numel() == 0 or torch.equal(ours, theirs):
            return 0.0
        apart = (ours.double() - theirs.double()).abs().nan_to_num(nan=math.inf).max().item()
        return float(apart)
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        return abs(float(ours) - float(theirs))
    return 0.0 if type(ours) is type(theirs) and ours == theirs else None
