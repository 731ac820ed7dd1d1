"""Tokens of pages: where the last row of a page stands in the order of its list. The next page begins behind it.

A token also names what decides which rows are listed in which order, so that it cannot be used for another list.
"""

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Column

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import AssociationQuery, Query
from trainyard.server.records.schema import Moment

_Query = Query | AssociationQuery


def encode_position(query: _Query, values: Sequence[object]) -> str:
    """Return the token of a row with these values. Times become microseconds."""
    plain = [to_micros(each) if isinstance(each, datetime) else each for each in values]
    return base64.urlsafe_b64encode(json.dumps([_fingerprint(query), *plain], separators=(",", ":")).encode()).decode()


def decode_position(query: _Query) -> list[object]:
    """Return the values in the token of a query as plain JSON values. InvalidRequest if it is not of this list."""
    try:
        fingerprint: object
        values: list[object]
        fingerprint, *values = json.loads(base64.b64decode(query.after, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError) as error:
        raise wrong_token() from error
    if fingerprint != _fingerprint(query):
        raise wrong_token()
    return values


def decode_columns(query: _Query, order: Sequence[Column[Any]]) -> list[str | datetime]:
    """Return the values in the token of a query for the columns that order its list."""
    try:
        return [_column_value(key, value) for key, value in zip(order, decode_position(query), strict=True)]
    except (ValueError, TypeError, OverflowError) as error:
        raise wrong_token() from error


def _column_value(key: Column[Any], value: object) -> str | datetime:
    match value:
        case int() if isinstance(key.type, Moment):
            return from_micros(value)
        case str() if not isinstance(key.type, Moment):
            return value
    raise TypeError(f"{value} is not a {key.name}")


def wrong_token() -> InvalidRequest:
    return InvalidRequest(
        "The page token does not belong to this list; use it with the same filters and order, or start again."
    )


def _fingerprint(query: _Query) -> int:
    """Return a hash of everything that decides which rows are listed in which order. The page size may vary."""
    return zlib.crc32(repr(replace(query, limit=1, after="")).encode("utf-8", "surrogatepass"))
