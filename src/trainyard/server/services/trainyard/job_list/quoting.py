r"""Double quotes in a filter: what they enclose may have spaces, commas and operators, and \" is a quote itself."""

import re
from collections.abc import Iterator

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_PART = re.compile(rf'(?:{_QUOTED.pattern}|[^\s"])+', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\])')


def split_parts(text: str) -> Iterator[str]:
    """Yield what is between spaces, with its quotes. ValueError with the rest if a quote has no end."""
    at = 0
    for found in _PART.finditer(text):
        _check_end(text, at, found.start())
        yield found[0]
        at = found.end()
    _check_end(text, at, len(text))


def split_values(text: str) -> list[str]:
    """Return what is between commas, without quotes."""
    masked = mask(text)
    commas = [at for at, character in enumerate(masked) if character == ","]
    return [
        unquote(text[first:end])
        for first, end in zip([0, *(at + 1 for at in commas)], [*commas, len(text)], strict=True)
    ]


def unquote(text: str) -> str:
    return _QUOTED.sub(lambda quoted: _ESCAPED.sub(r"\1", quoted[0][1:-1]), text)


def mask(text: str) -> str:
    """Return a text of the same length, in which nothing inside quotes is found."""
    return _QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), text)


def _check_end(text: str, first: int, end: int) -> None:
    if text[first:end].strip():
        raise ValueError(text[first:].strip().removeprefix('"'))
