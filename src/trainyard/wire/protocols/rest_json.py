"""rest-json: members are in the path, the query and headers; all others are in a JSON body."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.wire.fault import Fault
from trainyard.wire.http import ByteStream, HttpRequest, HttpResponse
from trainyard.wire.limits import limits_of
from trainyard.wire.protocols.bindings import RequestBindings, ResponseBindings, request_bindings, response_bindings
from trainyard.wire.protocols.contract import PlanCache, Shape
from trainyard.wire.protocols.documents import Convert, DocumentReader, DocumentWriter
from trainyard.wire.protocols.error_shapes import fault_names
from trainyard.wire.protocols.json_text import JSON_READERS, dump_json, json_scalar_writer, load_json

if TYPE_CHECKING:
    from botocore.model import OperationModel

    from trainyard.wire.routing import Route


@dataclass(frozen=True, slots=True)
class _RestJsonPlan:
    request: RequestBindings
    read_body: Convert | None
    response: ResponseBindings
    write_body: Convert | None


class RestJson:
    """The codec of the SageMaker runtime and of SageMaker metrics."""

    def __init__(self) -> None:
        self._plans = PlanCache(_compile)

    def takes_stream(self, operation: "OperationModel") -> bool:
        payload = self._plans.of(operation).request.payload
        return payload is not None and payload.is_stream

    def parse(self, request: HttpRequest, route: "Route", stream: ByteStream | None = None) -> Shape:
        plan = self._plans.of(route.operation)
        payload = plan.request.payload
        try:
            shape = plan.request.read(request, route.labels)
            if plan.read_body is not None:
                shape.update(plan.read_body(load_json(request.body, limits_of(route.operation).values)))
        except (ValueError, RecursionError) as error:
            raise Fault("SerializationException", str(error)) from error
        if payload is not None:
            shape[payload.member] = stream if payload.is_stream else request.body
        return shape

    def serialise(self, route: "Route", shape: Shape, *, request_id: str) -> HttpResponse:
        plan = self._plans.of(route.operation)
        headers = [("x-amzn-RequestId", request_id), *plan.response.write(shape)]
        if plan.response.payload is not None:
            body = shape.get(plan.response.payload.member, b"")
        else:
            body = dump_json(plan.write_body(shape)) if plan.write_body is not None else b""
            headers.append(("Content-Type", "application/json"))
        if isinstance(body, bytes):
            headers.append(("Content-Length", str(len(body))))
        return HttpResponse(plan.response.status, headers, body)

    def serialise_fault(
        self, fault: Fault, *, request_id: str, route: "Route | None" = None, is_head: bool = False
    ) -> HttpResponse:
        names = fault_names(fault, route.operation if route is not None else None)
        document: dict[str, Any] = {names.message_member: fault.message, **names.members(fault)}
        body = b"" if is_head else dump_json(document)
        headers = [
            ("x-amzn-RequestId", request_id),
            ("x-amzn-ErrorType", names.shape),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            *fault.headers.items(),
        ]
        return HttpResponse(fault.status, headers, body)


def _compile(operation: "OperationModel") -> _RestJsonPlan:
    request, response = request_bindings(operation), response_bindings(operation)
    reads = request.payload is None and request.has_body_members
    writes = response.payload is None and response.has_body_members
    return _RestJsonPlan(
        request=request,
        read_body=DocumentReader(JSON_READERS).compile(operation.input_shape) if reads else None,
        response=response,
        write_body=DocumentWriter(json_scalar_writer).compile(operation.output_shape) if writes else None,
    )
