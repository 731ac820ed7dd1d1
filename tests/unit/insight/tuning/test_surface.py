import math

import numpy as np
import pytest

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.space import Space
from trainyard.insight.tuning.surface import Surface, surface_of

RANGES = (
    HyperparameterRange("lr", RangeKind.CONTINUOUS, low=1e-5, high=1e-1, scaling=Scaling.LOGARITHMIC),
    HyperparameterRange("layers", RangeKind.INTEGER, low=1, high=8),
    HyperparameterRange("opt", RangeKind.CATEGORICAL, values=("adam", "sgd")),
    HyperparameterRange("seed", RangeKind.CONTINUOUS, low=0.0, high=1.0),
)


def points(count: int) -> list[dict[str, str]]:
    space = Space(RANGES)
    rows = space.sample(np.random.default_rng(3), count)
    return [space.texts(space.decode(row)) for row in rows]


def height(point: dict[str, str]) -> float:
    """Mostly the learning rate, then the optimiser, a little the layers, and never the seed."""
    steep = (math.log10(float(point["lr"])) + 3.0) ** 2
    return steep + (2.0 if point["opt"] == "sgd" else 0.0) + 0.1 * int(point["layers"])


@pytest.fixture(scope="module")
def surface() -> Surface:
    known = points(60)
    found = surface_of(RANGES, known, [height(point) for point in known], is_maximized=False)
    assert found is not None
    return found


def test_hyperparameters_are_ranked_by_the_variance_that_goes_with_them(surface: Surface) -> None:
    found = {each.name: each for each in surface.importances()}
    assert list(found) == ["lr", "opt", "layers", "seed"]
    # By calculation: 1.42, 1 and 0.05 of 2.47 in all.
    assert found["lr"].with_others == pytest.approx(0.575, abs=0.06)
    assert found["opt"].alone == pytest.approx(0.404, abs=0.06)
    assert found["seed"].with_others < 0.01
    assert surface.explained > 0.95


def test_interactions_are_told_from_the_effects_of_one_alone() -> None:
    known = points(80)
    values = [(float(point["seed"]) - 0.5) * (1.0 if point["opt"] == "sgd" else -1.0) for point in known]
    found = surface_of(RANGES, known, values, is_maximized=False)
    assert found is not None
    shares = {each.name: each for each in found.importances()}
    assert shares["opt"].alone < 0.1
    assert shares["opt"].with_others > 0.8


def test_a_profile_follows_the_objective_and_a_landscape_has_both(surface: Surface) -> None:
    dependence = surface.partial_dependence("lr")
    lowest = dependence.positions[int(np.argmin(dependence.values))]
    assert lowest == pytest.approx(0.5, abs=0.06)  # 1e-3 is half way on the logarithmic scale
    assert len(surface.partial_dependence("opt").positions) == 2
    joint = surface.joint_partial_dependence("lr", "layers")
    assert (len(joint.values), len(joint.values[0])) == (len(joint.y_positions), len(joint.x_positions)) == (8, 25)


def test_a_profile_has_the_mean_over_all_other_hyperparameters_in_units_of_the_objective(surface: Surface) -> None:
    dependence = surface.partial_dependence("lr", positions=5)
    assert dependence.positions == (0.0, 0.25, 0.5, 0.75, 1.0)
    # Half of all have the worse optimiser, which costs 2, and 4.5 layers on average cost 0.45.
    assert dependence.values == pytest.approx([5.45, 2.45, 1.45, 2.45, 5.45], abs=0.25)
    adam, sgd = surface.partial_dependence("opt").values
    assert sgd - adam == pytest.approx(2.0, abs=0.2)
    assert len(surface.partial_dependence("lr").positions) == len(surface.partial_dependence("seed").positions) == 41


def test_a_landscape_has_a_row_for_each_place_of_the_second_hyperparameter(surface: Surface) -> None:
    joint = surface.joint_partial_dependence("lr", "opt", positions=3)
    assert (joint.x_positions, joint.y_positions) == ((0.0, 0.5, 1.0), (0.25, 0.75))
    expected = [[4.45, 0.45, 4.45], [6.45, 2.45, 6.45]]
    np.testing.assert_allclose(joint.values, expected, atol=0.3)
    turned = surface.joint_partial_dependence("opt", "lr", positions=3)
    assert (turned.x_positions, turned.y_positions) == (joint.y_positions, joint.x_positions)
    np.testing.assert_allclose(turned.values, np.transpose(joint.values), atol=1e-9)


def test_what_it_says_is_the_same_each_time(surface: Surface) -> None:
    assert surface.importances() == surface.importances()
    assert surface.partial_dependence("seed") == surface.partial_dependence("seed")


def test_a_divergence_does_not_hide_everything_else() -> None:
    known = points(60)
    values = [height(point) for point in known]
    values[5] = 1e9
    found = surface_of(RANGES, known, values, is_maximized=False)
    assert found is not None
    assert next(iter(found.importances())).name == "lr"
    assert found.explained > 0.5


def test_by_how_much_a_trial_diverged_makes_no_difference_and_by_how_much_one_is_better_does() -> None:
    known = points(40)
    values = [height(point) for point in known]

    def found(outlier: float, *, sign: float = 1.0) -> list[float]:
        changed = [sign * value for value in (outlier, *values[1:])]
        surface = surface_of(RANGES, known, changed, is_maximized=sign < 0)
        assert surface is not None
        return [sign * value for value in surface.partial_dependence("lr", positions=5).values]

    median, best = float(np.median(values)), min(values)
    farthest = median + 4 * (median - best)
    assert found(1e9) == found(1e3) == pytest.approx(found(farthest), rel=1e-6)
    assert found(farthest) != pytest.approx(found(farthest - 1.0), rel=1e-3)
    assert found(1e9, sign=-1.0) == pytest.approx(found(1e9), rel=1e-6)
    assert found(-30.0) != pytest.approx(found(-20.0), rel=0.1)


def test_a_random_objective_is_not_explained() -> None:
    values = np.random.default_rng(1).normal(size=40)
    found = surface_of(RANGES, points(40), values.tolist(), is_maximized=False)
    assert found is not None
    assert 0.0 <= found.explained < 0.2
    assert all(0.0 <= each.alone <= each.with_others <= 1.0 for each in found.importances())


def test_the_least_trials_make_a_surface_and_those_of_no_point_are_left_out() -> None:
    known, values = points(5), [1.0, 2.0, 3.0, 4.0, 6.0]
    least = surface_of(RANGES, known, values, is_maximized=False)
    assert least is not None
    gone = surface_of(RANGES, [{**known[0], "opt": "gone"}, *known], [99.0, *values], is_maximized=False)
    assert gone is not None
    assert gone.partial_dependence("lr") == least.partial_dependence("lr")
    assert surface_of(RANGES, [{**known[0], "opt": "gone"}, *known[1:]], values, is_maximized=False) is None


@pytest.mark.parametrize("count", [0, 4])
def test_few_trials_or_a_flat_objective_make_no_surface(count: int) -> None:
    assert surface_of(RANGES, points(count), [float(each) for each in range(count)], is_maximized=True) is None
    assert surface_of(RANGES, points(20), [1.0] * 20, is_maximized=True) is None
    assert surface_of((), [{}] * 20, [float(each) for each in range(20)], is_maximized=True) is None
