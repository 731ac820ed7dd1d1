"""Requests generated from the service models: mostly plausible, never sensible."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StringShape, StructureShape

from trainyard.server.services.registry import MODULES, service
from trainyard.wire.models import OWN_MODELS

# By member name in lower case: names of existing things in the yard.
Names = Mapping[str, Sequence[str]]

# The yard refuses old metrics and log events.
_NOW = datetime.now(UTC)

# HTTP sets these itself.
_NEVER = frozenset({"ContentLength"})
_DEEP = 5

# Members that are optional in the models, but without which every request is refused.
_ESSENTIAL = {
    "CompleteMultipartUploadRequest": {"MultipartUpload"},
    "CompletedMultipartUpload": {"Parts"},
    "CompletedPart": {"ETag", "PartNumber"},
    "GetMetricStatisticsInput": {"Statistics"},
    "Metric": {"MetricName", "Namespace"},
    "MetricDataQuery": {"MetricStat"},
    "MetricDatum": {"Value"},
    "PutMetricDataInput": {"MetricData"},
}
# Numbers with only a few valid values, which the models do not list.
_NUMBERS = {"Period": (60, 300, 3600), "retentionInDays": (7, 30), "PartNumber": (1, 1, 2)}

_ODD_TEXTS = (
    "",
    " ",
    "a",
    "\0",
    "a\0b",
    "../../etc/passwd",
    "..",
    "%00%2e%2e",
    "a" * 70,
    "b" * 3000,
    "späß 日本 😀",
    "' OR 1=1 --",
    "<a>&amp;</a>",
    "{}[]()*+?.\\^$|",
    "arn:aws:iam::000000000000:role/nobody",
    "-1",
    "null",
    "\ufeff\u202e\uffff",
)


@dataclass(frozen=True, slots=True)
class Target:
    """One served operation, in one of the protocols that its service speaks."""

    service: str
    operation: OperationModel
    protocol: str

    def __str__(self) -> str:
        return f"{self.service}.{self.operation.name} ({self.protocol})"


@cache
def targets() -> tuple[Target, ...]:
    """Return every operation that the yard serves, in each of its protocols."""
    return tuple(
        Target(name, model.operation_model(operation), protocol)
        for name, model in ((name, _model(name)) for name in MODULES)
        for operation in sorted(service(name).operations)
        for protocol in model.metadata.get("protocols", [model.metadata["protocol"]])
    )


@cache
def _model(name: str) -> ServiceModel:
    return ServiceModel(Loader(extra_search_paths=[str(OWN_MODELS)]).load_service_model(name, "service-2"), name)


@dataclass(frozen=True, slots=True)
class Values:
    """Generates values for shapes: from `names` if it has the member's name, and sometimes odd ones."""

    dice: random.Random
    names: Names
    oddity: float = 0.05
    generosity: float = 0.15

    def request(self, target: Target) -> dict[str, Any]:
        shape = target.operation.input_shape
        return {} if shape is None else self._structure(shape, 0)

    def _structure(self, shape: StructureShape, depth: int) -> dict[str, Any]:
        required = {*shape.required_members, *_ESSENTIAL.get(shape.name, ())}
        chosen = [name for name in shape.members if name in required or self._gives(depth)]
        if shape.metadata.get("union"):
            chosen = chosen[:1]
        return {name: self._value(shape.members[name], name, depth + 1) for name in chosen if name not in _NEVER}

    def _gives(self, depth: int) -> bool:
        return depth < _DEEP and self.dice.random() < self.generosity

    def _value(self, shape: Shape, name: str, depth: int) -> Any:
        match shape.type_name:
            case "structure":
                return self._structure(shape, depth)
            case "list":
                return self._list(shape, name, depth)
            case "map":
                return self._map(shape, depth)
            case "string":
                return self._text(shape, name)
            case "integer" | "long":
                return self._number(shape, name)
            case "float" | "double":
                return self.dice.choice([0.0, -1.5, 1e300, 1e-300, float(self._number(shape, name))])
            case "boolean":
                return self.dice.random() < 0.5
            case "timestamp":
                return self._moment(name)
            case "blob":
                return self.dice.randbytes(self.dice.choice([0, 1, 100, 20_000]))
            case other:
                raise AssertionError(f"{shape.name} has the type {other}, for which no values are generated")

    def _list(self, shape: ListShape, name: str, depth: int) -> list[Any]:
        least = int(shape.metadata.get("min", 0))
        count = max(least, self.dice.choice([0, 1, 1, 2, 3]))
        return [self._value(shape.member, name, depth + 1) for _ in range(count)]

    def _map(self, shape: MapShape, depth: int) -> dict[str, Any]:
        count = self.dice.choice([0, 1, 2])
        return {f"key-{number}": self._value(shape.value, "", depth + 1) for number in range(count)}

    def _text(self, shape: StringShape, name: str) -> str:
        if self.dice.random() < self.oddity:
            return self.dice.choice(_ODD_TEXTS)
        if name.lower() in self.names:
            return self.dice.choice(self.names[name.lower()])
        if shape.enum:
            return str(self.dice.choice(shape.enum))
        least, most = int(shape.metadata.get("min", 1)), int(shape.metadata.get("max", 40))
        length = max(least, min(most, self.dice.choice([1, 8, 20, 40])))
        return "".join(self.dice.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))

    def _number(self, shape: Shape, name: str) -> int:
        least, most = int(shape.metadata.get("min", 0)), int(shape.metadata.get("max", 1000))
        if self.dice.random() < self.oddity:
            return self.dice.choice([-1, 0, least - 1, most + 1, 2**31, 2**63 - 1, -(2**63)])
        if name in _NUMBERS:
            return self.dice.choice(_NUMBERS[name])
        # The time of a log event, in milliseconds.
        if name == "timestamp":
            return int(self._moment(name).timestamp() * 1000)
        return self.dice.randint(least, max(least, most))

    def _moment(self, name: str) -> datetime:
        if self.dice.random() < self.oddity:
            return datetime(self.dice.choice([1, 1970, 2024, 9998]), 2, 3, 4, 5, 6, tzinfo=UTC)
        hours = {"StartTime": -2, "EndTime": 2}.get(name, 0)
        return _NOW + timedelta(hours=hours, seconds=self.dice.randint(-1800, 1800))
