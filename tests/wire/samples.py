"""Deterministic sample values for the shapes of a model, chosen to break careless codecs."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

AWKWARD = "täg <&> \"two\" 'three'\n\tfour ]]> 五 \U0001f686"
HEADER = 'a header; q="1"'
LABEL = "a label, ü+%2F"
KEY = "/a//b/../c d+ü%2F&=?#/"
BYTES = bytes(range(256))


@dataclass(frozen=True, slots=True)
class Sampler:
    """Fills every member of a shape; `millis` is the fraction of timestamps in formats that have one."""

    millis: int = 0

    def sample(self, shape: Any, above: tuple[str, ...] = ()) -> Any:
        if shape.type_name == "structure":
            return self._structure(shape, (*above, shape.name))
        if shape.type_name == "list":
            return [self.sample(shape.member, (*above, shape.name)) for _ in range(2)]
        if shape.serialization.get("location") == "headers":
            return {"one-key": HEADER, "another": "2"}
        if shape.type_name == "map":
            return {str(self._scalar(shape.key)): self.sample(shape.value, (*above, shape.name))}
        return self._scalar(shape)

    def _structure(self, shape: Any, above: tuple[str, ...]) -> dict[str, Any]:
        members = {
            name: member
            for name, member in shape.members.items()
            if member.name not in above and not _reaches(member, set(above)) and not _is_events(member)
        }
        if shape.metadata.get("union"):
            members = dict(list(members.items())[:1])
        return {name: self.sample(member, above) for name, member in members.items()}

    def _scalar(self, shape: Any) -> Any:
        if shape.metadata.get("enum"):
            return shape.metadata["enum"][-1]
        location = shape.serialization.get("location")
        if shape.serialization.get("hostLabel"):
            return "host-label"
        if shape.type_name == "string":
            return {"uri": KEY if shape.name == "ObjectKey" else LABEL, "header": HEADER}.get(location, AWKWARD)
        if shape.type_name == "timestamp":
            kind = shape.serialization.get("timestampFormat", "rfc822" if location == "header" else "iso8601")
            return datetime(2026, 1, 31, 12, 34, 56, 0 if kind == "rfc822" else self.millis * 1000, UTC)
        if shape.type_name == "blob":
            return BYTES
        return {"integer": -7, "long": 2**53 + 1, "float": 0.1, "double": -2.5e-300, "boolean": True}[shape.type_name]


def _reaches(shape: Any, names: set[str]) -> bool:
    """Whether a list or a map refers to a structure that is being filled."""
    while shape.type_name in ("list", "map"):
        shape = shape.member if shape.type_name == "list" else shape.value
    return shape.name in names


def _is_events(shape: Any) -> bool:
    return bool(shape.serialization.get("eventstream"))
