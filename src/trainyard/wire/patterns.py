"""The regular expressions of the models, which AWS matches in Java and against the whole string."""

import re
from collections.abc import Callable
from functools import cache

# What stands in a model, and what is meant by it. A test holds that nothing else in the served models is unreadable,
# and that no pattern takes a hostile string long.
CORRECTIONS = {
    # UTF-16 halves, in a range that runs backwards; Java reads them as everything beyond the basic plane.
    r"[\u0020-\uD7FF\uE000-\uFFFD\uD800\uDC00-\uDBFF\uDFFF\t]*": (
        r"[\u0020-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF\t]*"
    ),
    # Repetitions of repetitions, which take exponential time to refuse; each is the same language, told one way only.
    r"https://([.\-_a-zA-Z0-9]+/?){3,1016}": r"https://(?:[.\-_a-zA-Z0-9]/?){3,1016}",
    r"[a-z0-9]([-a-z0-9]*[a-z0-9]){0,39}?": r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?",
    r"^[a-z0-9*](?:[._\-/a-z0-9*]?[a-z0-9*]+)*$": r"[a-z0-9*]+(?:[._\-/][a-z0-9*]+)*",
}


@cache
def matcher(pattern: str) -> Callable[[str], object]:
    """A function whose result is true where the whole of a string satisfies the pattern."""
    corrected = CORRECTIONS.get(pattern, pattern)
    try:
        # Java's \w, \d and \s are those of ASCII.
        return re.compile(corrected, re.ASCII).fullmatch
    except re.error:
        import regex  # knows \p{L} and its like; few operations need it

        match: Callable[[str], object] = regex.compile(corrected).fullmatch
        return match
