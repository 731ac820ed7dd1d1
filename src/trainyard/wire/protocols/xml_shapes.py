"""Shapes as XML elements, with the names, attributes and flattening of the model.

Readers and writers are closures compiled once per shape. Readers raise ValueError; writers append text to a list.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element

from trainyard.wire.protocols.scalars import text_reader, text_writer
from trainyard.wire.protocols.xml_text import escape, local_name

if TYPE_CHECKING:
    from botocore.model import Shape as ModelShape

Read = Callable[[Element], Any]
Append = Callable[[str], None]
Write = Callable[[Any, Append], None]


@dataclass(frozen=True, slots=True)
class _Member:
    """The member that a child element fills, or extends if the member is a flattened list."""

    name: str
    read: Read
    is_flattened: bool


class XmlReader:
    """Compiles readers of one service's shapes, which have no maps. Compiling is not safe to share between threads."""

    def __init__(self) -> None:
        self._structures: dict[str, Read] = {}

    def compile(self, shape: "ModelShape") -> Read:
        kind = shape.type_name
        if kind == "structure":
            return self._structure(shape)
        if kind == "list":
            return _list_reader(shape.member.serialization.get("name", "member"), self.compile(shape.member))
        assert kind != "map", f"{shape.name} is a map, which XML request bodies do not have"
        return _scalar_reader(text_reader(kind))

    def _structure(self, shape: "ModelShape") -> Read:
        name: str = shape.name
        if name not in self._structures:
            self._structures[name] = lambda element: self._structures[name](element)
            children, attributes = {}, {}
            for member_name, member in shape.members.items():
                if "location" in member.serialization:
                    continue
                tag = member.serialization.get("name", member_name)
                if member.serialization.get("xmlAttribute"):
                    attributes[tag.rpartition(":")[2]] = member_name
                else:
                    children[tag] = self._member(member_name, member)
            self._structures[name] = _structure_reader(children, attributes)
        return self._structures[name]

    def _member(self, name: str, member: "ModelShape") -> _Member:
        is_flattened = bool(member.serialization.get("flattened"))
        return _Member(name, self.compile(member.member if is_flattened else member), is_flattened)


def _structure_reader(children: Mapping[str, _Member], attributes: Mapping[str, str]) -> Read:
    def read(element: Element) -> dict[str, Any]:
        shape: dict[str, Any] = {}
        for tag, value in element.attrib.items():
            if local_name(tag) in attributes:
                shape[attributes[local_name(tag)]] = value
        for child in element:
            member = children.get(local_name(child.tag))
            if member is None:
                continue
            if member.is_flattened:
                shape.setdefault(member.name, []).append(member.read(child))
            elif member.name in shape:
                raise ValueError(f"The element {member.name} is given twice")
            else:
                shape[member.name] = member.read(child)
        return shape

    return read


def _list_reader(tag: str, read_item: Read) -> Read:
    def read(element: Element) -> list[Any]:
        for child in element:
            if local_name(child.tag) != tag:
                raise ValueError(f"Found the element {local_name(child.tag)} where {tag} is expected")
        return [read_item(child) for child in element]

    return read


def _scalar_reader(read_text: Callable[[str], Any]) -> Read:
    def read(element: Element) -> Any:
        if len(element):
            raise ValueError(f"The element {local_name(element.tag)} has elements where text is expected")
        return read_text(element.text or "")

    return read


class XmlWriter:
    """Compiles writers of one service's shapes, with the timestamp format that the protocol defaults to."""

    def __init__(self, timestamp_format: str) -> None:
        self._timestamp_format = timestamp_format
        self._structures: dict[str, Write] = {}

    def compile(self, shape: "ModelShape", tag: str) -> Write:
        """Return the writer of a value as one element, or as several if the shape is flattened."""
        kind = shape.type_name
        if kind == "structure":
            return self._element(shape, tag)
        if kind == "list":
            return self._list(shape, tag)
        if kind == "map":
            return self._map(shape, tag)
        return _scalar_writer(tag, self._text(shape))

    def content(self, shape: "ModelShape") -> Write:
        """Return the writer of the content of a structure's element."""
        name: str = shape.name
        if name not in self._structures:
            self._structures[name] = lambda value, append: self._structures[name](value, append)
            members = {
                member_name: self.compile(member, member.serialization.get("name", member_name))
                for member_name, member in shape.members.items()
                if not {"location", "xmlAttribute"} & member.serialization.keys()
            }
            bound_elsewhere = frozenset(shape.members) - members.keys()
            self._structures[name] = _content_writer(name, members, bound_elsewhere=bound_elsewhere)
        return self._structures[name]

    def _element(self, shape: "ModelShape", tag: str) -> Write:
        attributes = {
            name: member.serialization["name"]
            for name, member in shape.members.items()
            if member.serialization.get("xmlAttribute")
        }
        return _element_writer(_opening_tag(tag, shape), attributes, content=self.content(shape), closing=f"</{tag}>")

    def _list(self, shape: "ModelShape", tag: str) -> Write:
        item = shape.member
        if shape.serialization.get("flattened"):
            return _repeated_writer(self.compile(item, item.serialization.get("name", tag)))
        write_items = _repeated_writer(self.compile(item, item.serialization.get("name", "member")))
        return _wrapped_writer(tag, write_items)

    def _map(self, shape: "ModelShape", tag: str) -> Write:
        write_key = self.compile(shape.key, shape.key.serialization.get("name", "key"))
        write_value = self.compile(shape.value, shape.value.serialization.get("name", "value"))
        return _wrapped_writer(tag, _entries_writer(write_key, write_value))

    def _text(self, shape: "ModelShape") -> Callable[[Any], str]:
        if shape.type_name == "string":
            return escape
        return text_writer(shape.type_name, shape.serialization.get("timestampFormat", self._timestamp_format))


def _opening_tag(tag: str, shape: "ModelShape") -> str:
    namespace = shape.serialization.get("xmlNamespace")
    if not isinstance(namespace, dict):
        return f"<{tag}"
    prefix = f":{namespace['prefix']}" if namespace.get("prefix") else ""
    return f'<{tag} xmlns{prefix}="{escape(namespace["uri"])}"'


def _content_writer(shape_name: str, members: Mapping[str, Write], *, bound_elsewhere: frozenset[str]) -> Write:
    def write(value: Any, append: Append) -> None:
        for name, item in value.items():
            if item is None or name in bound_elsewhere:
                continue
            assert name in members, f"{shape_name} has no member {name}"
            members[name](item, append)

    return write


def _element_writer(opening: str, attributes: Mapping[str, str], *, content: Write, closing: str) -> Write:
    def write(value: Any, append: Append) -> None:
        append(opening)
        for name, attribute in attributes.items():
            if value.get(name) is not None:
                append(f' {attribute}="{escape(value[name])}"')
        append(">")
        content(value, append)
        append(closing)

    return write


def _scalar_writer(tag: str, text: Callable[[Any], str]) -> Write:
    opening, closing = f"<{tag}>", f"</{tag}>"

    def write(value: Any, append: Append) -> None:
        append(opening + text(value) + closing)

    return write


def _repeated_writer(write_item: Write) -> Write:
    def write(value: Any, append: Append) -> None:
        for item in value:
            if item is not None:
                write_item(item, append)

    return write


def _wrapped_writer(tag: str, write_inside: Write) -> Write:
    opening, closing = f"<{tag}>", f"</{tag}>"

    def write(value: Any, append: Append) -> None:
        append(opening)
        write_inside(value, append)
        append(closing)

    return write


def _entries_writer(write_key: Write, write_value: Write) -> Write:
    def write(value: Any, append: Append) -> None:
        for key, item in value.items():
            if item is not None:
                append("<entry>")
                write_key(key, append)
                write_value(item, append)
                append("</entry>")

    return write
