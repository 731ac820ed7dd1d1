"""What a search looks for in lines: a text, a regular expression, or the first line of an error."""

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from trainyard.formats.patterns import LinePattern, TooSlow
from trainyard.foundation.errors import InvalidRequest

# Characters; the rest of a longer line is only searched for plain text.
MAX_LINE = 64 * 1024
MAX_SPANS = 100

# An expression is refused after it was too slow on this many lines of one search.
_MAX_STRIKES = 3

# Colours of terminals, which no search should have to know.
_COLOURS = re.compile(rb"\x1b\[[0-9;:]*m")
_COLOURS_OF_TEXT = re.compile(r"\x1b\[[0-9;:]*m")

Span = tuple[int, int]


class LineMatcher(Protocol):
    """Finds lines. Colours do not count."""

    def matching_lines(self, lines: bytes) -> list[int]:
        """Return which of the lines match, counting from 0. Raises InvalidRequest if the search is too slow."""

    def spans(self, line: str) -> list[Span]:
        """Return the first matches in one line, in characters of `without_colours`."""


def without_colours(line: str) -> str:
    return _COLOURS_OF_TEXT.sub("", line) if "\x1b" in line else line


class TextMatcher:
    """Lines with a text."""

    def __init__(self, text: str, *, matches_case: bool = False) -> None:
        if not text or "\n" in text:
            raise InvalidRequest("The text to search for must not be empty, and must not have line ends.")
        self._matches_case = matches_case
        self._text = text if matches_case else text.lower()
        self._bytes = self._text.encode("utf-8", "replace")

    def matching_lines(self, lines: bytes) -> list[int]:
        text = _plain(lines)
        if not self._matches_case:
            # Other letters have capitals too.
            text = text.lower() if self._bytes.isascii() else text.decode("utf-8", "replace").lower().encode()
        return list(_line_numbers(text, _places(text, self._bytes)))

    def spans(self, line: str) -> list[Span]:
        plain = without_colours(line)
        searched = plain if self._matches_case else plain.lower()
        # Few letters become longer in lower case, and spans would be wrong after them.
        if len(searched) != len(plain):
            searched = plain
        found, at = list[Span](), searched.find(self._text)
        while at >= 0 and len(found) < MAX_SPANS:
            found.append((at, at + len(self._text)))
            at = searched.find(self._text, at + len(self._text))
        return found


class RegexMatcher:
    """Lines with a match of a regular expression, of RE2 or, without it, of the package regex."""

    def __init__(self, expression: str, *, matches_case: bool = False) -> None:
        """Compile the expression; raise InvalidRequest if it is invalid."""
        if not expression:
            raise InvalidRequest("The regular expression is empty; give one that matches something.")
        self._expression = expression
        self._pattern = LinePattern(expression if matches_case else f"(?i){expression}")
        self._strikes = 0

    def matching_lines(self, lines: bytes) -> list[int]:
        text = _plain(lines).decode("utf-8", "replace")
        if self._pattern.is_local and self._strikes < _MAX_STRIKES:
            try:
                return list(self._lines_of_spans(text))
            except TooSlow:
                # Some expressions are fast on one line and slow on many.
                self._strikes += 1
        return [number for number, line in enumerate(_lines(text)) if self._matches(line)]

    def spans(self, line: str) -> list[Span]:
        plain = without_colours(line)[:MAX_LINE]
        found, at = list[Span](), 0
        try:
            while at <= len(plain) and len(found) < MAX_SPANS and (span := self._pattern.span(plain, at)):
                if span[1] > span[0]:
                    found.append(span)
                at = max(span[1], at + 1)
        except TooSlow:
            self._strike()
        return found

    def _lines_of_spans(self, text: str) -> Iterator[int]:
        at = number = counted = 0
        while at < len(text) and (span := self._pattern.span(text, at)):
            number += text.count("\n", counted, span[0])
            counted = span[0]
            # The match may cross lines, so each of them has to match by itself.
            first, stop = text.rfind("\n", 0, span[0]) + 1, text.find("\n", max(span[0], span[1] - 1))
            stop = len(text) if stop < 0 else stop
            for place, line in enumerate(text[first:stop].split("\n")):
                if self._matches(line):
                    yield number + place
            at = stop + 1

    def _matches(self, line: str) -> bool:
        try:
            return self._pattern.value(line[:MAX_LINE]) is not None
        except TooSlow:
            self._strike()
            return False

    def _strike(self) -> None:
        self._strikes += 1
        if self._strikes > _MAX_STRIKES:
            raise InvalidRequest(f'"{self._expression}" is too slow on the lines of this log; simplify it.')


class ErrorMatcher:
    """Lines with which the message of an error begins or ends, as interpreters, compilers and systems word them."""

    def matching_lines(self, lines: bytes) -> list[int]:
        text = _plain(lines)
        # Most chunks of a log have none of these words, which are found much faster than the expression.
        places = sorted({place for word in _ERROR_WORDS for place in _places(text, word)})
        return [number for number, line in _numbered_lines(text, places) if _ERROR.search(line[:MAX_LINE])]

    def spans(self, line: str) -> list[Span]:
        plain = without_colours(line)[:MAX_LINE]
        return [match.span() for match in _ERROR_OF_TEXT.finditer(plain)][:MAX_SPANS]


# Every match of the expression below has one of them.
_ERROR_WORDS = (
    *(b"Traceback (", b"Error", b"Exception", b"ERROR", b"FATAL", b"CRITICAL", b"PANIC", b"error:", b"fatal:"),
    *(b"panic", b"CUDA", b"NCCL", b"Segmentation fault", b"core dumped", b"terminate called", b"Killed", b"Aborted"),
    *(b"error[", b"Bus error", b"Illegal instruction", b"ut of memory", b"assert", b"bad_alloc", b"Assertion"),
    *(b"xit code", b"xited with", b"xit status", b"killed by", b"No space left on device"),
)
_ERROR_SOURCE = (
    # Python, Java, JavaScript and what imitates them: the type of an exception, perhaps in its module.
    r"^\s*(?:\S+ )?Traceback \(most recent call last\)"
    r"|(?:^|[\s\]|>:(])(?:[A-Za-z_][\w]*[.:$]+)*[A-Z]\w*(?:Error|Exception)\b(?=:|\s*$| in thread| at )"
    r"|^Exception in thread"
    # Levels of loggers.
    r"|(?:^|[\s\[|<(])(?:ERROR|FATAL|CRITICAL|PANIC)(?=[\s\]|>:)]|$)"
    # Compilers, shells, Rust, Go, C and C++.
    r"|(?:^|[\s:])(?:fatal )?error(?:\[\w+\])?: "
    r"|^fatal: "
    r"|^panic: |^thread '.*' panicked at"
    r"|terminate called after throwing|std::bad_alloc|Assertion .*failed|assertion .*failed"
    # The system.
    r"|Segmentation fault|\(core dumped\)|\bBus error\b|\bIllegal instruction\b|^(?:.*: )?(?:Killed|Aborted)\s*$"
    r"|No space left on device"
    # CUDA and what runs on it.
    r"|\b(?:CUDA|cuDNN|CUBLAS|NCCL|nccl)\w*[ _](?:error|failure|ERROR)|device-side assert|[Oo]ut of memory"
    # How a program ended.
    r"|[Ee]xit(?:ed with)?(?: non-zero)? (?:code|status)[ :=]+-?[1-9]|\bkilled by (?:signal|SIG)"
)
_ERROR = re.compile(_ERROR_SOURCE.encode())
_ERROR_OF_TEXT = re.compile(_ERROR_SOURCE)


def _plain(lines: bytes) -> bytes:
    return _COLOURS.sub(b"", lines) if b"\x1b" in lines else lines


def _lines(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[at:end]
        at = end + 1


def _places(text: bytes, word: bytes) -> Iterator[int]:
    """Iterate over the first place of a word in each line."""
    at = text.find(word)
    while at >= 0:
        yield at
        newline = text.find(b"\n", at)
        at = text.find(word, newline) if newline >= 0 else -1


def _line_numbers(text: bytes, places: Iterable[int]) -> Iterator[int]:
    number = counted = 0
    for place in places:
        number += text.count(b"\n", counted, place)
        counted = place
        yield number


def _numbered_lines(text: bytes, places: list[int]) -> Iterator[tuple[int, bytes]]:
    """Iterate over the lines with these places, each once, with their numbers."""
    last = -1
    for number, place in zip(_line_numbers(text, places), places, strict=True):
        if number != last:
            last = number
            end = text.find(b"\n", place)
            yield number, text[text.rfind(b"\n", 0, place) + 1 : len(text) if end < 0 else end]
