"""XML text: parsed without DTDs and custom entities, written with everything escaped."""

import re
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from trainyard.wire.limits import too_many_values

# Other threads can run between two slices of a document.
SLICE_BYTES = 16 * 1024

# Declarations and comments, which start like elements.
_MAX_OTHER_MARKUP = 100

DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'

_SPECIAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]')
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_REFERENCES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def parse_xml(body: bytes, max_elements: int) -> Element:
    """Return the root element; tags have their namespace instead of a prefix.

    ValueError if the XML is not well formed, has too many elements, or a tag or text longer than 32 KiB: parsing a tag
    takes time quadratic in its attributes.
    """
    if body.count(b"<") - body.count(b"</") > max_elements + _MAX_OTHER_MARKUP:
        raise too_many_values(max_elements)
    builder = TreeBuilder()
    parser = expat.ParserCreate("utf-8", "}")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        for position in range(0, len(body), SLICE_BYTES):
            piece = body[position : position + SLICE_BYTES]
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
    """Return a tag or an attribute without its namespace."""
    return tag.rpartition("}")[2]


def escape(text: str) -> str:
    """Escape text for an element or an attribute.

    Like S3, this writes characters that are invalid in XML as references. Strict clients refuse those and ask for
    `encoding-type=url` instead.
    """
    if _SPECIAL.search(text) is None:
        return text
    return _SPECIAL.sub(_reference, text)


def _reference(match: re.Match[str]) -> str:
    character = match.group()
    return _REFERENCES.get(character) or f"&#x{ord(character):X};"


def escape_well_formed(text: str) -> str:
    """Escape text for an element that must stay well formed: invalid characters become the replacement character."""
    return escape(_NOT_IN_XML.sub("\ufffd", text))
