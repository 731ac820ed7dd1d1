import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

import pytest

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.plain import from_plain, to_plain

NOON = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Whole:
    colour: Colour
    made_at: datetime
    parts: tuple[Part, ...] = ()
    by_name: Mapping[str, Part] = field(default_factory=dict)
    by_colour: Mapping[Colour, Part] = field(default_factory=dict)
    more: Sequence[Part] = ()
    ended_at: datetime | None = None
    share: float = 0.5
    anything: Mapping[str, object] = field(default_factory=dict)


WHOLE = Whole(
    Colour.RED,
    NOON,
    parts=(Part("a", (1, 2)), Part("b")),
    by_name={"a": Part("a")},
    by_colour={Colour.RED: Part("c")},
    more=[Part("d")],
    ended_at=NOON,
    anything={"x": [1, "two", {"three": None}]},
)


def test_a_value_survives_json() -> None:
    read = from_plain(Whole, json.loads(json.dumps(to_plain(WHOLE))))
    assert read == WHOLE
    assert [type(colour) for colour in read.by_colour] == [Colour]


def test_what_has_its_default_is_left_out() -> None:
    assert to_plain(Whole(Colour.RED, NOON)) == {"colour": "red", "made_at": 1782907200123456}


def test_what_is_missing_takes_its_default() -> None:
    assert from_plain(Whole, {"colour": "red", "made_at": 0}).share == 0.5


@pytest.mark.parametrize(
    "plain",
    [
        {"colour": "red"},
        {"colour": "blue", "made_at": 0},
        {"colour": "red", "made_at": "noon"},
        {"colour": "red", "made_at": 0, "size": 3},
        {"colour": "red", "made_at": 0, "parts": [{"name": "a", "sizes": 3}]},
    ],
)
def test_what_cannot_be_such_a_value_is_corrupt(plain: Mapping[str, object]) -> None:
    with pytest.raises(Corrupt, match="Whole"):
        from_plain(Whole, plain)
