"""The query protocol: requests are forms with dotted names, responses are XML."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.wire.addressing import decode_parameter, decode_parameters
from trainyard.wire.compression import plain_body, plain_start
from trainyard.wire.fault import Fault
from trainyard.wire.http import ByteStream, HttpRequest, HttpResponse
from trainyard.wire.limits import DEFAULT_LIMITS, limits_of, too_large, too_many_values
from trainyard.wire.protocols.contract import PlanCache, Shape
from trainyard.wire.protocols.documents import check_nesting, contains_itself
from trainyard.wire.protocols.error_shapes import fault_names, fault_type
from trainyard.wire.protocols.scalars import text_reader
from trainyard.wire.protocols.xml_shapes import Write, XmlWriter
from trainyard.wire.protocols.xml_text import DECLARATION, escape, escape_well_formed

if TYPE_CHECKING:
    from botocore.model import OperationModel, ServiceModel
    from botocore.model import Shape as ModelShape

    from trainyard.wire.routing import Route

# Maps the next part of a dotted name to another node or to the text of a value.
Node = dict[str, Any]
Read = Callable[[Any], Any]

_MAX_NAME_PARTS = 32
# Every client names the action within this much of a form.
_ACTION_SEARCH_BYTES = 64 * 1024
_ACTION = re.compile(r"(?:^|&)(Action|Version)=([^&]*)")


@dataclass(frozen=True, slots=True)
class _QueryPlan:
    read: Read | None
    is_recursive: bool
    opening: str
    write: Write | None
    closing: str


class AwsQuery:
    """The codec of STS, IAM and, for older clients, CloudWatch."""

    def __init__(self) -> None:
        self._compilers: dict[ServiceModel, tuple[_FormReader, XmlWriter]] = {}
        self._plans = PlanCache(self._compile)

    def takes_stream(self, operation: "OperationModel") -> bool:  # noqa: ARG002 - the contract's signature
        return False

    def parse(self, request: HttpRequest, route: "Route", stream: ByteStream | None = None) -> Shape:  # noqa: ARG002
        plan = self._plans.of(route.operation)
        if plan.read is None:
            return {}
        try:
            shape: Shape = plan.read(_parse_tree(_form_parameters(request, route.operation)))
            if plan.is_recursive:
                check_nesting(shape)
        except (ValueError, RecursionError) as error:
            raise Fault("MalformedInput", str(error)) from error
        return shape

    def serialise(self, route: "Route", shape: Shape, *, request_id: str) -> HttpResponse:
        plan = self._plans.of(route.operation)
        pieces = [DECLARATION, plan.opening]
        if plan.write is not None:
            plan.write(shape, pieces.append)
        pieces.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>{plan.closing}")
        return xml_response(200, "".join(pieces), request_id=request_id)

    def serialise_fault(
        self, fault: Fault, *, request_id: str, route: "Route | None" = None, is_head: bool = False
    ) -> HttpResponse:
        names = fault_names(fault, route.operation if route is not None else None)
        namespace = _namespace(route.operation.service_model) if route is not None else ""
        members = "".join(f"<{name}>{escape_well_formed(value)}</{name}>" for name, value in fault.members.items())
        text = (
            f"{DECLARATION}<ErrorResponse{namespace}><Error><Type>{fault_type(fault)}</Type><Code>{names.code}</Code>"
            f"<Message>{escape_well_formed(fault.message)}</Message>{members}</Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        )
        response = xml_response(fault.status, "" if is_head else text, request_id=request_id)
        response.headers.extend(fault.headers.items())
        return response

    def _compile(self, operation: "OperationModel") -> _QueryPlan:
        service = operation.service_model
        if service not in self._compilers:
            self._compilers[service] = _FormReader(), XmlWriter("iso8601")
        reader, writer = self._compilers[service]
        input_shape, output_shape = operation.input_shape, operation.output_shape
        wrapper = output_shape.serialization.get("resultWrapper") if output_shape is not None else None
        opening, closing = f"<{operation.name}Response{_namespace(service)}>", f"</{operation.name}Response>"
        write = None
        if output_shape is not None:
            write = writer.compile(output_shape, wrapper) if wrapper else writer.content(output_shape)
        read = reader.compile(input_shape) if input_shape is not None else None
        return _QueryPlan(read, contains_itself(input_shape), opening, write, closing)


class Ec2Query(AwsQuery):
    """The codec of EC2. The yard serves none of its operations, so only faults differ."""

    def serialise_fault(
        self,
        fault: Fault,
        *,
        request_id: str,
        route: "Route | None" = None,  # noqa: ARG002 - the contract's signature
        is_head: bool = False,
    ) -> HttpResponse:
        text = (
            f"{DECLARATION}<Response><Errors><Error><Code>{fault.code}</Code>"
            f"<Message>{escape_well_formed(fault.message)}</Message></Error></Errors>"
            f"<RequestID>{request_id}</RequestID></Response>"
        )
        response = xml_response(fault.status, "" if is_head else text, request_id=request_id)
        response.headers.extend(fault.headers.items())
        return response


def action_of(request: HttpRequest) -> dict[str, str]:
    """Return the `Action` and the `Version` of a query call, if it names them.

    Reads the query string and the start of the form before the sender is authenticated, so the result is not trusted:
    parsing later refuses a call that names one twice.
    """
    places = (request.query, plain_start(request, _ACTION_SEARCH_BYTES).decode("latin-1"))
    return {name: decode_parameter(value) for place in places for name, value in _ACTION.findall(place)}


def _form_parameters(request: HttpRequest, operation: "OperationModel") -> list[tuple[str, str]]:
    """Return the parameters of a query call from its query string and its form."""
    body, max_values = plain_body(request, operation), limits_of(operation).values
    # Percent-escapes are expensive to decode, so forms keep to the default limit.
    if len(body) > DEFAULT_LIMITS.size_bytes:
        raise too_large(operation, DEFAULT_LIMITS.size_bytes, size_bytes=len(body))
    if body.count(b"&") >= max_values:
        raise too_many_values(max_values)
    parameters = decode_parameters(request.query) if request.query else []
    return parameters + decode_parameters(body.decode("latin-1"))


def xml_response(status: int, text: str, *, request_id: str) -> HttpResponse:
    body = text.encode("utf-8")
    headers = [
        ("x-amzn-RequestId", request_id),
        ("Content-Type", "text/xml"),
        ("Content-Length", str(len(body))),
    ]
    return HttpResponse(status, headers, body)


def _namespace(service: "ServiceModel") -> str:
    uri = service.metadata.get("xmlNamespace")
    return f' xmlns="{escape(uri)}"' if uri else ""


def _parse_tree(parameters: list[tuple[str, str]]) -> Node:
    root: Node = {}
    for name, value in parameters:
        *branches, leaf = name.split(".", _MAX_NAME_PARTS)
        node = root
        for part in branches:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ValueError(f"The parameter {name[:80]} is both a value and a structure")
        if leaf in node:
            raise ValueError(f"The parameter {name[:80]} is given twice")
        node[leaf] = value
    return root


class _FormReader:
    """Compiles readers of one service's shapes from the tree of a form."""

    def __init__(self) -> None:
        self._structures: dict[str, Read] = {}

    def compile(self, shape: "ModelShape") -> Read:
        kind = shape.type_name
        if kind == "structure":
            return self._structure(shape)
        if kind == "list":
            return self._list(shape)
        if kind == "map":
            return self._map(shape)
        return _scalar_reader(text_reader(kind))

    def _structure(self, shape: "ModelShape") -> Read:
        name: str = shape.name
        if name not in self._structures:
            self._structures[name] = lambda node: self._structures[name](node)
            members = {
                member.serialization.get("name", member_name): (member_name, self.compile(member))
                for member_name, member in shape.members.items()
            }
            self._structures[name] = _structure_reader(members)
        return self._structures[name]

    def _list(self, shape: "ModelShape") -> Read:
        read_items = _numbered_reader(self.compile(shape.member))
        if shape.serialization.get("flattened"):
            return read_items
        return _unwrapping_reader(shape.member.serialization.get("name", "member"), read_items)

    def _map(self, shape: "ModelShape") -> Read:
        entry = {
            shape.key.serialization.get("name", "key"): ("key", self.compile(shape.key)),
            shape.value.serialization.get("name", "value"): ("value", self.compile(shape.value)),
        }
        read_entries = _numbered_reader(_structure_reader(entry))
        read = read_entries if shape.serialization.get("flattened") else _unwrapping_reader("entry", read_entries)
        return lambda node: _map_of(read(node))


def _structure_reader(members: Mapping[str, tuple[str, Read]]) -> Read:
    def read(node: Any) -> dict[str, Any]:
        if not isinstance(node, dict):
            raise ValueError("Found a value where a structure is expected")
        return {members[name][0]: members[name][1](part) for name, part in node.items() if name in members}

    return read


def _unwrapping_reader(name: str, read_items: Read) -> Read:
    def read(node: Any) -> Any:
        if node == "":
            # Clients send an empty list this way.
            return []
        if not isinstance(node, dict) or node.keys() != {name}:
            raise ValueError(f"A list is expected as .{name}.1, .{name}.2 and so on")
        return read_items(node[name])

    return read


def _numbered_reader(read_item: Read) -> Read:
    def read(node: Any) -> list[Any]:
        if node == "":
            return []
        if not isinstance(node, dict) or not all(part.isascii() and part.isdigit() for part in node):
            raise ValueError("The items of a list must be numbered")
        return [read_item(node[part]) for part in sorted(node, key=_numeric_order)]

    return read


def _numeric_order(part: str) -> tuple[int, str]:
    # Sorts by number without parsing it, however long it is.
    return len(part), part


def _map_of(entries: list[dict[str, Any]]) -> dict[str, Any]:
    if not all(len(entry) == 2 for entry in entries):
        raise ValueError("An entry of a map needs a key and a value")
    return {entry["key"]: entry["value"] for entry in entries}


def _scalar_reader(read_text: Callable[[str], Any]) -> Read:
    def read(node: Any) -> Any:
        if not isinstance(node, str):
            raise ValueError("Found a structure where a value is expected")
        return read_text(node)

    return read
