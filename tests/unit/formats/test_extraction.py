"""Metrics in an output give the same values however the output is cut."""

import itertools
import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.formats import extraction
from trainyard.formats.extraction import MAX_LINE, MetricScanner
from trainyard.formats.patterns import LinePattern, TooSlow
from trainyard.link.contract import MetricSpec

EXPRESSIONS = (
    r"loss=([0-9.]+)",
    r"loss[^=]*=([0-9.]+)",
    r"^loss=([0-9.]+)",
    r"=([0-9.]+)$",
    r"^loss=([0-9.]+)$",
    r"\Aloss=([0-9.]+)",
    r"=([0-9.]+)\Z",
    r"(?<!s)=([0-9.]+)",
    r"(?<=s)=([0-9.]+)",
    r"=([0-9]+)(?![0-9.])",
    r"=([0-9]+)(?=\.)",
    r"\bloss=([0-9.]+)\b",
    r".*acc: ([0-9.]+).*",
    r"(?s)acc.*?([0-9]+)",
    r"(?i)LOSS=([0-9.]+)",
    r"\s([0-9]+)",
    r"\S+\s*=\s*([0-9.]+)",
    r"([0-9]+)[^0-9]+[0-9]+",
    r"[0-9]+",
    r"(x)?=[0-9]",
    r"(?:acc|loss)\W+([0-9.]+)",
)


def naive(expression: str, data: bytes) -> list[float]:
    """Line by line, as the definition says."""
    values = []
    for line in re.split("[\r\n]", data.decode(errors="replace")):
        match = re.search(expression, line[:MAX_LINE]) if line else None
        if match:
            text = (match.group(1) if match.re.groups else match.group()) or ""
            if re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+", text):
                values.append(float(text))
    return values


def scanned(expressions: Sequence[str], pieces: Sequence[bytes]) -> dict[str, list[float]]:
    scanner = MetricScanner([MetricSpec(text, text) for text in expressions], note=pytest.fail)
    found: dict[str, list[float]] = {text: [] for text in expressions}
    for values in (*(scanner.scan(piece) for piece in pieces), scanner.finish()):
        for each in values:
            found[each.metric].append(each.value)
    return found


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[first:last] for first, last in itertools.pairwise(edges)]


WORDS = st.sampled_from(
    [
        "loss=",
        "acc: ",
        "1",
        "2.5",
        ".5",
        "=",
        " ",
        "\n",
        "\r",
        "\r\n",
        "x",
        "é",
        "\x1b[31m",
        "0",
        "\n\n",
        "s=3\n",
        "\x80",
    ]
)


@given(words=st.lists(WORDS, max_size=60), places=st.lists(st.integers(0, 500), max_size=8))
def test_the_values_are_those_of_a_search_line_by_line(words: list[str], places: list[int]) -> None:
    data = "".join(words).encode("latin-1", "replace")
    assert scanned(EXPRESSIONS, cut(data, places)) == {text: naive(text, data) for text in EXPRESSIONS}


def test_a_long_log_gives_the_same_values_in_pieces_of_any_size() -> None:
    chance = random.Random(3)
    lines = [f"step {n} loss={chance.random():.4f} acc: {chance.random():.3f}" for n in range(2000)]
    data = "".join(line + chance.choice(["\n", "\r\n", "\r", "\nnoise\n"]) for line in lines).encode()
    wanted = {text: naive(text, data) for text in EXPRESSIONS}
    for size in (7, 1000, 65536, len(data)):
        assert scanned(EXPRESSIONS, [data[at : at + size] for at in range(0, len(data), size)]) == wanted


def test_only_the_beginning_of_an_endless_line_is_looked_at_and_kept() -> None:
    early, late = b"x=1 " + b"." * MAX_LINE, b" x=2"
    pieces = [early, *([b"." * 100_000] * 50), late, b"\nx=3\n"]
    assert scanned(["x=([0-9])"], pieces) == {"x=([0-9])": [1.0, 3.0]}
    assert scanned(["x=([0-9])$"], [b"." * MAX_LINE + b"x=2\n"]) == {"x=([0-9])$": []}


def test_the_memory_of_an_endless_line_is_bounded() -> None:
    scanner = MetricScanner([MetricSpec("x", "x=([0-9])")], note=pytest.fail)
    for _ in range(100):
        scanner.scan(b"." * 100_000)
    assert len(scanner._partial) <= 4 * MAX_LINE


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1", [1.0]),
        ("-1.5e-3", [-0.0015]),
        ("+.5", [0.5]),
        ("3.", [3.0]),
        (" 7 ", [7.0]),
        ("1e400", []),
        ("nan", []),
        ("inf", []),
        ("1_000", []),
        ("1,5", []),
        ("", []),
        ("0x10", []),
    ],
)
def test_only_finite_numbers_are_values(text: str, values: list[float]) -> None:
    assert scanned(["v=(.*)"], [f"v={text}\n".encode()]) == {"v=(.*)": values}


def test_what_is_no_number_is_counted_and_shown() -> None:
    scanner = MetricScanner([MetricSpec("loss", "loss=(.*)"), MetricSpec("acc", "acc=(.*)")], note=pytest.fail)
    scanner.scan(b"loss=nan\nloss=1\nloss=oops\nacc=1\n")
    assert list(scanner.misses()) == [
        'Metric loss captured something that is not a finite number 2 times, such as "oops".'
    ]


def test_an_invalid_expression_is_noted_and_the_others_work() -> None:
    notes: list[str] = []
    scanner = MetricScanner([MetricSpec("bad", "(["), MetricSpec("good", "x=([0-9])")], note=notes.append)
    assert [value.metric for value in scanner.scan(b"x=1\n")] == ["good"]
    (note,) = notes
    assert note.startswith('Metric bad is not extracted: "([" is not a regular expression')


def test_an_expression_that_takes_for_ever_is_given_up_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.formats.patterns.TIME_LIMIT_S", 0.001)
    notes: list[str] = []
    definitions = [MetricSpec("slow", r"^(.*?,){25}P(x)(?!y)"), MetricSpec("good", "([0-9]+)$")]
    scanner = MetricScanner(definitions, note=notes.append)
    line = ",".join(map(str, range(1, 40))).encode() + b"\n"
    found = [value for _ in range(extraction.MAX_STRIKES * 3) for value in scanner.scan(line)]
    assert [value.metric for value in found] == ["good"] * extraction.MAX_STRIKES * 3
    assert notes == ["Metric slow is no longer extracted: its regular expression is too slow."]


def test_a_match_that_goes_over_many_lines_hides_none_of_them() -> None:
    data = b"loss without a value\n" * 2000 + b"loss at last=5\nloss\n"
    assert scanned(["loss[^=]*?=([0-9]+)"], [data]) == {"loss[^=]*?=([0-9]+)": [5.0]}


def test_an_expression_slow_on_many_lines_continues_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.formats.patterns._re2_search", lambda *_: None)  # which is never slow
    monkeypatch.setattr("trainyard.formats.patterns.TIME_LIMIT_S", 0.02)
    expression = "loss[^#]*[#%]([0-9]+)"
    with pytest.raises(TooSlow):
        LinePattern(expression).span("loss without a value\n" * 20_000, 0)
    pieces = [b"loss #1\n", b"loss without a value\n" * 20_000, b"loss %2\nloss\n#3\nloss#4\n"]
    assert scanned([expression], pieces) == {expression: [1.0, 2.0, 4.0]}


def test_without_definitions_nothing_is_kept() -> None:
    scanner = MetricScanner([], note=pytest.fail)
    assert scanner.scan(b"loss=1") == []
    assert scanner.finish() == []


@pytest.mark.parametrize("after", [b"34\nloss=5\n", b"3\r\nloss=5\n", b"34", b"34\r"])
def test_the_lines_at_both_sides_of_a_gap_are_left_out(after: bytes) -> None:
    scanner = MetricScanner([MetricSpec("loss", "loss=([0-9]+)")], note=pytest.fail)
    found = scanner.scan(b"loss=1\nloss=2")
    scanner.skip()
    found += scanner.scan(after)
    found += scanner.scan(b"\nloss=6\n")
    found += scanner.finish()
    assert [each.value for each in found] == ([1.0, 5.0, 6.0] if b"loss=5" in after else [1.0, 6.0])
