"""Small functions that scripts import from here."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import SMDebugTypeError


class FRAMEWORK(Enum):
    """The frameworks that have hooks."""

    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    MXNET = "mxnet"
    XGBOOST = "xgboost"


def make_numpy_array(x: object) -> NDArray[Any]:
    """Convert a value to an array; a number becomes an array of one."""
    if isinstance(x, np.ndarray):
        return x
    if np.isscalar(x):
        return np.array([x])
    if isinstance(x, tuple | list | dict):
        return np.asarray(x)
    raise SMDebugTypeError(f"A value of type {type(x).__name__} cannot be converted to an array.")


def flatten(lis: Iterable[Any]) -> list[Any]:
    """Return the items of nested lists in one list."""
    return [inner for item in lis for inner in (flatten(item) if isinstance(item, list) else [item])]


def split(comma_separated_string: str) -> list[str]:
    return [word.strip() for word in comma_separated_string.split(",")]


def merge_two_dicts(x: Mapping[Any, Any], y: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return both dicts merged; the second wins."""
    return {**x, **y}


def is_s3(path: str) -> tuple[bool, str | None, str | None]:
    """Return whether a path is on S3, and if so its bucket and key."""
    if not path.startswith("s3://"):
        return False, None, None
    bucket, _, rest = path.removeprefix("s3://").partition("/")
    return True, bucket, rest


def match_inc(tname: str, include: Iterable[str]) -> bool:
    """Whether any of the regexes is found anywhere in a name."""
    return any(re.search(regex, tname) for regex in include)


def step_in_range(range_steps: Sequence[int | None], step: int) -> bool:
    """Whether a step is in the half-open range; None means no limit."""
    first, end = range_steps
    return (first is None or step >= int(first)) and (end is None or step < int(end))
