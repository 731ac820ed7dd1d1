"""Filter patterns: the terms that a log event must contain, must not contain, or must contain one of.

`ERROR worker` requires both terms, `"out of memory"` a phrase, `-DEBUG` excludes a term, and `?ERROR ?WARN` requires
either. As on AWS, `?` terms count only if there are no others. Terms match anywhere in the message, in the same case.
"""

import re
from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest

_TERM = re.compile(r"""\s*(?P<sign>[?-]?)(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s"]+))(?=\s|\Z)""")
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class FilterPattern:
    """The terms of a filter pattern, in UTF-8."""

    required: tuple[bytes, ...] = ()
    excluded: tuple[bytes, ...] = ()
    optional: tuple[bytes, ...] = ()

    def matches(self, message: bytes) -> bool:
        if not self.required and not self.excluded:
            return not self.optional or any(term in message for term in self.optional)
        return all(term in message for term in self.required) and not any(term in message for term in self.excluded)


def parse_pattern(text: str) -> FilterPattern:
    """Parse a filter pattern; InvalidRequest if a term is invalid or the kind of pattern is not served."""
    stripped = text.strip()
    if stripped[:1] in ("{", "[", "%"):
        raise InvalidRequest(
            "Filter patterns for JSON ({…}), for columns ([…]) and with regular expressions (%…%) are not served; "
            'use terms, as in: ERROR "exact phrase" -DEBUG.'
        )
    terms: dict[str, list[bytes]] = {"": [], "-": [], "?": []}
    at = 0
    while at < len(stripped):
        found = _TERM.match(stripped, at)
        if found is None:
            raise InvalidRequest(f'The filter pattern is invalid from "{stripped[at:]}" on; check for a missing quote.')
        terms[found["sign"]].append(_term(found).encode("utf-8", "replace"))
        at = found.end()
    return FilterPattern(tuple(terms[""]), tuple(terms["-"]), tuple(terms["?"]))


def _term(found: re.Match[str]) -> str:
    if found["quoted"] is not None:
        return _ESCAPE.sub(r"\1", found["quoted"])
    if not re.fullmatch(r"\w+", found["bare"]):
        raise InvalidRequest(
            f"The term {found['bare']} of the filter pattern may only have letters, digits and underscores; otherwise "
            f'put it in quotes: "{found["bare"]}".'
        )
    return found["bare"]
