import json
import math

import pytest

from trainyard.wire.protocols.json_text import JSON_READERS, dump_json, json_scalar_writer, load_json

MAX_VALUES = 200_000


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
        b'{"a": ' + b"9" * 500 + b"}",
        b'{"a": 0.' + b"9" * 500 + b"}",
    ],
    ids=lambda body: body[:16],
)
def test_anything_but_strict_json_in_utf8_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_json(body, MAX_VALUES)


VALUES = {
    "lists": b"[]",
    "structures": b"{}",
    "numbers": b"1",
    "fractions": b"1.5",
    "text": b'""',
    "members": b'{"a":1}',
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_document_of_too_many_values_is_refused_before_it_is_read(value: bytes) -> None:
    with pytest.raises(ValueError, match="more than 1000 values"):
        load_json(b"[" + b",".join([value] * 2000) + b"]", 1000)
    assert len(load_json(b"[" + b",".join([value] * 400) + b"]", 1000)) == 400


@pytest.mark.parametrize("text", [b'[{,"' * 2000, b'\\"' * 2000, b"\\" * 2001])
def test_unterminated_text_is_refused_in_linear_time(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_json(b'["' + text, 1000)


def test_the_signs_of_a_document_do_not_count_within_text() -> None:
    lines = [f'"[INFO] {{a, b}}, \\{number}\\"' for number in range(300)]
    assert load_json(json.dumps(lines).encode(), 1000) == lines


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert load_json(b'{"a": "\\ud83d\\ude86 \xf0\x9f\x9a\x86"}', MAX_VALUES) == {"a": "\U0001f686 \U0001f686"}


def test_no_body_is_an_empty_document() -> None:
    assert load_json(b" \n", MAX_VALUES) == {}


@pytest.mark.parametrize("number", [10**400, -(10**400), 1e999])
def test_a_number_beyond_a_double_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        JSON_READERS["double"](number)


def test_floats_that_json_cannot_represent_are_written_as_words() -> None:
    class Double:
        type_name = "double"

    write = json_scalar_writer(Double())
    assert write is not None
    document = [write(number) for number in (1.5, 3, math.nan, math.inf, -math.inf)]
    assert dump_json(document) == b'[1.5,3,"NaN","Infinity","-Infinity"]'
