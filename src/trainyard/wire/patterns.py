"""The regular expressions of the models. AWS matches them in Java, against the whole string."""

import re
from collections.abc import Callable
from functools import cache

# Patterns in the models, and what they mean. A test checks that all other patterns of the served models compile, and
# that no pattern is slow on a hostile string.
CORRECTIONS = {
    # UTF-16 surrogates in a reversed range; Java reads them as everything beyond the basic plane.
    r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*": (
        r"[\u0020-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF\t]*"
    ),
    # Nested repetitions take exponential time to reject; each replacement matches the same language unambiguously.
    r"https://([.\-_a-zA-Z0-9]+/?){3,1016}": r"https://(?:[.\-_a-zA-Z0-9]/?){3,1016}",
    r"[a-z0-9]([-a-z0-9]*[a-z0-9]){0,39}?": r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?",
    r"^[a-z0-9*](?:[._\-/a-z0-9*]?[a-z0-9*]+)*$": r"[a-z0-9*]+(?:[._\-/][a-z0-9*]+)*",
}


@cache
def matcher(pattern: str) -> Callable[[str], object]:
    """Return a function whose result is truthy if the whole string matches the pattern."""
    corrected = CORRECTIONS.get(pattern, pattern)
    try:
        # Java's \w, \d and \s match ASCII only.
        return re.compile(corrected, re.ASCII).fullmatch
    except re.error:
        # It supports \p{L} and the like; few operations need it.
        import regex

        match: Callable[[str], object] = regex.compile(corrected).fullmatch
        return match
