"""XML text: read without DTDs and entities of its own, written with nothing that could break out of it."""

import re
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from trainyard.wire.limits import too_many_values

SLICE_BYTES = 16 * 1024  # of a document, between two of which another thread may run

_NO_ELEMENTS = 100  # declarations and comments, which begin like elements

DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'

_SPECIAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]')
_UNSPEAKABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_REFERENCES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def parse_xml(body: bytes, most_elements: int) -> Element:
    """The root element, tags without their namespaces' prefixes.

    ValueError for what is not well formed, has too many elements, or a tag or a text longer than 32 KiB: the time that
    a tag takes grows with the square of its attributes.
    """
    if body.count(b"<") - body.count(b"</") > most_elements + _NO_ELEMENTS:
        raise too_many_values(most_elements)
    builder = TreeBuilder()
    parser = expat.ParserCreate("utf-8", "}")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        for place in range(0, len(body), SLICE_BYTES):
            piece = body[place : place + SLICE_BYTES]
            if len(piece) == SLICE_BYTES and b"<" not in piece:
                raise ValueError("A tag or a text is too long")
            parser.Parse(piece, False)
        parser.Parse(b"", True)
    except (expat.ExpatError, UnicodeError) as error:
        raise ValueError(f"The XML is not well formed: {error}") from error
    root: Element = builder.close()
    return root


def _refuse_doctype(*_: Any) -> None:
    raise ValueError("A document type declaration is not allowed")


def local_name(tag: str) -> str:
    """A tag or an attribute without its namespace."""
    return tag.rpartition("}")[2]


def escape(text: str) -> str:
    """Text for an element or an attribute.

    S3 writes characters that XML cannot have as references too, which strict clients refuse; they ask for
    `encoding-type=url` instead.
    """
    if _SPECIAL.search(text) is None:
        return text
    return _SPECIAL.sub(_reference, text)


def _reference(match: re.Match[str]) -> str:
    character = match.group()
    return _REFERENCES.get(character) or f"&#x{ord(character):X};"


def escape_speakable(text: str) -> str:
    """Text for an element that must stay well formed: what XML cannot have becomes the replacement character."""
    return escape(_UNSPEAKABLE.sub("\ufffd", text))
