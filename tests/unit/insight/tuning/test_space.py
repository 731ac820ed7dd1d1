import math
from collections import Counter

import numpy as np
import pytest

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.contract import Value
from trainyard.insight.tuning.space import Space
from trainyard.testing.tuning import (
    EXTREME,
    FINITE,
    MIXED,
    SINGLE,
    THIRTY_PARAMETERS,
    categorical,
    continuous,
    integer,
)


@pytest.mark.parametrize("space", [FINITE, SINGLE, MIXED, EXTREME, THIRTY_PARAMETERS])
def test_points_come_back_from_their_texts(space: Space) -> None:
    for row in space.sample(np.random.default_rng(0), 50):
        values = space.decode(row)
        assert space.admits(values)
        assert space.values(space.texts(values)) == values


@pytest.mark.parametrize("space", [FINITE, SINGLE, MIXED, THIRTY_PARAMETERS])
def test_coordinates_come_back_from_their_points(space: Space) -> None:
    rows = space.sample(np.random.default_rng(0), 50)
    again = np.array([space.encode(space.decode(row)) for row in rows], dtype=np.float64)
    np.testing.assert_allclose(again, rows, atol=1e-9)


@pytest.mark.parametrize("space", [MIXED, EXTREME, FINITE])
@pytest.mark.parametrize("coordinate", [-1e9, -1e-17, 0.0, 0.5, 1.0, 1.0 + 1e-12, 1e9])
def test_any_coordinates_are_decoded_within_the_ranges(space: Space, coordinate: float) -> None:
    assert space.admits(space.decode(np.full(space.dimension, coordinate)))


def test_snapped_rows_are_those_of_the_points_that_they_decode_to() -> None:
    rows = np.random.default_rng(1).uniform(-0.2, 3.2, (40, MIXED.dimension))
    expected = [MIXED.encode(MIXED.decode(row)) for row in rows]
    np.testing.assert_allclose(MIXED.snap(rows), np.array(expected), atol=1e-12)


def test_every_integer_is_as_likely_as_the_others() -> None:
    space = Space([integer("layers", 3, 6)])
    drawn = Counter(space.decode(row)["layers"] for row in space.sample(np.random.default_rng(0), 4000))
    assert set(drawn) == {3, 4, 5, 6}
    assert all(900 < count < 1100 for count in drawn.values())


def test_every_integer_of_a_logarithmic_range_is_reached() -> None:
    space = Space([integer("units", 1, 64, Scaling.LOGARITHMIC)])
    reached = {space.decode(np.array([unit]))["units"] for unit in np.linspace(0, 1, 2000)}
    assert reached == set(range(1, 65))


def test_integers_too_large_for_floats_stay_integers_within_their_bounds() -> None:
    space = Space([HyperparameterRange("large", RangeKind.INTEGER, 0, 1e300)])
    (values,) = [space.decode(row) for row in space.sample(np.random.default_rng(0), 1)]
    assert isinstance(values["large"], int)
    assert space.values(space.texts(values)) == values


def test_what_cannot_differ_has_no_coordinate() -> None:
    space = Space([continuous("rate", 0.1, 0.1), integer("layers", 1, 3)])
    assert space.dimension == 1
    assert space.decode(np.array([0.99])) == {"rate": 0.1, "layers": 3}
    assert SINGLE.dimension == 0
    assert SINGLE.size == 1
    assert SINGLE.sample(np.random.default_rng(0), 3).shape == (3, 0)


def test_a_space_of_nothing_has_one_empty_point() -> None:
    assert Space([]).size == 1
    assert Space([]).decode(np.empty(0)) == {}


def test_numbers_outside_the_range_count_as_the_nearer_bound() -> None:
    space = Space([continuous("rate", 0.0, 1.0), integer("layers", 1, 3)])
    row, edge = space.encode({"rate": 7.5, "layers": -(10**400)}), space.encode({"rate": 1.0, "layers": 1})
    assert row is not None
    assert edge is not None
    assert row.tolist() == edge.tolist()


@pytest.mark.parametrize(
    "changed",
    [
        {"optimizer": "rmsprop"},
        {"rate": math.nan},
        {"rate": math.inf},
        {"rate": "high"},
        {"layers": "3"},
        {"fixed": math.nan},
        {"momentum": None},
    ],
)
def test_what_is_no_value_of_a_range_has_no_coordinates(changed: dict[str, Value | None]) -> None:
    good: dict[str, Value] = {"rate": 0.1, "momentum": 0.9, "layers": 3, "optimizer": "sgd", "fixed": 0.5}
    assert MIXED.encode(good) is not None
    left = {name: value for name, value in {**good, **changed}.items() if value is not None}
    assert MIXED.encode(left) is None


def test_another_value_of_the_only_category_has_no_coordinates() -> None:
    space = Space([categorical("optimizer", "sgd"), continuous("rate", 0, 1)])
    assert space.encode({"optimizer": "adam", "rate": 0.5}) is None
    assert space.encode({"optimizer": "sgd", "rate": 0.5}) is not None


def test_texts_are_parsed_by_the_kind_of_their_range() -> None:
    texts = {"rate": "1e-3", "momentum": "high", "layers": "12.0", "optimizer": "rmsprop", "epochs": "3"}
    assert MIXED.values(texts) == {"rate": 0.001, "layers": 12}


def test_texts_of_numbers_are_short() -> None:
    assert MIXED.texts({"rate": 0.1, "layers": 12, "optimizer": "sgd"}) == {
        "rate": "0.1",
        "layers": "12",
        "optimizer": "sgd",
    }


def test_a_finite_space_is_walked_once_in_random_order() -> None:
    walks = [[FINITE.key(point) for point in FINITE.walk(np.random.default_rng(seed))] for seed in (0, 0, 1)]
    assert len(set(walks[0])) == len(walks[0]) == FINITE.size
    assert walks[0] == walks[1] != walks[2]


def test_a_finite_space_too_large_to_list_is_walked_through_without_repeating() -> None:
    space = Space([integer(f"i{index}", 0, 10**15) for index in range(3)])
    steps = space.walk(np.random.default_rng(0))
    assert len({space.key(next(steps)) for _ in range(1000)}) == 1000


def test_numbers_in_a_unit_cube_give_each_category_its_share() -> None:
    units = np.linspace(0, 1, 300, endpoint=False)[:, None]
    space = Space([categorical("optimizer", "sgd", "adam", "lamb")])
    assert Counter(space.spread(units)[:, 0].tolist()) == {0.0: 100, 1.0: 100, 2.0: 100}


def test_a_space_that_is_too_large_to_list_is_walked_through_to_its_last_point() -> None:
    space = Space([integer("units", 1, 100_002)])
    assert sorted(point["units"] for point in space.walk(np.random.default_rng(0))) == list(range(1, 100_003))


def test_points_are_counted_with_the_last_hyperparameter_first() -> None:
    space = Space([integer("layers", 1, 2), categorical("bias", "no", "yes", "both")])
    assert space.size == 6
    assert [space.key(space.point(index)) for index in range(6)] == [
        *((1, bias) for bias in ("no", "yes", "both")),
        *((2, bias) for bias in ("no", "yes", "both")),
    ]


@pytest.mark.parametrize(
    ("changed", "is_admitted"),
    [
        ({}, True),
        ({"rate": 1e-5}, True),
        ({"rate": 1.0}, True),
        ({"rate": 1.1}, False),
        ({"rate": 1e-6}, False),
        ({"layers": 12}, True),
        ({"layers": 13}, False),
        ({"layers": 3.0}, False),
        ({"layers": "3"}, False),
        ({"optimizer": "rmsprop"}, False),
        ({"fixed": 0.6}, False),
        ({"more": 1}, False),
    ],
)
def test_a_point_is_of_a_space_when_every_value_is_within_its_range(
    changed: dict[str, Value], is_admitted: bool
) -> None:
    good: dict[str, Value] = {"rate": 0.1, "momentum": 0.9, "layers": 3, "optimizer": "sgd", "fixed": 0.5}
    assert MIXED.admits({**good, **changed}) is is_admitted
    assert not MIXED.admits({name: value for name, value in good.items() if name != "rate"})


def test_a_space_knows_its_categorical_axes() -> None:
    assert MIXED.categorical.tolist() == [False, False, False, True]
