from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.wire.protocols.xml_text import SLICE_BYTES, escape, escape_well_formed, local_name, parse_xml

MAX_ELEMENTS = 1000
BOMB = b"""<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;&b;&b;&b;">]><a>&c;</a>"""
FILE = b"""<!DOCTYPE a [<!ENTITY f SYSTEM "file:///etc/passwd">]><a>&f;</a>"""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<a>",
        b"<a></b>",
        b"<a/><b/>",
        b"text",
        b"<a>\xff</a>",
        b"<a>&unknown;</a>",
        b"<a x=1/>",
        b"<p:a/>",
        BOMB,
        FILE,
        b"<a>\x00</a>",
        b"<a>" + b"<b/>" * (MAX_ELEMENTS + 100) + b"</a>",
        b"<a " + b" ".join(b"n%d='>'" % number for number in range(10_000)) + b"/>",
        b"<a>" + b"x" * (3 * SLICE_BYTES) + b"</a>",
    ],
    ids=lambda body: body[:24],
)
def test_malformed_xml_and_custom_entities_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_xml(body, MAX_ELEMENTS)


def test_namespaces_are_separated_from_names() -> None:
    root = parse_xml(b'<a xmlns="urn:x" xmlns:p="urn:y"><p:b p:c="1">t</p:b></a>', MAX_ELEMENTS)
    assert [local_name(element.tag) for element in root.iter()] == ["a", "b"]
    assert [local_name(name) for name in root[0].attrib] == ["c"]


def test_deep_nesting_is_only_deep() -> None:
    root = parse_xml(b"<a>" * 100_000 + b"</a>" * 100_000, 100_000)
    assert root.tag == "a"


def test_text_across_two_slices_is_read_whole() -> None:
    key = "ü<&>" * 100
    elements = "".join(f'<b n="{number}">{escape(key)}</b>' for number in range(200))
    body = f"<a>{elements}</a>".encode()
    assert len(body) > 3 * SLICE_BYTES
    assert [(b.attrib["n"], b.text) for b in parse_xml(body, MAX_ELEMENTS)] == [
        (str(number), key) for number in range(200)
    ]


SPEAKABLE = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], include_characters="\t\n\r", exclude_characters="\ufffe\uffff")
)


@given(SPEAKABLE)
def test_text_survives_an_element_and_an_attribute(text: str) -> None:
    element = ElementTree.fromstring(f'<a b="{escape(text)}">{escape(text)}</a>')
    assert (element.text or "") == text
    # A parser reads line breaks and tabs in attributes as spaces.
    assert element.attrib["b"].split() == text.split()


@given(st.text())
def test_characters_invalid_in_xml_are_replaced_if_the_document_must_be_well_formed(text: str) -> None:
    element = ElementTree.fromstring(f"<a>{escape_well_formed(text)}</a>")
    assert len(element.text or "") == len(text)


def test_characters_invalid_in_xml_are_references_in_responses_as_in_s3() -> None:
    assert escape("a\x01b") == "a&#x1;b"
