"""A prefix as a range of an index."""

from typing import Any

from sqlalchemy import Column, ColumnElement


def within(column: Column[Any], prefix: str) -> list[ColumnElement[bool]]:
    """The conditions for text that begins with the prefix, given that text is ordered by its UTF-8 bytes."""
    if not prefix:
        return []
    end = first_beyond(prefix)
    return [column >= prefix] if end is None else [column >= prefix, column < end]


def first_beyond(prefix: str) -> str | None:
    """The least text after all that begin with the prefix; None when there is nothing beyond."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:  # surrogates are no characters
        following = 0xE000
    return stem[:-1] + chr(following)
