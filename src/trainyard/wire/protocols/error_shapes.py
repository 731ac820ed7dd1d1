"""The names a fault has in a model: its shape's, and the code that the query protocol has for it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.wire.fault import Fault

if TYPE_CHECKING:
    from botocore.model import OperationModel


@dataclass(frozen=True, slots=True)
class FaultNames:
    """How one fault is spelled: `shape` in JSON and CBOR, `code` in XML, and the member its message goes by."""

    shape: str
    code: str
    message_member: str = "message"
    integers: frozenset[str] = frozenset()

    def members(self, fault: Fault) -> dict[str, Any]:
        """The extra members of a fault, in the types of its shape."""
        return {name: int(value) if name in self.integers else value for name, value in fault.members.items()}


def fault_names(fault: Fault, operation: "OperationModel | None") -> FaultNames:
    """Look a fault up among the errors of the operation, by either name; unlisted ones are spelled one way."""
    for shape in operation.error_shapes if operation is not None else ():
        code = shape.metadata.get("error", {}).get("code", shape.name)
        if fault.code in (shape.name, code):
            message = next((name for name in shape.members if name.lower() == "message"), "message")
            integers = frozenset(n for n, member in shape.members.items() if member.type_name in ("integer", "long"))
            return FaultNames(shape.name, code, message, integers)
    return FaultNames(fault.code, fault.code)


def blame(fault: Fault) -> str:
    """Whose mistake a fault is, in AWS's words."""
    return "Sender" if fault.status < 500 else "Receiver"


def query_error(names: FaultNames, fault: Fault) -> tuple[str, str]:
    """The header by which a service that once spoke the query protocol tells its old code."""
    return ("x-amzn-query-error", f"{names.code};{blame(fault)}")
