"""Regular expressions of users, which must not be able to stop whoever runs them.

RE2 cannot be made slow, so it is used where it is installed and understands the expression. Otherwise `regex` runs with
a time limit. Both are imported when the first expression is compiled, which is after the program was started.
"""

import re
from collections.abc import Callable
from typing import Any

from trainyard.foundation.errors import InvalidRequest

LIMIT_S = 0.1

# Expressions that say something about what lies outside their match, give up what they could match, or search in an
# order of their own. On a whole chunk of text these may find less than on its lines one by one.
_NOT_LOCAL = re.compile(
    r"\\[AZzGK]"  # ends of the text
    r"|\(\?<?!"  # what must not stand before or after
    r"|\(\?>|[*+?}]\+|\(\*"  # no way back
    r"|\(\?[(R&0-9]"  # conditions and recursion
    r"|\(\?[a-zA-Z]*[bepfrwV]"  # flags of `regex` that change how it searches
    r"|\{[^}]*[eids]"  # approximate matches
)

_Search = Callable[[str, int], Any]


class TooSlow(Exception):
    """The expression needs more time or memory for a text than it gets."""


class LinePattern:
    """One expression. `is_local` tells whether every match within a line is also one within any lines around it."""

    def __init__(self, expression: str) -> None:
        """InvalidRequest when it is not a regular expression."""
        self.is_local = _NOT_LOCAL.search(expression) is None
        self._in_line = _search_of(expression, is_multiline=False)
        self._in_lines = _search_of(expression, is_multiline=True)

    def value(self, line: str) -> str | None:
        """What the first group of the first match holds, or the whole match without a group; None without a match.

        TooSlow when it takes too long.
        """
        match = self._in_line(line, 0)
        if match is None:
            return None
        return str(match.group(1 if match.re.groups else 0) or "")

    def span(self, lines: str, start: int) -> tuple[int, int] | None:
        """Where the next match lies; it may go over the end of a line. TooSlow when it takes too long."""
        match = self._in_lines(lines, start)
        return None if match is None else (match.start(), match.end())


def _search_of(expression: str, *, is_multiline: bool) -> _Search:
    return _re2_search(expression, is_multiline) or _regex_search(expression, is_multiline)


def _re2_search(expression: str, is_multiline: bool) -> _Search | None:
    try:
        import re2
    except ImportError:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(f"(?m){expression}" if is_multiline else expression, options)
    except re2.error:
        return None
    return lambda text, start: pattern.search(text, start)


def _regex_search(expression: str, is_multiline: bool) -> _Search:
    import regex

    try:
        pattern = regex.compile(expression, regex.MULTILINE if is_multiline else 0)
    except (regex.error, RecursionError, OverflowError) as error:
        raise InvalidRequest(f'"{expression}" is not a regular expression: {error}.') from error

    def search(text: str, start: int) -> Any:
        try:
            return pattern.search(text, start, timeout=LIMIT_S)
        except (TimeoutError, MemoryError) as error:
            raise TooSlow from error

    return search
