"""How deep a request may nest: only shapes that contain themselves set no bound of their own."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.model import Shape as ModelShape

DEEPEST = 64


def contains_itself(shape: "ModelShape | None") -> bool:
    """Whether a shape can nest without end."""
    bounded: set[str] = set()

    def recurs(inner: "ModelShape", above: frozenset[str]) -> bool:
        if inner.name in above:
            return True
        if inner.name in bounded:
            return False
        found = any(recurs(part, above | {inner.name}) for part in _parts(inner))
        bounded.add(inner.name)
        return found

    return shape is not None and recurs(shape, frozenset())


def _parts(shape: "ModelShape") -> "list[ModelShape]":
    if shape.type_name == "structure":
        return list(shape.members.values())
    if shape.type_name == "list":
        return [shape.member]
    return [shape.value] if shape.type_name == "map" else []


def check_nesting(value: Any, room: int = DEEPEST) -> None:
    """Raise ValueError for a value nested beyond what anything after parsing should have to walk."""
    if not isinstance(value, (dict, list)):
        return
    if room == 0:
        raise ValueError(f"The request is nested more than {DEEPEST} levels deep")
    for item in value.values() if isinstance(value, dict) else value:
        check_nesting(item, room - 1)
