"""The table of a worker's tensors as text, in the schema of each file of its steps."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trainyard.formats.tensors.contract import Kind, Measure, Probe, TensorInfo, TensorTable
from trainyard.foundation.errors import Corrupt


@lru_cache(maxsize=8)
def encode_table(table: TensorTable) -> str:
    """A table as JSON; what is empty is left out."""
    told = {"tensors": [_plain(each) for each in table.tensors]}
    if table.measures:
        told["measures"] = [_plain_measure(each) for each in table.measures]
    return json.dumps(told, separators=(",", ":"))


@lru_cache(maxsize=64)
def decode_table(text: str) -> TensorTable:
    """The table that `encode_table` wrote; the same text gives the same one."""
    try:
        told = json.loads(text)
        tensors = tuple(_tensor(each) for each in told["tensors"])
        return TensorTable(tensors, tuple(_measure(each) for each in told.get("measures", ())))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"A table of tensors cannot be read: {error!r}.") from error


def _plain(tensor: TensorInfo) -> dict[str, Any]:
    told: dict[str, Any] = {"name": tensor.name, "kind": tensor.kind, "shape": tensor.shape, "dtype": tensor.dtype}
    optional = {"collections": tensor.collections, "module": tensor.module, "whole_shape": tensor.whole_shape}
    return told | {name: value for name, value in optional.items() if value}


def _tensor(told: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(
        told["name"],
        Kind(told["kind"]),
        tuple(told["shape"]),
        told["dtype"],
        tuple(told.get("collections", ())),
        told.get("module", ""),
        tuple(told.get("whole_shape", ())),
    )


def _plain_measure(measure: Measure) -> dict[str, Any]:
    return {"tensor": measure.tensor, "word": measure.probe.word, "parameters": measure.probe.parameters}


def _measure(told: Mapping[str, Any]) -> Measure:
    return Measure(told["tensor"], Probe(told["word"], tuple(told.get("parameters", ()))))
