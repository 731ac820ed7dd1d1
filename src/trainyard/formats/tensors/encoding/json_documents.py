"""The JSON parts of a trial: tensor tables in file schemas, and the small JSON files beside the large ones."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trainyard.formats.tensors.contract import Kind, Measure, Probe, TensorInfo, TensorTable
from trainyard.foundation.errors import Corrupt
from trainyard.foundation.sources import ByteSource


@lru_cache(maxsize=8)
def encode_table(table: TensorTable) -> str:
    """Encode a table as JSON; empty fields are left out."""
    content = {"tensors": [_encode_tensor(each) for each in table.tensors]}
    if table.measures:
        content["measures"] = [_encode_measure(each) for each in table.measures]
    return json.dumps(content, separators=(",", ":"))


@lru_cache(maxsize=64)
def decode_table(text: str) -> TensorTable:
    """Decode what `encode_table` wrote; the same text gives the same object."""
    try:
        content = json.loads(text)
        tensors = tuple(_decode_tensor(each) for each in content["tensors"])
        return TensorTable(tensors, tuple(_decode_measure(each) for each in content.get("measures", ())))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"Cannot read a table of tensors: {error!r}.") from error


def read_json_object(source: ByteSource, name: str) -> dict[str, Any]:
    """Return the JSON object in a file; raise Corrupt if the file has any other content."""
    try:
        content = json.loads(source.read(name))
    # A program may have written lists nested so deep that the parser raises RecursionError.
    except (ValueError, RecursionError) as error:
        raise Corrupt(f'"{name}" in {source.place} is not valid JSON: {error}.') from error
    if not isinstance(content, dict):
        raise Corrupt(f'"{name}" in {source.place} is not a JSON object.')
    return content


def _encode_tensor(tensor: TensorInfo) -> dict[str, Any]:
    content: dict[str, Any] = {"name": tensor.name, "kind": tensor.kind, "shape": tensor.shape, "dtype": tensor.dtype}
    optional = {"collections": tensor.collections, "module": tensor.module, "whole_shape": tensor.whole_shape}
    return content | {name: value for name, value in optional.items() if value}


def _decode_tensor(content: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(
        content["name"],
        Kind(content["kind"]),
        tuple(content["shape"]),
        content["dtype"],
        tuple(content.get("collections", ())),
        content.get("module", ""),
        tuple(content.get("whole_shape", ())),
    )


def _encode_measure(measure: Measure) -> dict[str, Any]:
    return {"tensor": measure.tensor, "word": measure.probe.word, "parameters": measure.probe.parameters}


def _decode_measure(content: Mapping[str, Any]) -> Measure:
    return Measure(content["tensor"], Probe(content["word"], tuple(content.get("parameters", ()))))
