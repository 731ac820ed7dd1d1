"""Reductions of tensors, and their names."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import SMDebugValueError
from .reduction_config import ALLOWED_NORMS, ALLOWED_REDUCTIONS

REDUCTIONS_PREFIX = "smdebug/reductions/"

_FUNCTIONS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "std": np.std,
    "variance": np.var,
    "sum": np.sum,
    "prod": np.prod,
    "l1": lambda values: np.sum(np.abs(values)),
    "l2": lambda values: np.sqrt(np.sum(np.square(np.abs(values)))),
}


def get_numpy_reduction(reduction_name: str, numpy_data: NDArray[Any], abs: bool = False) -> Any:  # noqa: A002
    """Return a reduction or a norm of all elements, or of their absolute values."""
    if reduction_name not in _FUNCTIONS:
        raise SMDebugValueError(f'"{reduction_name}" is not one of {", ".join(ALLOWED_REDUCTIONS + ALLOWED_NORMS)}.')
    return _FUNCTIONS[reduction_name](np.absolute(numpy_data) if abs else np.asarray(numpy_data))


def get_reduction_tensor_name(
    tensorname: str,
    reduction_name: str,
    abs: bool,  # noqa: A002
    remove_colon_index: bool = True,
) -> str:
    """Return the name of a tensor's reduction, without the :0 at the end of TensorFlow's names."""
    name = re.sub(r":\d+", "", tensorname) if remove_colon_index else tensorname
    return f"{REDUCTIONS_PREFIX}{'abs_' if abs else ''}{reduction_name}/{name}"


def reverse_reduction_tensor_name(reduction_tensor_name: str) -> tuple[str, str, bool]:
    """Return the tensor, the reduction, and whether it is one of absolute values."""
    reduction, _, tensor = reduction_tensor_name.removeprefix(REDUCTIONS_PREFIX).partition("/")
    return tensor, reduction.removeprefix("abs_"), reduction.startswith("abs_")
