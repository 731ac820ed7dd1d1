"""rest-xml, which only S3 uses, with its special cases."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element

from trainyard.wire.fault import Fault
from trainyard.wire.http import ByteStream, HttpRequest, HttpResponse, read_length
from trainyard.wire.limits import limits_of
from trainyard.wire.protocols.bindings import (
    BadParameter,
    Payload,
    RequestBindings,
    ResponseBindings,
    request_bindings,
    response_bindings,
)
from trainyard.wire.protocols.contract import PlanCache, Shape
from trainyard.wire.protocols.xml_shapes import Read, Write, XmlReader, XmlWriter
from trainyard.wire.protocols.xml_text import DECLARATION, escape, escape_well_formed, local_name, parse_xml

if TYPE_CHECKING:
    from botocore.model import OperationModel, ServiceModel

    from trainyard.wire.routing import Route

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"

# The root tags that S3 writes; the model omits them because clients ignore them.
_ROOT_TAGS = {
    "ListBuckets": "ListAllMyBucketsResult",
    "ListDirectoryBuckets": "ListAllMyDirectoryBucketsResult",
    "ListObjects": "ListBucketResult",
    "ListObjectsV2": "ListBucketResult",
    "ListObjectVersions": "ListVersionsResult",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "ListParts": "ListPartsResult",
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "CompleteMultipartUpload": "CompleteMultipartUploadResult",
    "DeleteObjects": "DeleteResult",
    "GetObjectAttributes": "GetObjectAttributesResponse",
    "GetObjectTagging": "Tagging",
    "GetBucketTagging": "Tagging",
    "GetBucketAcl": "AccessControlPolicy",
    "GetObjectAcl": "AccessControlPolicy",
    "GetBucketVersioning": "VersioningConfiguration",
    "GetBucketLocation": "LocationConstraint",
}
_INTEGER_TYPES = ("integer", "long")


@dataclass(frozen=True, slots=True)
class _RestXmlPlan:
    request: RequestBindings
    read_body: Callable[[bytes], Any] | None
    response: ResponseBindings
    write_body: Write | None
    is_head: bool


class RestXml:
    """The codec of S3."""

    def __init__(self) -> None:
        self._compilers: dict[ServiceModel, tuple[XmlReader, XmlWriter]] = {}
        self._plans = PlanCache(self._compile)

    def takes_stream(self, operation: "OperationModel") -> bool:
        payload = self._plans.of(operation).request.payload
        return payload is not None and payload.is_stream

    def parse(self, request: HttpRequest, route: "Route", stream: ByteStream | None = None) -> Shape:
        plan = self._plans.of(route.operation)
        try:
            shape = plan.request.read(request, route.labels)
        except BadParameter as error:
            raise _bad_parameter(error) from error
        payload = plan.request.payload
        if payload is not None and payload.is_stream:
            assert stream is not None, f"{route.operation.name} takes a stream"
            shape[payload.member] = stream
            _use_decoded_values(request, shape)
        elif plan.read_body is not None and request.body.strip():
            _read_into(shape, plan, request.body)
        return shape

    def serialise(self, route: "Route", shape: Shape, *, request_id: str) -> HttpResponse:
        plan = self._plans.of(route.operation)
        headers = [*_request_id_headers(request_id), *plan.response.write(shape)]
        # S3 answers 206 whenever it returns a range, for HEAD as well.
        status = 206 if shape.get("ContentRange") else plan.response.status
        body = b"" if plan.is_head else _body(plan, shape)
        if isinstance(body, bytes) and not plan.is_head and status != 204:
            _add_body_headers(headers, body, plan.response.payload)
        return HttpResponse(status, headers, body)

    def serialise_fault(
        self, fault: Fault, *, request_id: str, route: "Route | None" = None, is_head: bool = False
    ) -> HttpResponse:
        headers = [*_request_id_headers(request_id), *fault.headers.items()]
        if is_head or fault.status == 304:
            return HttpResponse(fault.status, headers)
        members = {"Resource": _resource(route), **fault.members, "RequestId": request_id, "HostId": request_id}
        text = "".join(f"<{name}>{escape_well_formed(value)}</{name}>" for name, value in members.items())
        body = (
            f"{DECLARATION}<Error><Code>{fault.code}</Code><Message>{escape_well_formed(fault.message)}</Message>"
            f"{text}</Error>"
        ).encode()
        headers += [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
        return HttpResponse(fault.status, headers, body)

    def _compile(self, operation: "OperationModel") -> _RestXmlPlan:
        service = operation.service_model
        if service not in self._compilers:
            self._compilers[service] = XmlReader(), XmlWriter("iso8601-millis")
        reader, writer = self._compilers[service]
        request, response = request_bindings(operation), response_bindings(operation)
        return _RestXmlPlan(
            request=request,
            read_body=_body_reader(operation, request, reader=reader),
            response=response,
            write_body=_body_writer(operation, response, writer=writer),
            is_head=operation.http["method"] == "HEAD",
        )


def _bad_parameter(error: BadParameter) -> Fault:
    message = f"Provided {error.name} is not a valid {error.type_name}"
    if error.type_name in _INTEGER_TYPES:
        message = f"Provided {error.name} not an integer or within integer range"
    return Fault("InvalidArgument", message, members={"ArgumentName": error.name, "ArgumentValue": error.value})


def _use_decoded_values(request: HttpRequest, shape: Shape) -> None:
    """Replace length and encoding of the `aws-chunked` message by those of the object."""
    decoded = read_length(request.headers.get("x-amz-decoded-content-length").strip())
    if decoded is not None:
        shape["ContentLength"] = decoded
    encoding = shape.get("ContentEncoding")
    if encoding is not None and "aws-chunked" in encoding:
        encodings = [token for item in encoding.split(",") if (token := item.strip()) != "aws-chunked"]
        shape["ContentEncoding"] = ",".join(encodings)
        if not encodings:
            del shape["ContentEncoding"]


def _read_into(shape: Shape, plan: _RestXmlPlan, body: bytes) -> None:
    assert plan.read_body is not None
    try:
        value = plan.read_body(body)
    except ValueError as error:
        message = "The XML you provided was not well-formed or did not validate against our published schema"
        raise Fault("MalformedXML", f"{message}. {error}.") from error
    if plan.request.payload is not None:
        shape[plan.request.payload.member] = value
    else:
        shape.update(value)


def _body_reader(
    operation: "OperationModel", bindings: RequestBindings, *, reader: XmlReader
) -> Callable[[bytes], Any] | None:
    payload, max_values = bindings.payload, limits_of(operation).values
    if payload is None and bindings.has_body_members:
        shape = operation.input_shape
        return _root_reader(shape.serialization.get("name", shape.name), reader.compile(shape), max_elements=max_values)
    if payload is None or payload.is_stream:
        return None
    if payload.type_name == "structure":
        return _root_reader(payload.tag, reader.compile(payload.shape), max_elements=max_values)
    return bytes if payload.type_name == "blob" else _read_text


def _root_reader(tag: str, read: Read, *, max_elements: int) -> Callable[[bytes], Any]:
    def read_body(body: bytes) -> Any:
        root: Element = parse_xml(body, max_elements)
        if local_name(root.tag) != tag:
            raise ValueError(f"The root element is {local_name(root.tag)[:80]} instead of {tag}")
        return read(root)

    return read_body


def _read_text(body: bytes) -> str:
    return body.decode("utf-8")


def _body_writer(operation: "OperationModel", bindings: ResponseBindings, *, writer: XmlWriter) -> Write | None:
    payload = bindings.payload
    if operation.name == "GetBucketLocation":
        return _write_location
    if payload is not None and payload.type_name == "structure":
        return _document_writer(payload.tag, writer.content(payload.shape))
    if payload is None and bindings.has_body_members:
        shape = operation.output_shape
        root = _ROOT_TAGS.get(operation.name) or shape.serialization.get("name", shape.name)
        return _document_writer(root, writer.content(shape))
    return None


def _write_location(shape: Any, append: Callable[[str], None]) -> None:
    # The only response whose root has text: the region, or nothing for us-east-1.
    root = _ROOT_TAGS["GetBucketLocation"]
    append(f'{DECLARATION}<{root} xmlns="{NAMESPACE}">{escape(shape.get("LocationConstraint") or "")}</{root}>')


def _document_writer(root: str, content: Write) -> Write:
    opening, closing = f'{DECLARATION}<{root} xmlns="{NAMESPACE}">', f"</{root}>"

    def write(value: Any, append: Callable[[str], None]) -> None:
        append(opening)
        content(value, append)
        append(closing)

    return write


def _body(plan: _RestXmlPlan, shape: Shape) -> Any:
    payload = plan.response.payload
    value = shape if payload is None else shape.get(payload.member)
    if plan.write_body is not None:
        pieces: list[str] = []
        if value is not None:
            plan.write_body(value, pieces.append)
        return "".join(pieces).encode()
    if payload is None or value is None:
        return b""
    return value.encode() if isinstance(value, str) else value


def _add_body_headers(headers: list[tuple[str, str]], body: bytes, payload: Payload | None) -> None:
    if payload is not None and payload.is_stream:
        if all(name != "Content-Length" for name, _ in headers):
            headers.append(("Content-Length", str(len(body))))
        return
    headers.append(("Content-Length", str(len(body))))
    if body:
        is_text = payload is not None and payload.type_name == "string"
        headers.append(("Content-Type", "application/json" if is_text else "application/xml"))


def _request_id_headers(request_id: str) -> list[tuple[str, str]]:
    return [("x-amz-request-id", request_id), ("x-amz-id-2", request_id)]


def _resource(route: "Route | None") -> str:
    return "/" + "/".join(route.labels[name] for name in ("Bucket", "Key") if name in route.labels) if route else "/"
