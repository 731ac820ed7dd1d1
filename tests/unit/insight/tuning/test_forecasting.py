import numpy as np
import pytest

from trainyard.insight.tuning.forecasting import learn

TIMES = np.arange(1, 31)


def power_law(final: float, power: float, *, seed: int) -> tuple[float, ...]:
    noise = np.random.default_rng(seed).normal(0, 0.005, len(TIMES))
    return tuple(final + (1 - final) * TIMES**-power + noise)


WHOLE = tuple(power_law(0.1 + n / 20, 0.5 + n / 10, seed=n) for n in range(8))


def test_a_forecast_becomes_surer_the_more_of_a_curve_is_known() -> None:
    curve = power_law(0.3, 0.8, seed=99)
    deviations = [learn(WHOLE).forecast(curve[:known]).deviation for known in (3, 6, 12, 24)]
    assert deviations == sorted(deviations, reverse=True)
    assert deviations[-1] < 0.05


def test_forecasts_are_right_as_often_as_they_say() -> None:
    generator = np.random.default_rng(5)
    chances = []
    for seed in range(100, 160):
        curve = power_law(generator.uniform(0.1, 0.5), generator.uniform(0.4, 1.3), seed=seed)
        chances.append(learn(WHOLE).forecast(curve[:8]).chance_below(curve[-1]))
    surprises = np.mean([not 0.05 < chance < 0.95 for chance in chances])
    assert surprises <= 0.15
    assert np.mean(chances) == pytest.approx(0.5, abs=0.15)


def test_a_curve_that_is_scaled_and_moved_leads_to_the_same_place() -> None:
    curve = power_law(0.3, 0.8, seed=99)
    forecast = learn(WHOLE).forecast(curve[:8])
    moved = learn(tuple(tuple(1e6 * value - 3e6 for value in each) for each in WHOLE))
    other = moved.forecast([1e6 * value - 3e6 for value in curve[:8]])
    assert other.mean == pytest.approx(1e6 * forecast.mean - 3e6, rel=1e-6)
    assert other.deviation == pytest.approx(1e6 * forecast.deviation, rel=1e-6)


def test_curves_that_never_moved_lead_to_where_they_are() -> None:
    forecast = learn(((0.5,) * 20,) * 5).forecast((0.5,) * 10)
    assert forecast.mean == pytest.approx(0.5)
