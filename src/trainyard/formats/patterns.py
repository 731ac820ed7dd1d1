"""Regular expressions of users, run so that a slow one cannot block the process.

RE2 runs in linear time, so it is used if it is installed and supports the expression. Otherwise `regex` runs with a
time limit. Both are imported when the first expression is compiled, which is after the program has started.
"""

import re
from collections.abc import Callable
from typing import Any

from trainyard.foundation.errors import InvalidRequest

TIME_LIMIT_S = 0.1

# Expressions that depend on the text outside their match, do not backtrack, or search in another order. On a chunk of
# many lines they may match less than on each line.
_NOT_LOCAL = re.compile(
    r"\\[AZzGK]"  # anchors of the text
    r"|\(\?<?!"  # negative lookaround
    r"|\(\?>|[*+?}]\+|\(\*"  # atomic and possessive
    r"|\(\?[(R&0-9]"  # conditions and recursion
    r"|\(\?[a-zA-Z]*[bepfrwV]"  # search flags of `regex`
    r"|\{[^}]*[eids]"  # approximate matches
)

_Search = Callable[[str, int], Any]


class TooSlow(Exception):
    """The expression needs more time or memory for a text than it gets."""


class LinePattern:
    """One expression. If `is_local`, every match within a line is also a match within any lines around it."""

    def __init__(self, expression: str) -> None:
        """Compile the expression; raise InvalidRequest if it is invalid."""
        self.is_local = _NOT_LOCAL.search(expression) is None
        self._in_line = _search_of(expression, is_multiline=False)
        self._in_lines = _search_of(expression, is_multiline=True)

    def value(self, line: str) -> str | None:
        """Return the first group of the first match, or the whole match without groups; None without a match.

        Raise TooSlow if it takes too long.
        """
        match = self._in_line(line, 0)
        if match is None:
            return None
        return str(match.group(1 if match.re.groups else 0) or "")

    def span(self, lines: str, start: int) -> tuple[int, int] | None:
        """Return the span of the next match, which may cross lines. Raise TooSlow if it takes too long."""
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
            return pattern.search(text, start, timeout=TIME_LIMIT_S)
        except (TimeoutError, MemoryError) as error:
            raise TooSlow from error

    return search
