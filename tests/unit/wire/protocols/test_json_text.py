import math

import pytest

from trainyard.wire.protocols.json_text import JSON_READERS, dump_json, json_scalar_writer, load_json


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"{'a': 1}",
        b'{"a": 1} x',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1, "a": 2}',
        b'{"a": "\x01"}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: body[:16],
)
def test_what_is_not_strict_json_in_utf8_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_json(body)


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert load_json(b'{"a": "\\ud83d\\ude86 \xf0\x9f\x9a\x86"}') == {"a": "\U0001f686 \U0001f686"}


def test_no_body_is_an_empty_document() -> None:
    assert load_json(b" \n") == {}


@pytest.mark.parametrize("number", [10**400, -(10**400), 1e999])
def test_a_number_beyond_a_double_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        JSON_READERS["double"](number)


def test_what_json_cannot_spell_is_written_as_a_word() -> None:
    class Double:
        type_name = "double"

    write = json_scalar_writer(Double())
    assert write is not None
    document = [write(number) for number in (1.5, 3, math.nan, math.inf, -math.inf)]
    assert dump_json(document) == b'[1.5,3,"NaN","Infinity","-Infinity"]'
