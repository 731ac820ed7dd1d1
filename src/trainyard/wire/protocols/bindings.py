"""Where REST protocols put members: in the path, the query, the headers or the body."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trainyard.wire.addressing import decode_parameters
from trainyard.wire.http import CONTROLS, HttpRequest
from trainyard.wire.protocols.contract import Shape
from trainyard.wire.protocols.scalars import text_reader, text_writer, write_http_date

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from botocore.model import Shape as ModelShape

ReadText = Callable[[str], Any]


class BadParameter(ValueError):
    """A header, query parameter or path label whose text does not match its type."""

    def __init__(self, name: str, value: str, type_name: str) -> None:
        super().__init__(f"The parameter {name} is not of type {type_name}")
        self.name, self.value, self.type_name = name, value, type_name


@dataclass(frozen=True, slots=True)
class _RequestBinding:
    """One header, query parameter or label, and the member it fills."""

    name: str
    member: str
    type_name: str
    read: ReadText

    def value(self, text: str) -> Any:
        try:
            return self.read(text)
        except ValueError as error:
            raise BadParameter(self.name, text, self.type_name) from error


@dataclass(frozen=True, slots=True)
class RequestBindings:
    """The members of a request outside its body, and what its body is."""

    labels: tuple[_RequestBinding, ...]
    parameters: Mapping[str, _RequestBinding]
    headers: Mapping[str, _RequestBinding]
    prefixes: tuple[tuple[str, str], ...]
    payload: "Payload | None"
    has_body_members: bool

    def read(self, request: HttpRequest, labels: Mapping[str, str]) -> Shape:
        """Read the members outside the body; BadParameter if one is malformed."""
        shape: Shape = {source.member: source.value(labels[source.name]) for source in self.labels}
        if request.query and self.parameters:
            self._read_parameters(request.query, shape)
        headers = self.headers
        for name, text in request.headers.items():
            source = headers.get(name)
            if source is not None:
                shape[source.member] = source.value(text)
        for prefix, member in self.prefixes:
            matching = {name[len(prefix) :]: text for name, text in request.headers.items() if name.startswith(prefix)}
            if matching:
                shape[member] = matching
        return shape

    def _read_parameters(self, query: str, shape: Shape) -> None:
        for name, text in decode_parameters(query):
            source = self.parameters.get(name)
            if source is None:
                continue
            if source.type_name == "list":
                shape.setdefault(source.member, []).append(source.value(text))
            elif source.member in shape:
                # A signature does not cover the order of parameters, so neither value can be trusted.
                raise BadParameter(name, text, f"{source.type_name} that is given once")
            else:
                shape[source.member] = source.value(text)


@dataclass(frozen=True, slots=True)
class Payload:
    """The one member that is the whole body."""

    member: str
    type_name: str
    is_stream: bool
    shape: "ModelShape"

    @property
    def tag(self) -> str:
        tag: str = self.shape.serialization.get("name", self.shape.name)
        return tag


@dataclass(frozen=True, slots=True)
class ResponseBindings:
    """The members of a response outside its body, and what its body is."""

    status: int
    headers: Mapping[str, tuple[str, Callable[[Any], str]]]
    prefixes: Mapping[str, str]
    payload: Payload | None
    has_body_members: bool

    def write(self, shape: Shape) -> list[tuple[str, str]]:
        """Return the header fields of a shape."""
        fields = []
        for member, value in shape.items():
            if value is None:
                continue
            binding = self.headers.get(member)
            if binding is not None:
                fields.append((binding[0], _field_text(binding[1](value))))
            elif member in self.prefixes:
                prefix = self.prefixes[member]
                fields.extend((prefix + _field_text(key), _field_text(item)) for key, item in value.items())
        return fields


def request_bindings(operation: "OperationModel") -> RequestBindings:
    shape = operation.input_shape
    members = shape.members if shape is not None else {}
    sources: dict[str, list[_RequestBinding]] = {"uri": [], "querystring": [], "header": []}
    for name, member in members.items():
        location = member.serialization.get("location")
        if location in sources:
            sources[location].append(_request_binding(name, member))
    return RequestBindings(
        labels=tuple(sources["uri"]),
        parameters={source.name: source for source in sources["querystring"]},
        headers={source.name.lower(): source for source in sources["header"]},
        prefixes=tuple((prefix.lower(), name) for name, prefix in _prefixes(shape).items()),
        payload=_payload(shape),
        has_body_members=_has_body_members(shape),
    )


def response_bindings(operation: "OperationModel") -> ResponseBindings:
    shape = operation.output_shape
    members = shape.members if shape is not None else {}
    return ResponseBindings(
        status=int(operation.http.get("responseCode", 200)),
        headers={
            name: (member.serialization["name"], _header_writer(member))
            for name, member in members.items()
            if member.serialization.get("location") == "header"
        },
        prefixes=_prefixes(shape),
        payload=_payload(shape),
        has_body_members=_has_body_members(shape),
    )


def _request_binding(name: str, member: "ModelShape") -> _RequestBinding:
    location: str = member.serialization["location"]
    kind: str = member.type_name
    if kind != "list":
        read = text_reader(kind)
    elif location == "header":
        read_item = text_reader(member.member.type_name)
        read = lambda text: [read_item(item.strip()) for item in text.split(",")]  # noqa: E731
    else:
        read = text_reader(member.member.type_name)
    return _RequestBinding(member.serialization["name"], name, kind, read)


def _prefixes(shape: "ModelShape | None") -> dict[str, str]:
    members = shape.members if shape is not None else {}
    return {
        name: member.serialization["name"]
        for name, member in members.items()
        if member.serialization.get("location") == "headers"
    }


def _payload(shape: "ModelShape | None") -> Payload | None:
    name = shape.serialization.get("payload") if shape is not None else None
    if shape is None or name is None:
        return None
    member = shape.members[name]
    is_stream = bool(member.serialization.get("streaming") or member.metadata.get("streaming"))
    return Payload(name, member.type_name, is_stream, member)


def _has_body_members(shape: "ModelShape | None") -> bool:
    if shape is None or "payload" in shape.serialization:
        return False
    return any("location" not in member.serialization for member in shape.members.values())


def _header_writer(member: "ModelShape") -> Callable[[Any], str]:
    if member.type_name == "list":
        return ",".join
    if member.type_name == "string":
        return _write_string
    return text_writer(member.type_name, member.serialization.get("timestampFormat", "rfc822"))


def _write_string(value: Any) -> str:
    # S3's Expires is a string in the model, so any text is returned as it is; a datetime becomes an HTTP date.
    return write_http_date(value) if isinstance(value, datetime) else str(value)


def _field_text(text: str) -> str:
    """Return text that is safe in a header field; text beyond Latin-1 is sent as its UTF-8 bytes."""
    if text.isascii():
        return CONTROLS.sub(" ", text) if not text.isprintable() else text
    clean = CONTROLS.sub(" ", text)
    try:
        clean.encode("latin-1")
    except UnicodeEncodeError:
        return clean.encode("utf-8", "replace").decode("latin-1")
    return clean
