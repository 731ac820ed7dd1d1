"""What a hyperparameter may be while it is tuned: a range of numbers, or one of several values."""

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import Shape, require_word

SCALINGS = ("Auto", "Linear", "Logarithmic", "ReverseLogarithmic")


class ParameterRange(ABC):
    """The values that a hyperparameter may have."""

    kind: ClassVar[str]

    @abstractmethod
    def as_tuning_range(self, name: str) -> Shape:
        """The range of the hyperparameter of a name, as a request has it: every value is a text."""

    @abstractmethod
    def is_valid(self, value: Any) -> bool:
        """Whether a hyperparameter of this range can have a value."""


class NumericParameter(ParameterRange):
    """The numbers from one to another, both included; `scaling_type` says what is a step of equal size."""

    def __init__(self, min_value: float, max_value: float, scaling_type: str = "Auto") -> None:
        require_word("scaling_type", scaling_type, SCALINGS)
        if min_value > max_value:
            raise InvalidRequest(f"A range from {min_value} to {max_value} holds nothing; exchange its ends.")
        self.min_value, self.max_value, self.scaling_type = min_value, max_value, scaling_type

    def as_tuning_range(self, name: str) -> Shape:
        ends = {"MinValue": str(self.min_value), "MaxValue": str(self.max_value)}
        return {"Name": name, **ends, "ScalingType": self.scaling_type}

    def is_valid(self, value: Any) -> bool:
        return bool(self.min_value <= value <= self.max_value)


class ContinuousParameter(NumericParameter):
    """A real number."""

    kind: ClassVar[str] = "Continuous"

    @classmethod
    def cast_to_type(cls, value: Any) -> float:
        return float(value)


class IntegerParameter(NumericParameter):
    """A whole number."""

    kind: ClassVar[str] = "Integer"

    @classmethod
    def cast_to_type(cls, value: Any) -> int:
        return int(value)


class CategoricalParameter(ParameterRange):
    """One of several values. They are kept as texts, as requests have them."""

    kind: ClassVar[str] = "Categorical"

    def __init__(self, values: Any) -> None:
        several = values if isinstance(values, list | tuple) else [values]
        self.values = [str(value) for value in several]

    def as_tuning_range(self, name: str) -> Shape:
        return {"Name": name, "Values": list(self.values)}

    def as_json_range(self, name: str) -> Shape:
        """The same for a script of a framework, which reads its hyperparameters as JSON."""
        return {"Name": name, "Values": [json.dumps(value) for value in self.values]}

    def is_valid(self, value: Any) -> bool:
        return value in self.values

    @classmethod
    def cast_to_type(cls, value: Any) -> str:
        return str(value)


KINDS: tuple[type[ParameterRange], ...] = (ContinuousParameter, CategoricalParameter, IntegerParameter)
