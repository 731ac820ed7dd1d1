from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.wire.protocols.xml_text import SLICE_BYTES, escape, escape_speakable, local_name, parse_xml

MOST = 1000  # elements
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
        b"<a>" + b"<b/>" * (MOST + 100) + b"</a>",
        b"<a " + b" ".join(b"n%d='>'" % number for number in range(10_000)) + b"/>",
        b"<a>" + b"x" * (3 * SLICE_BYTES) + b"</a>",
    ],
    ids=lambda body: body[:24],
)
def test_what_is_not_well_formed_or_brings_entities_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_xml(body, MOST)


def test_namespaces_are_told_from_names() -> None:
    root = parse_xml(b'<a xmlns="urn:x" xmlns:p="urn:y"><p:b p:c="1">t</p:b></a>', MOST)
    assert [local_name(element.tag) for element in root.iter()] == ["a", "b"]
    assert [local_name(name) for name in root[0].attrib] == ["c"]


def test_deep_nesting_is_only_deep() -> None:
    root = parse_xml(b"<a>" * 100_000 + b"</a>" * 100_000, 100_000)
    assert root.tag == "a"


def test_what_is_cut_between_two_slices_is_read_whole() -> None:
    key = "ü<&>" * 100
    elements = "".join(f'<b n="{number}">{escape(key)}</b>' for number in range(200))
    body = f"<a>{elements}</a>".encode()
    assert len(body) > 3 * SLICE_BYTES
    assert [(b.attrib["n"], b.text) for b in parse_xml(body, MOST)] == [(str(number), key) for number in range(200)]


SPEAKABLE = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], include_characters="\t\n\r", exclude_characters="\ufffe\uffff")
)


@given(SPEAKABLE)
def test_text_survives_an_element_and_an_attribute(text: str) -> None:
    element = ElementTree.fromstring(f'<a b="{escape(text)}">{escape(text)}</a>')
    assert (element.text or "") == text
    # An attribute's line breaks and tabs are blanks to a parser.
    assert element.attrib["b"].split() == text.split()


@given(st.text())
def test_what_xml_cannot_have_is_replaced_where_the_document_must_be_well_formed(text: str) -> None:
    element = ElementTree.fromstring(f"<a>{escape_speakable(text)}</a>")
    assert len(element.text or "") == len(text)


def test_what_xml_cannot_have_is_a_reference_in_an_answer_as_s3_writes_it() -> None:
    assert escape("a\x01b") == "a&#x1;b"
