"""Takes from a value what a request can have: descriptions of resources have more members than the request for one."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from botocore.model import Shape as ModelShape


def request_members(operation: "OperationModel", value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that a request of the operation has, at every level, without empty ones."""
    assert operation.input_shape is not None, f"{operation.name} has members"
    found: dict[str, Any] = _members_of(operation.input_shape, value)
    return found


def _members_of(shape: "ModelShape", value: Any) -> Any:
    if shape.type_name == "structure" and isinstance(value, Mapping):
        found = {name: _members_of(member, value[name]) for name, member in shape.members.items() if name in value}
        return {name: member for name, member in found.items() if member not in ("", {}, [], None)}
    if shape.type_name == "list" and isinstance(value, Sequence):
        return [_members_of(shape.member, each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value
