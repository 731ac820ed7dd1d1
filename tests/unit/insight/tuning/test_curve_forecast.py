import math
import statistics

import numpy as np
import pytest

from trainyard.insight.tuning.curve_forecast import CurveModel, LossScale, fit_curve_model
from trainyard.insight.tuning.scales import Floats

TIMES = np.arange(1, 31)


def power_law(final: float, power: float, *, seed: int) -> tuple[float, ...]:
    noise = np.random.default_rng(seed).normal(0, 0.005, len(TIMES))
    return tuple(final + (1 - final) * TIMES**-power + noise)


WHOLE = tuple(power_law(0.1 + n / 20, 0.5 + n / 10, seed=n) for n in range(8))


def test_a_forecast_becomes_surer_the_more_of_a_curve_is_known() -> None:
    curve = power_law(0.3, 0.8, seed=99)
    deviations = [fit_curve_model(WHOLE).forecast(curve[:known]).deviation for known in (3, 6, 12, 24)]
    assert deviations == sorted(deviations, reverse=True)
    assert deviations[-1] < 0.05


def test_forecasts_are_right_as_often_as_they_say() -> None:
    generator = np.random.default_rng(5)
    chances = []
    for seed in range(100, 160):
        curve = power_law(generator.uniform(0.1, 0.5), generator.uniform(0.4, 1.3), seed=seed)
        chances.append(fit_curve_model(WHOLE).forecast(curve[:8]).probability_below(curve[-1]))
    surprises = np.mean([not 0.05 < chance < 0.95 for chance in chances])
    assert surprises <= 0.15
    assert np.mean(chances) == pytest.approx(0.5, abs=0.15)


def test_a_curve_that_is_scaled_and_moved_leads_to_the_same_place() -> None:
    curve = power_law(0.3, 0.8, seed=99)
    forecast = fit_curve_model(WHOLE).forecast(curve[:8])
    moved = fit_curve_model(tuple(tuple(1e6 * value - 3e6 for value in each) for each in WHOLE))
    other = moved.forecast([1e6 * value - 3e6 for value in curve[:8]])
    assert other.mean == pytest.approx(1e6 * forecast.mean - 3e6, rel=1e-6)
    assert other.deviation == pytest.approx(1e6 * forecast.deviation, rel=1e-6)


def test_curves_that_never_moved_lead_to_where_they_are() -> None:
    forecast = fit_curve_model(((0.5,) * 20,) * 5).forecast((0.5,) * 10)
    assert forecast.mean == pytest.approx(0.5)


def hinged(length: int) -> tuple[tuple[float, ...], ...]:
    """Curves that fall to a middle report and stay there, with a little unrest."""
    unrest = np.random.default_rng(3).normal(0, 0.02, (4, length))
    middles = (0.2, 0.4, 0.6, 0.8)
    parts = np.arange(length) / length
    return tuple(
        tuple((0.5 + middle) * np.clip(1 - parts / middle, 0, 1) + middle / 5 + noise)
        for middle, noise in zip(middles, unrest, strict=True)
    )


def explained_by(model: CurveModel, known: Floats, times: Floats, *, reports: int) -> list[tuple[float, float, float]]:
    """The logarithm of the evidence, the mean and the variance of the last value, of each noise, drift and shape.

    From the joint normal distribution of all reports and the last value, as the definition of the model says it.
    """
    (final, gain), (final_spread, gain_spread) = model.prior.means, model.prior.deviations
    memory, found = 0.3 * model.length, []
    for noise in (0.3 * model.noise, 1.0 * model.noise, 3.0 * model.noise):
        for drift in (0.05, 0.2):
            for shape in model.shapes:
                course = shape[:reports].reshape(len(times), -1).mean(axis=1)
                apart = np.abs(np.subtract.outer(times, times))
                spread = final_spread**2 + gain_spread**2 * np.outer(course, course)
                spread += drift**2 * np.exp(-apart / memory) + np.eye(len(times)) * noise**2 * len(times) / reports
                to_end = final_spread**2 + drift**2 * np.exp(-(model.length - times) / memory)
                seen = known - final - gain * course
                misfit = seen @ np.linalg.solve(spread, seen) + np.linalg.slogdet(spread)[1]
                mean = final + to_end @ np.linalg.solve(spread, seen)
                variance = final_spread**2 + drift**2 + noise**2 - to_end @ np.linalg.solve(spread, to_end)
                found.append((-0.5 * float(misfit), float(mean), float(variance)))
    return found


@pytest.mark.parametrize(("length", "reports", "bins"), [(12, 1, 1), (12, 7, 7), (100, 80, 40)])
def test_a_forecast_is_the_mixture_of_what_each_shape_makes_of_the_curve(length: int, reports: int, bins: int) -> None:
    curves = hinged(length)
    model = fit_curve_model(curves)
    curve = np.array(curves[1][:reports]) + 0.1
    scaled = ((curve - model.scale.center) / model.scale.range).reshape(bins, -1).mean(axis=1)
    times = np.arange(1, reports + 1).reshape(bins, -1).mean(axis=1)
    log_evidence, means, variances = np.array(explained_by(model, scaled, times, reports=reports)).T
    log_weights = model.log_weights.ravel() + log_evidence
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    forecast = model.forecast(curve.tolist())
    np.testing.assert_allclose(forecast.weights, weights, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(forecast.means, means, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(forecast.deviations, np.sqrt(variances), rtol=1e-6)
    mean = model.scale.invert(float(weights @ means))
    assert forecast.mean == pytest.approx(mean)
    around = weights @ (variances + (means - weights @ means) ** 2)
    assert forecast.deviation == pytest.approx(model.scale.range * math.sqrt(around))
    below = [statistics.NormalDist(each, math.sqrt(wide)).cdf(0.5) for each, wide in zip(means, variances, strict=True)]
    assert forecast.probability_below(model.scale.invert(0.5)) == pytest.approx(float(weights @ below))


def test_complete_curves_give_the_scale_the_prior_and_the_noise() -> None:
    model = fit_curve_model(((5.0, 3.0, 1.0, 1.0), (6.0, 4.0, 2.0, 2.0), (12.0, 8.0, 6.0, 4.0), (3.0, 1.0)))
    assert (model.scale.center, model.scale.range) == (1.5, 4.0)
    assert model.length == 4
    # To scale they end at -1/8, 1/8, 5/8 and -1/8, and have come 1, 1, 2 and 1/2 down to there.
    assert model.prior.means == (0.0, 1.0)
    finals, gains = np.array([-1, 1, 5, -1]) / 8, np.array([1, 1, 2, 0.5])
    assert model.prior.deviations == pytest.approx((1.5 * finals.std() + 0.3, 1.5 * gains.std() + 0.3))
    # Each curve bends once by 1/2 and once not at all, so that 1/4 is in the middle.
    assert model.noise == pytest.approx(0.25 / 0.6745 / math.sqrt(6))


def test_curves_without_noise_still_get_some() -> None:
    assert fit_curve_model(((3.0, 2.0, 1.0), (4.0, 3.0, 2.0))).noise == 0.01
    assert fit_curve_model(((3.0, 2.0), (4.0, 3.0))).noise == 0.01


def test_losses_that_are_far_off_or_not_finite_are_brought_near_what_is_known() -> None:
    scale = LossScale(center=10.0, range=2.0)
    inf, nan = math.inf, math.nan
    assert scale.apply([nan, 12.0, nan, inf, -inf, 9.0]).tolist() == [4.0, 1.0, 1.0, 1.0, 1.0, -0.5]
    assert scale.apply([1e300, -1e300]).tolist() == [4.0, -4.0]
    assert scale.invert(-0.5) == 9.0


def test_curves_are_measured_by_what_is_finite_and_can_be_computed_with() -> None:
    assert fit_curve_model(((math.nan, 3.0, 1.0), (1e200, 3.0, 1.0), (2.0, 3.0, 1.0))).scale == LossScale(1.0, 2.0)
    assert fit_curve_model(((math.nan, math.inf), (5.0, 5.0), (5.0, 5.0))).scale == LossScale(5.0, 5.0)
    assert fit_curve_model(((0.0, 0.0), (0.0, 0.0))).scale == LossScale(0.0, 1e-200)
    assert fit_curve_model(((5.0, 5.0), (7.0, 7.0), (6.0, 6.0))).scale == LossScale(6.0, 1.0)
    assert fit_curve_model(((-4e9, -4e9), (-4e9, -4e9))).scale == LossScale(-4e9, 4.0)


def test_shapes_are_the_typical_ones_and_the_complete_curves_at_three_paces() -> None:
    length = 10
    rising = tuple(float(time) for time in range(length, 0, -1))
    shapes = fit_curve_model((rising, rising[:5])).shapes
    times = np.arange(1.0, length + 1)
    part = times / length
    usual = [
        np.zeros(length),
        *(course(times**-power) for power in (0.3, 1.0, 2.0)),
        *(course(np.exp(-part / pace)) for pace in (0.03, 0.06, 0.12, 0.25, 0.5, 1.0)),
        *(course(1 / (1 + (part / middle) ** slope)) for middle in (0.15, 0.3, 0.5, 0.75) for slope in (3, 8)),
        course(-np.log(times)),
        course(-times),
    ]
    slower, faster = (
        np.array([5.4, 4.8, 4.2, 3.6, 3.0, 2.4, 1.8, 1.2, 0.6, 0.0]),
        np.array([9, 7.4, 5.8, 4.2, 2.6, 1.0]),
    )
    shown = [
        slower / 9,
        np.arange(9, -1, -1) / 9,
        np.array([*faster, 0, 0, 0, 0]) / 9,
        np.array([4, 3.4, 2.8, 2.2, 1.6, 1, 0.4, 0, 0, 0]) / 4,
        np.array([4, 3, 2, 1, 0, 0, 0, 0, 0, 0]) / 4,
        np.array([4, 2.4, 0.8, 0, 0, 0, 0, 0, 0, 0]) / 4,
    ]
    np.testing.assert_allclose(shapes, [*usual, *shown], atol=1e-12)


def course(values: Floats) -> Floats:
    return np.asarray((values - values[-1]) / (values[0] - values[-1]))


def test_shapes_are_weighted_by_how_well_they_fit_other_complete_curves() -> None:
    curves = hinged(12)
    model = fit_curve_model(curves)
    usual, shown = len(model.shapes) - 3 * len(curves), 3 * len(curves)
    first = np.log(np.tile([*[0.5 / usual / 6] * usual, *[0.5 / shown / 6] * shown], 6))
    total = 4.0 * np.exp(first)
    for index, curve in enumerate(curves):
        scaled = (np.array(curve) - model.scale.center) / model.scale.range
        log_evidence = [each[0] for each in explained_by(model, scaled, np.arange(1.0, 13.0), reports=12)]
        weights = np.exp(first + np.array(log_evidence) - max(log_evidence)).reshape(6, -1)
        weights[:, usual + 3 * index : usual + 3 * index + 3] = 0.0
        total += weights.ravel() / weights.sum()
    np.testing.assert_allclose(np.exp(model.log_weights).ravel(), total / total.sum(), rtol=1e-6)
