"""The names of a fault in a model: its shape, and its code in the query protocol."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.wire.fault import Fault

if TYPE_CHECKING:
    from botocore.model import OperationModel


@dataclass(frozen=True, slots=True)
class FaultNames:
    """How a fault is named: `shape` in JSON and CBOR, `code` in XML, and the member of its message."""

    shape: str
    code: str
    message_member: str = "message"
    integers: frozenset[str] = frozenset()

    def members(self, fault: Fault) -> dict[str, Any]:
        """Return the extra members of a fault, in the types of its shape."""
        return {name: int(value) if name in self.integers else value for name, value in fault.members.items()}


def fault_names(fault: Fault, operation: "OperationModel | None") -> FaultNames:
    """Look up a fault among the errors of the operation, by shape or code; an unlisted one has its code as both."""
    for shape in operation.error_shapes if operation is not None else ():
        code = shape.metadata.get("error", {}).get("code", shape.name)
        if fault.code in (shape.name, code):
            message = next((name for name in shape.members if name.lower() == "message"), "message")
            integers = frozenset(n for n, member in shape.members.items() if member.type_name in ("integer", "long"))
            return FaultNames(shape.name, code, message, integers)
    return FaultNames(fault.code, fault.code)


def fault_type(fault: Fault) -> str:
    """Return whose mistake a fault is, in AWS's words."""
    return "Sender" if fault.status < 500 else "Receiver"


def query_error(names: FaultNames, fault: Fault) -> tuple[str, str]:
    """Return the header with the query protocol's code, for services that once used that protocol."""
    return ("x-amzn-query-error", f"{names.code};{fault_type(fault)}")
