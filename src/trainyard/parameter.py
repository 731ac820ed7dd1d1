"""Ranges of tuned hyperparameters: numbers between two bounds, or one of several values."""

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import Shape, require_word

__all__ = ["CategoricalParameter", "ContinuousParameter", "IntegerParameter", "NumericParameter", "ParameterRange"]

SCALINGS = ("Auto", "Linear", "Logarithmic", "ReverseLogarithmic")


class ParameterRange(ABC):
    """The base of all ranges: the values that a hyperparameter may have."""

    kind: ClassVar[str]

    @abstractmethod
    def as_tuning_range(self, name: str) -> Shape:
        """Return the range in the form of the SageMaker API, where every value is a string.

        Args:
            name: Name of the hyperparameter.
        """

    @abstractmethod
    def is_valid(self, value: Any) -> bool:
        """Return whether a value lies in the range.

        Args:
            value: The value to check.
        """


class NumericParameter(ParameterRange):
    """The numbers between two bounds, both included.

    Args:
        min_value: The lower bound.
        max_value: The upper bound.
        scaling_type: The scale on which to search: `Auto`, `Linear`, `Logarithmic` or `ReverseLogarithmic`.

    Raises:
        InvalidRequest: The lower bound is above the upper bound.
    """

    def __init__(self, min_value: float, max_value: float, scaling_type: str = "Auto") -> None:
        require_word("scaling_type", scaling_type, SCALINGS)
        if min_value > max_value:
            raise InvalidRequest(f"The range from {min_value} to {max_value} is empty; swap the bounds.")
        self.min_value, self.max_value, self.scaling_type = min_value, max_value, scaling_type

    def as_tuning_range(self, name: str) -> Shape:
        ends = {"MinValue": str(self.min_value), "MaxValue": str(self.max_value)}
        return {"Name": name, **ends, "ScalingType": self.scaling_type}

    def is_valid(self, value: Any) -> bool:
        return bool(self.min_value <= value <= self.max_value)


class ContinuousParameter(NumericParameter):
    """A range of real numbers; the arguments are those of `NumericParameter`."""

    kind: ClassVar[str] = "Continuous"

    @classmethod
    def cast_to_type(cls, value: Any) -> float:
        """Return a value as the type of this range.

        Args:
            value: The value to convert.
        """
        return float(value)


class IntegerParameter(NumericParameter):
    """A range of whole numbers; the arguments are those of `NumericParameter`."""

    kind: ClassVar[str] = "Integer"

    @classmethod
    def cast_to_type(cls, value: Any) -> int:
        """Return a value as the type of this range.

        Args:
            value: The value to convert.
        """
        return int(value)


class CategoricalParameter(ParameterRange):
    """One of several values, stored as strings.

    Args:
        values: The values: a list, a tuple, or a single value.
    """

    kind: ClassVar[str] = "Categorical"

    def __init__(self, values: Any) -> None:
        listed = values if isinstance(values, list | tuple) else [values]
        self.values = [str(value) for value in listed]

    def as_tuning_range(self, name: str) -> Shape:
        return {"Name": name, "Values": list(self.values)}

    def as_json_range(self, name: str) -> Shape:
        """Return the range for a framework script, which reads its hyperparameters as JSON.

        Args:
            name: Name of the hyperparameter.
        """
        return {"Name": name, "Values": [json.dumps(value) for value in self.values]}

    def is_valid(self, value: Any) -> bool:
        return value in self.values

    @classmethod
    def cast_to_type(cls, value: Any) -> str:
        """Return a value as the type of this range.

        Args:
            value: The value to convert.
        """
        return str(value)


KINDS: tuple[type[ParameterRange], ...] = (ContinuousParameter, CategoricalParameter, IntegerParameter)
