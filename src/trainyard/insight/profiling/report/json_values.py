"""Values of any kind as JSON that every reader accepts: no NaN, no infinity, no numbers of numpy."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

_MAX_DEPTH = 12


def to_json_value(value: object, *, depth: int = 0) -> Any:
    """Return the value as JSON has it. What is not a number becomes null, and what JSON cannot say becomes text."""
    if depth > _MAX_DEPTH:
        return str(value)[:200]
    if isinstance(value, Enum):
        return value.name.lower() if isinstance(value, int) else value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.generic | np.ndarray):
        return to_json_value(value.tolist(), depth=depth + 1)
    if dataclasses.is_dataclass(value):
        members = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return to_json_value(members, depth=depth)
    if isinstance(value, Mapping):
        return {_key(key): to_json_value(member, depth=depth + 1) for key, member in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [to_json_value(each, depth=depth + 1) for each in value]
    return str(value)


def _key(key: object) -> str:
    return str(to_json_value(key)) if isinstance(key, Enum) else str(key)


def encode_json(value: object) -> str:
    """Return JSON that is also inert inside a script element: no `<`, `>` or `&`, and ASCII only."""
    text = json.dumps(to_json_value(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
