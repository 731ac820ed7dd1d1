"""Shapes as documents of maps and lists, which is what JSON and CBOR bodies are.

Readers and writers are closures compiled once per shape of the model. Readers check types and raise ValueError in the
words of AWS; they drop members that are null or unknown, and keep a null inside a list or a map for validation to find.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.wire.protocols.nesting import check_nesting, contains_itself
from trainyard.wire.protocols.scalars import check_integer

if TYPE_CHECKING:
    from botocore.model import OperationModel, ServiceModel
    from botocore.model import Shape as ModelShape

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class DocumentPlan:
    """How the documents of one operation become shapes, and shapes documents; None where there is no document."""

    read: Convert | None
    write: Convert | None
    nests: bool

    def shape(self, document: Any) -> dict[str, Any]:
        """The shape of a document; ValueError where the model does not allow it."""
        if self.read is None:
            return {}
        try:
            shape: dict[str, Any] = self.read(document)
        except RecursionError as error:
            raise ValueError("The document is nested too deeply") from error
        if self.nests:
            check_nesting(shape)
        return shape


class DocumentCompiler:
    """Compiles plans; the shapes that operations of a service have in common are compiled once."""

    def __init__(
        self, readers: "Mapping[str, Convert]", scalar_writer: "Callable[[ModelShape], Convert | None]"
    ) -> None:
        self._readers, self._scalar_writer = readers, scalar_writer
        self._tools: dict[ServiceModel, tuple[DocumentReader, DocumentWriter]] = {}

    def compile(self, operation: "OperationModel") -> DocumentPlan:
        service = operation.service_model
        if service not in self._tools:
            self._tools[service] = DocumentReader(self._readers), DocumentWriter(self._scalar_writer)
        reader, writer = self._tools[service]
        takes, gives = operation.input_shape, operation.output_shape
        return DocumentPlan(
            read=reader.compile(takes) if takes is not None else None,
            write=writer.compile(gives) if gives is not None else None,
            nests=contains_itself(takes),
        )


class DocumentReader:
    """Compiles readers of one service's shapes, given how the format at hand reads its scalars.

    `scalars` is by type name, falling back to a check that the value is a string. Not safe to share between threads
    while compiling; what it returns is.
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
            # A shape may contain itself; whoever meets it again before it is done binds late.
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
            raise misplaced(value, "Structure")
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
            raise misplaced(value, "Map")
        return {read_key(key): None if item is None else read_value(item) for key, item in value.items()}

    return read


def read_string(value: Any) -> str:
    if type(value) is not str:
        raise misplaced(value, "String")
    return value


def read_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise misplaced(value, "Boolean")
    return value


def integer_reader(type_name: str) -> Convert:
    def read(value: Any) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise misplaced(value, type_name.capitalize())
        return check_integer(value, type_name)

    return read


def misplaced(value: Any, wanted: str) -> ValueError:
    """The error of a value whose type is not the one that the model wants there."""
    if isinstance(value, dict):
        return ValueError("Start of structure or map found where not expected.")
    if isinstance(value, list):
        return ValueError("Start of list found where not expected")
    return ValueError(f"{_token(value)} can not be converted to {'an' if wanted[0] in 'AEIOU' else 'a'} {wanted}")


def _token(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE_VALUE" if value else "FALSE_VALUE"
    if isinstance(value, int):
        return "NUMBER_VALUE"
    if isinstance(value, float):
        return "DECIMAL_VALUE"
    return "STRING_VALUE" if isinstance(value, str) else type(value).__name__.upper()


class DocumentWriter:
    """Compiles writers of one service's shapes, given how the format at hand writes its scalars.

    `scalars` gives the writer of a scalar shape, or None where the value is written as it is.
    """

    def __init__(self, scalars: Callable[["ModelShape"], Convert | None]) -> None:
        self._scalars = scalars
        self._structures: dict[str, Convert] = {}

    def compile(self, shape: "ModelShape") -> Convert | None:
        kind = shape.type_name
        if kind == "structure":
            return self._structure(shape)
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
            beside = frozenset(shape.members) - members.keys()
            self._structures[name] = _structure_writer(name, members, beside=beside)
        return self._structures[name]


def _structure_writer(
    shape_name: str, members: Mapping[str, tuple[str, Convert | None]], *, beside: frozenset[str]
) -> Convert:
    def write(value: Any) -> dict[str, Any]:
        document = {}
        for name, item in value.items():
            if item is None or name in beside:
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
