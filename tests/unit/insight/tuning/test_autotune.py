from dataclasses import replace

import pytest

from trainyard.foundation.jobs.tuning import (
    CompletionCriteria,
    Direction,
    EarlyStopping,
    HyperparameterRange,
    Objective,
    RangeKind,
    Scaling,
    StrategyKind,
    TuningDefinition,
    TuningPlan,
)
from trainyard.insight.tuning.autotune import apply_autotune, guess_range, guess_ranges, trial_limit

LINEAR, LOG, REVERSE = Scaling.LINEAR, Scaling.LOGARITHMIC, Scaling.REVERSE_LOGARITHMIC


@pytest.mark.parametrize(
    ("name", "hint", "low", "high", "scaling"),
    [
        ("learning_rate", "0.001", 3.33333e-05, 0.03, LOG),
        ("learningRate", "1e-3", 3.33333e-05, 0.03, LOG),
        ("eta", "0.3", 0.01, 1.0, LOG),
        ("lr", "0.1", 0.00333333, 1.0, LOG),
        ("dropout", "0.1", 0.0, 0.5, LINEAR),
        ("attn-dropout", "0", 0.0, 0.5, LINEAR),
        ("dropout_rate", "0.5", 0.0, 0.75, LINEAR),
        ("weight_decay", "0.01", 0.0001, 1.0, LOG),
        ("weight-decay", "0", 1e-06, 0.1, LOG),
        ("lambda", "1", 0.01, 100.0, LOG),
        ("momentum", "0.9", 0.0, 0.99, REVERSE),
        ("beta_2", "0.999", 0.99, 0.9999, REVERSE),
        ("subsample", "0.8", 0.4, 1.0, LINEAR),
        ("subsample", "1", 0.5, 1.0, LINEAR),
        ("temperature", "2.5", 0.25, 25.0, LOG),
        ("offset", "-2.0", -4.0, -1.0, LINEAR),
        ("share_of_it", "0.3", 0.1, 0.9, LINEAR),
        ("bias", "0.0", 0.0, 1.0, LINEAR),
        ("lr", "0.5", 0.0166667, 1.0, LOG),
        ("lr", "2.5", 0.0833333, 2.5, LOG),
        ("lr", "-0.1", -0.2, -0.05, LINEAR),
        ("dropout", "0.9", 0.0, 0.9, LINEAR),
        ("dropout", "0.95", 0.316667, 1.0, LINEAR),
        ("dropout", "-0.5", -1.0, -0.25, LINEAR),
        ("weight_decay", "-0.5", -1.0, -0.25, LINEAR),
        ("momentum", "0.5", 0.0, 0.95, REVERSE),
        ("momentum", "0.0", 0.0, 1.0, LINEAR),
        ("momentum", "1.0", 0.333333, 1.0, LINEAR),
        ("subsample", "0.0", 0.0, 1.0, LINEAR),
        ("subsample", "1.5", 0.15, 15.0, LOG),
        ("batch_size", "0.5", 0.166667, 1.0, LINEAR),
        ("temperature", "0.1", 0.0333333, 0.3, LINEAR),
        ("temperature", "0.09", 0.009, 0.9, LOG),
        ("temperature", "1.0", 0.333333, 1.0, LINEAR),
        ("temperature", "1.1", 0.11, 11.0, LOG),
        ("blur", "0.3", 0.1, 0.9, LINEAR),
    ],
)
def test_a_continuous_range_is_guessed_by_name_and_value(
    name: str, hint: str, low: float, high: float, scaling: Scaling
) -> None:
    assert guess_range(name, hint) == HyperparameterRange(name, RangeKind.CONTINUOUS, low, high, scaling)


@pytest.mark.parametrize(
    ("name", "hint", "low", "high", "scaling"),
    [
        ("batch-size", "64", 16, 256, LOG),
        ("batch_size", "2", 1, 8, LOG),
        ("hidden_units", "100", 25, 400, LOG),
        ("num_round", "100", 25, 400, LOG),
        ("max_depth", "6", 3, 12, LINEAR),
        ("layers", "1", 1, 2, LINEAR),
        ("lr_scheduler_step_size", "30", 7, 120, LOG),
        ("lr", "1", 1, 2, LINEAR),
        ("dropout", "1", 1, 2, LINEAR),
        ("depth", "10", 5, 20, LINEAR),
        ("depth", "11", 2, 44, LOG),
        ("depth", "+5", 2, 10, LINEAR),
        ("shift", "-4", -8, -2, LINEAR),
        ("batch", "-4", -8, -2, LINEAR),
    ],
)
def test_an_integer_range_is_guessed_by_name_and_value(
    name: str, hint: str, low: int, high: int, scaling: Scaling
) -> None:
    assert guess_range(name, hint) == HyperparameterRange(name, RangeKind.INTEGER, low, high, scaling)


def kinds(names: str, hint: str) -> set[tuple[float, float, Scaling]]:
    """What is searched for each of these names."""
    ranges = guess_ranges(dict.fromkeys(names.split(), hint)).ranges
    return {(each.low, each.high, each.scaling) for each in ranges}


def test_names_are_known_however_their_words_are_joined() -> None:
    assert kinds("drop dropoutRate attn_drop fc-dropout", "0.2") == {(0.0, 0.5, LINEAR)}
    penalties = "wd weight_decay weightDecay l1 L2 alpha reg_lambda reg epsilon adam.eps tol regularizer penalty"
    assert kinds(penalties, "0.01") == {(0.0001, 1.0, LOG)}
    assert kinds("momentum sgdMomentum beta beta1 beta_2 rho discount", "0.9") == {(0.0, 0.99, REVERSE)}
    assert kinds("lr base_lr eta eta0 learning_rate learningrate LearningRate", "0.02") == {(0.000666667, 0.6, LOG)}
    assert kinds("subsample colsample_bytree feature_fraction ratio", "0.3") == {(0.15, 1.0, LINEAR)}
    sizes = "batch hidden embed_dim units channels filters neurons width epochs num_round n_estimators max_iter trees"
    assert kinds(f"{sizes} num_leaves", "8") == {(2, 32, LOG)}
    others = "swd l3 alphabet stop betamax rhomb lrs beta3 metal"
    assert kinds(others, "0.3") == {(0.1, 0.9, LINEAR)}


@pytest.mark.parametrize("name", ["lr", "momentum", "subsample", "batch", "depth"])
def test_of_a_whole_zero_nothing_can_be_guessed_unless_the_name_tells(name: str) -> None:
    assert guess_range(name, "0") is None


def test_as_many_values_as_aws_takes_are_categories() -> None:
    words = [str(number) for number in range(30)]
    guess = guess_range("choice", ",".join(words))
    assert guess is not None
    assert guess.values == tuple(words)
    assert guess_range("choice", ",".join([*words, "one more"])) is None


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        ("no", ("yes", "no")),
        ("on", ("on", "off")),
        (" a , b,", ("a", "b")),
        ("[true, 1.5]", ("true", "1.5")),
        ("true", ("true", "false")),
        ("False", ("True", "False")),
        ("sgd, adam", ("sgd", "adam")),
        ('["relu", "tanh", "relu"]', ("relu", "tanh")),
        ("[16, 32]", ("16", "32")),
    ],
)
def test_words_that_name_their_alternatives_are_categories(hint: str, values: tuple[str, ...]) -> None:
    assert guess_range("choice", hint) == HyperparameterRange("choice", RangeKind.CATEGORICAL, values=values)


@pytest.mark.parametrize(
    "hint", ["", "cross_entropy", "0", "nan", "inf", "[1", "[]", "a,", ",".join(map(str, range(31)))]
)
def test_what_nothing_can_be_guessed_of_is_not_searched(hint: str) -> None:
    guess = guess_ranges({"loss": hint, "lr": "0.01"})
    assert [each.name for each in guess.ranges] == ["lr"]
    assert guess.static == {"loss": hint}


@pytest.mark.parametrize("hint", ["1e-9", "0.5", "0.99999999", "1.0", "7.5", "1e300", "3", "1000000", "-5", "0.05"])
@pytest.mark.parametrize("name", ["lr", "dropout", "alpha", "momentum", "batch", "ratio", "other"])
def test_every_range_holds_its_example_and_suits_its_scale(name: str, hint: str) -> None:
    guess = guess_range(name, hint)
    assert guess is not None
    assert guess.low <= float(hint) <= guess.high
    assert guess.low < guess.high
    if guess.scaling is LOG:
        assert guess.low > 0
    if guess.scaling is REVERSE:
        assert guess.low >= 0
        assert guess.high < 1


PLAN = TuningPlan(
    strategy=StrategyKind.RANDOM,
    definitions=(
        TuningDefinition(
            "",
            Objective("loss", Direction.MINIMIZE),
            (
                HyperparameterRange("rate", RangeKind.CONTINUOUS, 0.1, 1.0),
                HyperparameterRange("kind", RangeKind.CATEGORICAL, values=("a", "b")),
                HyperparameterRange("fixed", RangeKind.INTEGER, 3, 3),
            ),
        ),
    ),
    max_parallel=2,
)


def test_everything_left_out_is_chosen() -> None:
    chosen = apply_autotune(PLAN, given=())
    assert chosen == replace(
        PLAN,
        strategy=StrategyKind.BAYESIAN,
        max_trials=40,
        early_stopping=EarlyStopping.CURVE,
        completion=CompletionCriteria(on_convergence=True),
    )


def test_what_is_given_stays() -> None:
    given = replace(PLAN, max_trials=7)
    assert apply_autotune(given, given=("strategy", "max_trials", "early_stopping", "completion")) == given


def test_a_limit_on_the_time_is_limit_enough() -> None:
    assert apply_autotune(replace(PLAN, max_runtime_s=600), given=("strategy",)).max_trials is None


def test_a_search_is_worth_more_trials_the_more_it_has_to_choose() -> None:
    definition = PLAN.definitions[0]
    assert trial_limit(replace(PLAN, definitions=(definition, definition))) == 80
    assert trial_limit(replace(PLAN, definitions=(replace(definition, ranges=definition.ranges * 36),))) == 740
    assert trial_limit(replace(PLAN, definitions=(replace(definition, ranges=definition.ranges * 37),))) == 750


def test_a_grid_is_limited_by_its_own_size() -> None:
    assert apply_autotune(replace(PLAN, strategy=StrategyKind.GRID), given=("strategy",)).max_trials is None


def test_hyperband_is_given_no_second_rule() -> None:
    banded = replace(PLAN, strategy=StrategyKind.HYPERBAND)
    assert apply_autotune(banded, given=("strategy",)).early_stopping is EarlyStopping.OFF
