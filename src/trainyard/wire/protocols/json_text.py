"""JSON text as AWS's JSON protocols read and write it."""

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trainyard.wire.limits import too_many_values
from trainyard.wire.protocols.documents import (
    Convert,
    integer_reader,
    read_boolean,
    type_mismatch,
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


def load_json(body: bytes, max_values: int) -> Any:
    """Parse a body; ValueError if it is not strict JSON in UTF-8, or has too many values."""
    if not body.strip():
        return {}
    # A value takes at least two bytes.
    if len(body) > 2 * max_values:
        _check_values(body, max_values)
    try:
        text = body.decode("utf-8")
        document = _DECODER.decode(text)
        if _SURROGATE.search(text):
            # Half a surrogate pair cannot be stored anywhere.
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("The document is nested too deeply") from error
    return document


def _check_values(body: bytes, max_values: int) -> None:
    """Raise ValueError if a body has more than `max_values` values; it need not be valid JSON.

    The json library parses a document without releasing the GIL, so a long one blocks other threads. Each value but the
    first follows one of three characters: count them anywhere first, then only outside of strings.
    """
    places = range(0, len(body), _STRIDE_BYTES)
    if (
        sum(body.count(sign, place, place + _STRIDE_BYTES) for place in places for sign in (b"[", b"{", b","))
        < max_values
    ):
        return
    signs = 0
    for number, found in enumerate(_TEXT_OR_SIGN.finditer(body)):
        signs += body[found.start()] != _QUOTE
        # A value has at most three matches: its sign, a name and a string.
        if signs >= max_values or number >= 3 * max_values:
            raise too_many_values(max_values)


_STRIDE_BYTES = 256 * 1024
_QUOTE = ord('"')
# An unterminated string matches too: searching for its end repeatedly would take quadratic time.
_TEXT_OR_SIGN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)


def dump_json(document: Any) -> bytes:
    return _ENCODER.encode(document).encode("ascii")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("A member is given twice")
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _read_int(text: str) -> int:
    # Parsing a number takes quadratic time.
    if len(text) > _MAX_NUMBER_DIGITS:
        raise ValueError(f"A number has more than {_MAX_NUMBER_DIGITS} digits")
    return int(text)


def _read_number(text: str) -> float:
    if len(text) > _MAX_NUMBER_DIGITS:
        raise ValueError(f"A number has more than {_MAX_NUMBER_DIGITS} digits")
    return float(text)


# The largest double has 309 digits.
_MAX_NUMBER_DIGITS = 400
_DECODER = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant, parse_int=_read_int, parse_float=_read_number
)
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False)


def _read_float(value: Any) -> float:
    if type(value) not in (int, float):
        raise type_mismatch(value, "Float")
    return check_float(float(value) if abs(value) < 1 << 1023 else float("inf"))


def _read_blob(value: Any) -> bytes:
    if type(value) is not str:
        raise type_mismatch(value, "Blob")
    return read_blob(value)


def _read_timestamp(value: Any) -> datetime:
    if type(value) in (int, float):
        return from_epoch(value)
    if type(value) is str:
        return read_timestamp(value)
    raise type_mismatch(value, "Timestamp")


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
    # Only for NaN and the infinities is `value - value` not 0.
    return value if value - value == 0 else non_finite_word(value)
