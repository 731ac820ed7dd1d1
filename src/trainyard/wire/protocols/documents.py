"""Shapes as documents of maps and lists, the form of JSON and CBOR bodies.

Readers and writers are closures compiled once per shape of the model. Readers check types and raise ValueError with
AWS's messages; they drop members that are null or unknown, and keep a null inside a list or a map for validation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.wire.protocols.scalars import check_integer

if TYPE_CHECKING:
    from botocore.model import OperationModel, ServiceModel
    from botocore.model import Shape as ModelShape

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class DocumentPlan:
    """Converts the documents of one operation to shapes and back; None if there is no document."""

    read: Convert | None
    write: Convert | None
    is_recursive: bool

    def shape(self, document: Any) -> dict[str, Any]:
        """Return the shape of a document; ValueError if it does not fit the model."""
        if self.read is None:
            return {}
        try:
            shape: dict[str, Any] = self.read(document)
        except RecursionError as error:
            raise ValueError("The document is nested too deeply") from error
        if self.is_recursive:
            check_nesting(shape)
        return shape


class DocumentCompiler:
    """Compiles plans; shapes that operations of a service share are compiled once."""

    def __init__(
        self, readers: "Mapping[str, Convert]", scalar_writer: "Callable[[ModelShape], Convert | None]"
    ) -> None:
        self._readers, self._scalar_writer = readers, scalar_writer
        self._compilers: dict[ServiceModel, tuple[DocumentReader, DocumentWriter]] = {}

    def compile(self, operation: "OperationModel") -> DocumentPlan:
        service = operation.service_model
        if service not in self._compilers:
            self._compilers[service] = DocumentReader(self._readers), DocumentWriter(self._scalar_writer)
        reader, writer = self._compilers[service]
        input_shape, output_shape = operation.input_shape, operation.output_shape
        return DocumentPlan(
            read=reader.compile(input_shape) if input_shape is not None else None,
            write=writer.compile(output_shape) if output_shape is not None else None,
            is_recursive=contains_itself(input_shape),
        )


class DocumentReader:
    """Compiles readers of one service's shapes, given the scalar readers of a format.

    `scalars` is by type name; any other type must be a string. Compiling is not safe to share between threads; the
    readers are.
    """

    def __init__(self, scalars: Mapping[str, Convert]) -> None:
        self._scalars = scalars
        self._structures: dict[str, Convert] = {}

    def compile(self, shape: "ModelShape") -> Convert:
        kind = shape.type_name
        if kind == "structure":
            return self._structure(shape)
        if kind == "list":
            return _list_reader(self.compile(shape.member))
        if kind == "map":
            return _map_reader(self.compile(shape.key), self.compile(shape.value))
        return self._scalars.get(kind, read_string)

    def _structure(self, shape: "ModelShape") -> Convert:
        name: str = shape.name
        if name not in self._structures:
            # A shape may contain itself; an inner reference before it is compiled binds late.
            self._structures[name] = lambda value: self._structures[name](value)
            members = {
                member.serialization.get("name", member_name): (member_name, self.compile(member))
                for member_name, member in shape.members.items()
                if "location" not in member.serialization
            }
            self._structures[name] = _structure_reader(members)
        return self._structures[name]


def _structure_reader(members: Mapping[str, tuple[str, Convert]]) -> Convert:
    find = members.get

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise type_mismatch(value, "Structure")
        shape = {}
        for name, item in value.items():
            member = find(name)
            if member is not None and item is not None:
                shape[member[0]] = member[1](item)
        return shape

    return read


def _list_reader(read_item: Convert) -> Convert:
    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise ValueError("Expected list or null")
        return [None if item is None else read_item(item) for item in value]

    return read


def _map_reader(read_key: Convert, read_value: Convert) -> Convert:
    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise type_mismatch(value, "Map")
        return {read_key(key): None if item is None else read_value(item) for key, item in value.items()}

    return read


def read_string(value: Any) -> str:
    if type(value) is not str:
        raise type_mismatch(value, "String")
    return value


def read_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise type_mismatch(value, "Boolean")
    return value


def integer_reader(type_name: str) -> Convert:
    def read(value: Any) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise type_mismatch(value, type_name.capitalize())
        return check_integer(value, type_name)

    return read


def type_mismatch(value: Any, expected: str) -> ValueError:
    """Return the error for a value whose type differs from the model's."""
    if isinstance(value, dict):
        return ValueError("Start of structure or map found where not expected.")
    if isinstance(value, list):
        return ValueError("Start of list found where not expected")
    return ValueError(
        f"{_token_name(value)} can not be converted to {'an' if expected[0] in 'AEIOU' else 'a'} {expected}"
    )


def _token_name(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE_VALUE" if value else "FALSE_VALUE"
    if isinstance(value, int):
        return "NUMBER_VALUE"
    if isinstance(value, float):
        return "DECIMAL_VALUE"
    return "STRING_VALUE" if isinstance(value, str) else type(value).__name__.upper()


class DocumentWriter:
    """Compiles writers of one service's shapes, given the scalar writers of a format.

    `scalars` returns the writer of a scalar shape, or None if the value is written unchanged.
    """

    def __init__(self, scalars: Callable[["ModelShape"], Convert | None]) -> None:
        self._scalars = scalars
        self._structures: dict[str, Convert] = {}

    def compile(self, shape: "ModelShape") -> Convert | None:
        kind = shape.type_name
        if kind == "structure":
            # Any JSON, which no model describes.
            return None if shape.is_document_type else self._structure(shape)
        if kind == "list":
            return _list_writer(self.compile(shape.member))
        if kind == "map":
            return _map_writer(self.compile(shape.value))
        return self._scalars(shape)

    def _structure(self, shape: "ModelShape") -> Convert:
        name: str = shape.name
        if name not in self._structures:
            self._structures[name] = lambda value: self._structures[name](value)
            members = {
                member_name: (member.serialization.get("name", member_name), self.compile(member))
                for member_name, member in shape.members.items()
                if "location" not in member.serialization
            }
            bound_elsewhere = frozenset(shape.members) - members.keys()
            self._structures[name] = _structure_writer(name, members, bound_elsewhere=bound_elsewhere)
        return self._structures[name]


def _structure_writer(
    shape_name: str, members: Mapping[str, tuple[str, Convert | None]], *, bound_elsewhere: frozenset[str]
) -> Convert:
    def write(value: Any) -> dict[str, Any]:
        document = {}
        for name, item in value.items():
            if item is None or name in bound_elsewhere:
                continue
            assert name in members, f"{shape_name} has no member {name}"
            wire_name, convert = members[name]
            document[wire_name] = item if convert is None else convert(item)
        return document

    return write


def _list_writer(write_item: Convert | None) -> Convert:
    if write_item is None:
        return lambda value: [item for item in value if item is not None]
    return lambda value: [write_item(item) for item in value if item is not None]


def _map_writer(write_value: Convert | None) -> Convert:
    if write_value is None:
        return lambda value: {key: item for key, item in value.items() if item is not None}
    return lambda value: {key: write_value(item) for key, item in value.items() if item is not None}


MAX_DEPTH = 64


def contains_itself(shape: "ModelShape | None") -> bool:
    """Whether a shape is recursive, so that values can nest without limit."""
    bounded: set[str] = set()

    def recurs(inner: "ModelShape", above: frozenset[str]) -> bool:
        if inner.name in above:
            return True
        if inner.name in bounded:
            return False
        found = any(recurs(part, above | {inner.name}) for part in _members_of(inner))
        bounded.add(inner.name)
        return found

    return shape is not None and recurs(shape, frozenset())


def _members_of(shape: "ModelShape") -> "list[ModelShape]":
    if shape.type_name == "structure":
        return list(shape.members.values())
    if shape.type_name == "list":
        return [shape.member]
    return [shape.value] if shape.type_name == "map" else []


def check_nesting(value: Any, depth_left: int = MAX_DEPTH) -> None:
    """Raise ValueError for a value nested deeper than later code should have to walk."""
    if not isinstance(value, (dict, list)):
        return
    if depth_left == 0:
        raise ValueError(f"The request is nested more than {MAX_DEPTH} levels deep")
    for item in value.values() if isinstance(value, dict) else value:
        check_nesting(item, depth_left - 1)
