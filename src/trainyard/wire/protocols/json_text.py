"""JSON text as AWS's JSON protocols read and write it."""

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trainyard.wire.limits import too_many_values
from trainyard.wire.protocols.documents import (
    Convert,
    integer_reader,
    misplaced,
    read_boolean,
)
from trainyard.wire.protocols.scalars import (
    check_float,
    from_epoch,
    non_finite_word,
    read_blob,
    read_timestamp,
    text_writer,
    to_epoch,
    write_blob,
)

if TYPE_CHECKING:
    from botocore.model import Shape as ModelShape

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def load_json(body: bytes, most_values: int) -> Any:
    """The document of a body; ValueError for anything that is not strict JSON in UTF-8, or has too many values."""
    if not body.strip():
        return {}
    if len(body) > 2 * most_values:  # a value takes two bytes at least
        _check_values(body, most_values)
    try:
        text = body.decode("utf-8")
        document = _DECODER.decode(text)
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode("utf-8")  # half a surrogate pair can be stored nowhere
    except RecursionError as error:
        raise ValueError("The document is nested too deeply") from error
    return document


def _check_values(body: bytes, most: int) -> None:
    """Raise ValueError where a body has more values than `most`; whether it is JSON is not looked at.

    The library reads a document before another thread may run, so that its length is what others wait for. Each value
    but the first follows one of three signs, which are counted first wherever they stand, then outside of text.
    """
    places = range(0, len(body), _STRIDE_BYTES)
    if sum(body.count(sign, place, place + _STRIDE_BYTES) for place in places for sign in (b"[", b"{", b",")) < most:
        return
    signs = 0
    for number, found in enumerate(_TEXT_OR_SIGN.finditer(body)):
        signs += body[found.start()] != _QUOTE
        if signs >= most or number >= 3 * most:  # no value has more than its sign, a name and a text
            raise too_many_values(most)


_STRIDE_BYTES = 256 * 1024
_QUOTE = ord('"')
# A text that does not end is one too: to look for its end again and again would take the square of its length.
_TEXT_OR_SIGN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)


def dump_json(document: Any) -> bytes:
    return _ENCODER.encode(document).encode("ascii")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("A member is given twice")
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _read_int(text: str) -> int:
    # To read a number takes the square of its length.
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"A number has more than {_LONGEST_NUMBER} digits")
    return int(text)


def _read_number(text: str) -> float:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"A number has more than {_LONGEST_NUMBER} digits")
    return float(text)


_LONGEST_NUMBER = 400  # that of the largest double has 309
_DECODER = json.JSONDecoder(
    object_pairs_hook=_once, parse_constant=_refuse_constant, parse_int=_read_int, parse_float=_read_number
)
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False)


def _read_float(value: Any) -> float:
    if type(value) not in (int, float):
        raise misplaced(value, "Float")
    return check_float(float(value) if abs(value) < 1 << 1023 else float("inf"))


def _read_blob(value: Any) -> bytes:
    if type(value) is not str:
        raise misplaced(value, "Blob")
    return read_blob(value)


def _read_timestamp(value: Any) -> datetime:
    if type(value) in (int, float):
        return from_epoch(value)
    if type(value) is str:
        return read_timestamp(value)
    raise misplaced(value, "Timestamp")


JSON_READERS: dict[str, Convert] = {
    "boolean": read_boolean,
    "integer": integer_reader("integer"),
    "long": integer_reader("long"),
    "float": _read_float,
    "double": _read_float,
    "blob": _read_blob,
    "timestamp": _read_timestamp,
}


def json_scalar_writer(shape: "ModelShape") -> Convert | None:
    if shape.type_name == "timestamp":
        timestamp_format = shape.serialization.get("timestampFormat", "unixTimestamp")
        return to_epoch if timestamp_format == "unixTimestamp" else text_writer("timestamp", timestamp_format)
    if shape.type_name == "blob":
        return write_blob
    return _write_float if shape.type_name in ("float", "double") else None


def _write_float(value: float) -> float | str:
    # NaN and the infinities are the values that differ from themselves or from themselves less themselves.
    return value if value - value == 0 else non_finite_word(value)
