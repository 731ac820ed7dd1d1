"""awsJson 1.0 and 1.1: the operation is in X-Amz-Target; request and response are one JSON document each."""

from typing import TYPE_CHECKING, Any

from trainyard.wire.compression import plain_body
from trainyard.wire.fault import Fault
from trainyard.wire.http import ByteStream, HttpRequest, HttpResponse
from trainyard.wire.limits import limits_of
from trainyard.wire.protocols.contract import PlanCache, Shape
from trainyard.wire.protocols.documents import DocumentCompiler
from trainyard.wire.protocols.error_shapes import fault_names, query_error
from trainyard.wire.protocols.json_text import JSON_READERS, dump_json, json_scalar_writer, load_json

if TYPE_CHECKING:
    from botocore.model import OperationModel

    from trainyard.wire.routing import Route


class AwsJson:
    """The codec of services like SageMaker and CloudWatch Logs."""

    def __init__(self, version: str) -> None:
        self._content_type = f"application/x-amz-json-{version}"
        self._plans = PlanCache(DocumentCompiler(JSON_READERS, json_scalar_writer).compile)

    def takes_stream(self, operation: "OperationModel") -> bool:  # noqa: ARG002 - the contract's signature
        return False

    def parse(self, request: HttpRequest, route: "Route", stream: ByteStream | None = None) -> Shape:  # noqa: ARG002
        try:
            body = plain_body(request, route.operation)
            return self._plans.of(route.operation).shape(load_json(body, limits_of(route.operation).values))
        except ValueError as error:
            raise Fault("SerializationException", str(error)) from error

    def serialise(self, route: "Route", shape: Shape, *, request_id: str) -> HttpResponse:
        write = self._plans.of(route.operation).write
        body = dump_json(write(shape)) if write is not None else b""
        return HttpResponse(200, self._headers(request_id, body), body)

    def serialise_fault(
        self, fault: Fault, *, request_id: str, route: "Route | None" = None, is_head: bool = False
    ) -> HttpResponse:
        operation = route.operation if route is not None else None
        names = fault_names(fault, operation)
        document: dict[str, Any] = {"__type": names.shape, names.message_member: fault.message, **names.members(fault)}
        body = b"" if is_head else dump_json(document)
        headers = self._headers(request_id, body)
        headers.append(("x-amzn-ErrorType", names.shape))
        if operation is not None and operation.service_model.is_query_compatible:
            headers.append(query_error(names, fault))
        headers.extend(fault.headers.items())
        return HttpResponse(fault.status, headers, body)

    def _headers(self, request_id: str, body: bytes) -> list[tuple[str, str]]:
        return [
            ("x-amzn-RequestId", request_id),
            ("Content-Type", self._content_type),
            ("Content-Length", str(len(body))),
        ]
