"""Filter patterns: the terms that a log event must have, may not have, or must have one of.

`ERROR worker` asks for both terms, `"out of memory"` for a phrase, `-DEBUG` excludes, `?ERROR ?WARN` asks for either;
as in AWS, `?` terms count only when there are no others. Terms are found anywhere in the message, case and all.
"""

import re
from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest

_TERM = re.compile(r"""\s*(?P<sign>[?-]?)(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s"]+))(?=\s|\Z)""")
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class FilterPattern:
    required: tuple[bytes, ...] = ()
    excluded: tuple[bytes, ...] = ()
    optional: tuple[bytes, ...] = ()

    def matches(self, message: bytes) -> bool:
        if not self.required and not self.excluded:
            return not self.optional or any(term in message for term in self.optional)
        return all(term in message for term in self.required) and not any(term in message for term in self.excluded)


def parse_pattern(text: str) -> FilterPattern:
    """Read a filter pattern; InvalidRequest for a kind that is not served or a term that is none."""
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
            raise InvalidRequest(f'The filter pattern cannot be read from "{stripped[at:]}" on; is a quote not closed?')
        terms[found["sign"]].append(_term(found).encode("utf-8", "replace"))
        at = found.end()
    return FilterPattern(tuple(terms[""]), tuple(terms["-"]), tuple(terms["?"]))


def _term(found: re.Match[str]) -> str:
    if found["quoted"] is not None:
        return _ESCAPE.sub(r"\1", found["quoted"])
    if not re.fullmatch(r"\w+", found["bare"]):
        raise InvalidRequest(
            f"The term {found['bare']} of the filter pattern holds more than letters, digits and underscores; "
            f'write it in quotes: "{found["bare"]}".'
        )
    return found["bare"]
