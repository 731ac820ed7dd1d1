"""Synthetic functions to minimize, each with a known minimum.

Those of DEVELOPMENT may be used while a strategy is written and its constants are chosen. Those of FINAL are for the
published table only: no decision about a strategy may be based on them.
"""

from math import cos, e, exp, log2, log10, pi, sin, sqrt

import numpy as np
import numpy.typing as npt

from benchmarks.tuning.problem import (
    Problem,
    Values,
    categorical,
    continuous,
    integer,
    logarithmic,
    logarithmic_integer,
    number,
    reverse_logarithmic,
)

Numbers = npt.NDArray[np.float64]

_HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_HARTMANN_SCALES = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_HARTMANN_CENTRES = np.array(
    [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ]
)
_SHEKEL_WIDTHS = np.array([0.1, 0.2, 0.2, 0.4, 0.4, 0.6, 0.3, 0.7, 0.5, 0.5])
_SHEKEL_CENTRES = np.array(
    [
        [4, 1, 8, 6, 3, 2, 5, 8, 6, 7],
        [4, 1, 8, 6, 7, 9, 3, 1, 2, 3.6],
        [4, 1, 8, 6, 3, 2, 5, 8, 6, 7],
        [4, 1, 8, 6, 7, 9, 3, 1, 2, 3.6],
    ]
).T
_MICHALEWICZ_5 = (2.2029055, 1.5707963, 1.2849916, 1.9230585, 1.7204698)
_STYBLINSKI_TANG = -2.903534
_SHEKEL_4 = (4.000746867, 3.999509481, 4.000746867, 3.999509481)


def vector(values: Values, prefix: str, count: int) -> Numbers:
    """Return the numeric hyperparameters prefix1, prefix2 and so on."""
    return np.array([number(values, f"{prefix}{i}") for i in range(1, count + 1)])


def branin(values: Values) -> float:
    x, y = number(values, "x1"), number(values, "x2")
    return (y - 5.1 * x**2 / (4 * pi**2) + 5 * x / pi - 6) ** 2 + 10 * (1 - 1 / (8 * pi)) * cos(x) + 10


def hartmann6(values: Values) -> float:
    distances = (_HARTMANN_SCALES * (vector(values, "x", 6) - _HARTMANN_CENTRES) ** 2).sum(axis=1)
    return -float(_HARTMANN_WEIGHTS @ np.exp(-distances))


def mixed6(values: Values) -> float:
    """A bowl in which one choice moves the best rate and another only adds a cost."""
    best_rate = {"plain": -2.3, "nesterov": -1.6, "none": -3.2}[str(values["momentum"])]
    cost = {"plain": 0.0, "nesterov": 0.3, "none": 0.9}[str(values["momentum"])]
    cost += {"relu": 0.2, "tanh": 0.6, "gelu": 0.0, "sigmoid": 1.1, "elu": 0.35}[str(values["activation"])]
    cost += 0.6 * (log10(number(values, "rate")) - best_rate) ** 2
    cost += 0.25 * (number(values, "offset") - 0.7) ** 2 + ((number(values, "layers") - 17) / 12) ** 2
    return cost + 0.08 * (log2(number(values, "units")) - 6) ** 2


def rosenbrock(z: Numbers) -> float:
    return float(np.sum(100 * (z[1:] - z[:-1] ** 2) ** 2 + (1 - z[:-1]) ** 2))


def rosenbrock_log4(values: Values) -> float:
    return rosenbrock(np.log10(vector(values, "x", 4)))


def ackley(z: Numbers) -> float:
    spread, waves = sqrt(float(np.mean(z**2))), float(np.mean(np.cos(2 * pi * z)))
    return -20 * exp(-0.2 * spread) - exp(waves) + 20 + e


def ackley5(values: Values) -> float:
    return ackley(np.concatenate([vector(values, "x", 3) - 2.37, vector(values, "n", 2) + 3]))


def cliff3(values: Values) -> float | None:
    """The best step is a third of the one at which training diverges."""
    momentum, batch = number(values, "momentum"), number(values, "batch")
    step = number(values, "rate") / (1 - momentum) / sqrt(batch)
    if step > 0.15:
        return None
    return 0.3 * (log10(step) + 1.3) ** 2 + 0.2 * (log10(1 - momentum) + 1) ** 2 + 0.05 * (log2(batch) - 6) ** 2


def network6(values: Values) -> float:
    """A loss after some epochs: a valley between too slow and diverged, moved by the optimizer and the width."""
    best, toll = {"sgd": (-1.0, 0.05), "adam": (-3.0, 0.0), "rmsprop": (-3.3, 0.1), "adagrad": (-2.0, 0.3)}[
        str(values["optimizer"])
    ]
    off = log10(number(values, "rate")) - best + 0.5 * (log2(number(values, "width")) - 7.5) / 2
    rate_loss = 1.6 * off**2 if off > 0 else 0.35 * off**2
    size_loss = 0.05 * (log2(number(values, "width")) - 8) ** 2 + 0.04 * (number(values, "depth") - 4) ** 2
    regularity = log10(number(values, "decay")) + 3 + 2 * (number(values, "dropout") - 0.25)
    loss = toll + rate_loss + size_loss + 0.06 * regularity**2 + 0.8 * (number(values, "dropout") - 0.25) ** 2
    return 2.3 * (1 - exp(-loss / 2.3))


def catalogue3(values: Values) -> float:
    """Thirty unordered choices, each with its own minimum and optimum near those of its family."""
    choice = int(str(values["choice"]).removeprefix("kind-"))
    floor = abs(choice - 17) % 7 * 0.15 + (0.0 if choice == 17 else 0.1)
    best_x, best_y = 0.3 + 0.4 * sin(2.0 * (choice % 7)), 0.5 * cos(1.3 * (choice % 5))
    return floor + (number(values, "x") - best_x) ** 2 + 2 * (number(values, "y") - best_y) ** 2


def wide21(values: Values) -> float:
    """Twenty-one parameters, each of 0.65 times the weight of the one before."""
    x, rates, n = vector(values, "x", 12) - 0.3, np.log10(vector(values, "rate", 5)) / 2 + 1, vector(values, "n", 2)
    # In the order of the weights: numbers of each kind among the first.
    z = np.concatenate([x[:2], rates[:2], (n[:1] - 7) / 5, x[2:7], rates[2:], (n[1:] - 3) / 5, x[7:]])
    weights = 4 * 0.65 ** np.arange(z.size)
    chosen = {"a": 0.0, "b": 0.4, "c": 0.8}[str(values["first"])] + {"p": 0.3, "q": 0.0}[str(values["second"])]
    return chosen + float(weights @ z**2) + 0.5 * float(z[0] * z[2] - z[1] * z[3]) ** 2


def levy(z: Numbers) -> float:
    w = 1 + (z - 1) / 4
    inner = (w[:-1] - 1) ** 2 * (1 + 10 * np.sin(pi * w[:-1] + 1) ** 2)
    last = (w[-1] - 1) ** 2 * (1 + sin(2 * pi * w[-1]) ** 2)
    return float(sin(pi * w[0]) ** 2 + np.sum(inner) + last)


def levy4(values: Values) -> float:
    return levy(np.concatenate([vector(values, "x", 2), 2 * np.log10(vector(values, "rate", 2)) + 5]))


def michalewicz5(values: Values) -> float:
    x = vector(values, "x", 5)
    return -float(np.sum(np.sin(x) * np.sin(np.arange(1, 6) * x**2 / pi) ** 20))


def styblinski_tang8(values: Values) -> float:
    z = np.concatenate([vector(values, "x", 6), vector(values, "n", 2)])
    return float(np.sum(z**4 - 16 * z**2 + 5 * z)) / 2


def camel2(values: Values) -> float:
    x, y = number(values, "x1"), number(values, "x2")
    return (4 - 2.1 * x**2 + x**4 / 3) * x**2 + x * y + (4 * y**2 - 4) * y**2


def goldstein_price2(values: Values) -> float:
    x, y = number(values, "x1"), number(values, "x2")
    near = 1 + (x + y + 1) ** 2 * (19 - 14 * x + 3 * x**2 - 14 * y + 6 * x * y + 3 * y**2)
    far = 30 + (2 * x - 3 * y) ** 2 * (18 - 32 * x + 12 * x**2 + 48 * y - 36 * x * y + 27 * y**2)
    return near * far


def shekel4(values: Values) -> float:
    distances = ((vector(values, "x", 4) - _SHEKEL_CENTRES) ** 2).sum(axis=1)
    return -float(np.sum(1 / (distances + _SHEKEL_WIDTHS)))


def zakharov12(values: Values) -> float:
    z = np.concatenate([np.log10(vector(values, "rate", 8)) + 2.4, vector(values, "x", 4) - 1.5])
    tilt = float(0.5 * np.arange(1, 13) @ z) / 6
    return float(z @ z) + tilt**2 + tilt**4


def conditional7(values: Values) -> float:
    """Three models, each with two parameters of its own; the parameters of the others have no effect."""
    model = str(values["model"])
    if model == "linear":
        return 0.25 + 0.02 * (log10(number(values, "alpha")) + 3) ** 2 + 0.1 * (number(values, "share") - 0.2) ** 2
    if model == "kernel":
        c, gamma = log10(number(values, "c")), log10(number(values, "gamma"))
        return 0.06 + 0.03 * (c + gamma + 1.5) ** 2 + 0.01 * (c - 1.2) ** 2
    leaves, features = log2(number(values, "leaves")), number(values, "features")
    return 0.09 * (leaves - 7) ** 2 + 1.5 * (features - 0.35 - 0.05 * (leaves - 7)) ** 2


def boosting6(values: Values) -> float | None:
    """An error of boosted trees: fewer rounds need a higher rate, and the largest models time out."""
    depth, rounds, rate = number(values, "depth"), number(values, "rounds"), number(values, "rate")
    if depth + log2(rounds) > 18:
        return None
    toll = {"plain": 0.0, "dart": 0.02, "goss": 0.05}[str(values["kind"])]
    progress = log10(rate * rounds) - 1.4
    fit = 0.12 * progress**2 if progress > 0 else 0.35 * progress**2
    complexity = 0.015 * (depth - 7) ** 2 + 0.06 * (log10(rate) + 1.7) ** 2
    rows = 0.4 * (number(values, "rows") - 0.75) ** 2
    return toll + fit + complexity + rows + 0.02 * (log10(number(values, "penalty")) - 0.5 - 0.1 * (depth - 7)) ** 2


def kernels4(values: Values) -> float:
    """Twenty-four kernels in six families; the best smoothness depends on the family."""
    family, member = str(values["kernel"])[0], int(str(values["kernel"])[1:])
    smoothness = "abcdef".index(family) * 0.35 - 0.8
    floor = 0.3 * sqrt(abs("abcdef".index(family) - 3)) + 0.06 * abs(member - 2)
    length = log10(number(values, "length")) - 0.3 * (member - 2)
    roughness = 0.8 * (number(values, "roughness") - smoothness) ** 2
    return floor + roughness + 0.5 * length**2 + 0.2 * (log10(number(values, "jitter")) + 4) ** 2 / (1 + length**2)


def wide24(values: Values) -> float:
    """Twenty-four parameters of which eight matter, four of them only in pairs."""
    x, rates = vector(values, "x", 8), np.log10(vector(values, "rate", 4)) + 3
    pairs = (x[0] + x[1] - 0.9) ** 2 + (x[2] * x[3] - 0.3) ** 2
    alone = 0.3 * rates[0] ** 2 + 0.2 * rates[1] ** 2 + ((number(values, "n1") - 11) / 8) ** 2
    chosen = {"u": 0.5, "v": 0.0, "w": 0.25, "x": 0.7}[str(values["c1"])]
    faint = float(np.mean((x[4:] - 0.5) ** 2)) + float(np.mean(rates[2:] ** 2)) / 20
    return float(2 * pairs + alone + chosen + 0.1 * faint)


def _number_axes(prefix: str, numbers: tuple[float, ...]) -> dict[str, float | int | str]:
    return {f"{prefix}{i}": value for i, value in enumerate(numbers, start=1)}


DEVELOPMENT: tuple[Problem, ...] = (
    Problem("branin", (continuous("x1", -5, 10), continuous("x2", 0, 15)), branin, {"x1": pi, "x2": 2.275}),
    Problem(
        "hartmann6",
        tuple(continuous(f"x{i}", 0, 1) for i in range(1, 7)),
        hartmann6,
        _number_axes("x", (0.20168952, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730054)),
    ),
    Problem(
        "mixed6",
        (
            logarithmic("rate", 1e-5, 1),
            continuous("offset", -3, 3),
            integer("layers", 1, 40),
            logarithmic_integer("units", 1, 512),
            categorical("momentum", "none", "plain", "nesterov"),
            categorical("activation", "relu", "tanh", "gelu", "sigmoid", "elu"),
        ),
        mixed6,
        {"rate": 10**-2.3, "offset": 0.7, "layers": 17, "units": 64, "momentum": "plain", "activation": "gelu"},
    ),
    Problem(
        "rosenbrock_log4",
        tuple(logarithmic(f"x{i}", 1e-2, 1e2) for i in range(1, 5)),
        rosenbrock_log4,
        _number_axes("x", (10.0, 10.0, 10.0, 10.0)),
    ),
    Problem(
        "ackley5_noisy",
        (*(continuous(f"x{i}", -10, 10) for i in range(1, 4)), integer("n1", -10, 10), integer("n2", -10, 10)),
        ackley5,
        {"x1": 2.37, "x2": 2.37, "x3": 2.37, "n1": -3, "n2": -3},
        noise=0.3,
    ),
    Problem(
        "cliff3_failing",
        (
            logarithmic("rate", 1e-5, 10),
            reverse_logarithmic("momentum", 0, 0.999),
            logarithmic_integer("batch", 8, 1024),
        ),
        cliff3,
        {"rate": 10**-1.3 * 0.8, "momentum": 0.9, "batch": 64},
    ),
    Problem(
        "network6_noisy",
        (
            logarithmic("rate", 1e-6, 1),
            logarithmic("decay", 1e-7, 1),
            continuous("dropout", 0, 0.8),
            logarithmic_integer("width", 16, 1024),
            integer("depth", 1, 8),
            categorical("optimizer", "sgd", "adam", "rmsprop", "adagrad"),
        ),
        network6,
        {"rate": 10**-3.125, "decay": 1e-3, "dropout": 0.25, "width": 256, "depth": 4, "optimizer": "adam"},
        noise=0.01,
    ),
    Problem(
        "catalogue3",
        (
            categorical("choice", *(f"kind-{i}" for i in range(1, 31))),
            continuous("x", -1, 1),
            continuous("y", -1, 1),
        ),
        catalogue3,
        {"choice": "kind-17", "x": 0.3 + 0.4 * sin(6.0), "y": 0.5 * cos(2.6)},
    ),
    Problem(
        "wide21",
        (
            *(continuous(f"x{i}", -1, 1) for i in range(1, 13)),
            *(logarithmic(f"rate{i}", 1e-5, 1) for i in range(1, 6)),
            integer("n1", 1, 12),
            integer("n2", 1, 12),
            categorical("first", "a", "b", "c"),
            categorical("second", "p", "q"),
        ),
        wide21,
        {
            **_number_axes("x", (0.3,) * 12),
            **_number_axes("rate", (1e-2,) * 5),
            "n1": 7,
            "n2": 3,
            "first": "a",
            "second": "q",
        },
    ),
)

FINAL: tuple[Problem, ...] = (
    Problem(
        "levy4",
        (
            continuous("x1", -10, 10),
            continuous("x2", -10, 10),
            logarithmic("rate1", 1e-6, 1e2),
            logarithmic("rate2", 1e-6, 1e2),
        ),
        levy4,
        {"x1": 1, "x2": 1, "rate1": 1e-2, "rate2": 1e-2},
    ),
    Problem(
        "michalewicz5",
        tuple(continuous(f"x{i}", 0, pi) for i in range(1, 6)),
        michalewicz5,
        _number_axes("x", _MICHALEWICZ_5),
    ),
    Problem(
        "styblinski_tang8",
        (*(continuous(f"x{i}", -5, 5) for i in range(1, 7)), integer("n1", -5, 5), integer("n2", -5, 5)),
        styblinski_tang8,
        {**_number_axes("x", (_STYBLINSKI_TANG,) * 6), "n1": -3, "n2": -3},
    ),
    Problem(
        "camel2_noisy",
        (continuous("x1", -3, 3), continuous("x2", -2, 2)),
        camel2,
        {"x1": 0.08984201, "x2": -0.71265640},
        noise=0.1,
    ),
    Problem(
        "goldstein_price2",
        (continuous("x1", -2.2, 1.8), continuous("x2", -2.2, 1.8)),
        goldstein_price2,
        {"x1": 0.0, "x2": -1.0},
    ),
    Problem("shekel4", tuple(continuous(f"x{i}", 0, 10) for i in range(1, 5)), shekel4, _number_axes("x", _SHEKEL_4)),
    Problem(
        "zakharov12",
        (
            *(logarithmic(f"rate{i}", 1e-6, 1) for i in range(1, 9)),
            *(continuous(f"x{i}", -4, 4) for i in range(1, 5)),
        ),
        zakharov12,
        {**_number_axes("rate", (10**-2.4,) * 8), **_number_axes("x", (1.5,) * 4)},
    ),
    Problem(
        "conditional7",
        (
            categorical("model", "linear", "kernel", "forest"),
            logarithmic("alpha", 1e-6, 10),
            continuous("share", 0, 1),
            logarithmic("c", 1e-3, 1e4),
            logarithmic("gamma", 1e-6, 10),
            logarithmic_integer("leaves", 2, 4096),
            continuous("features", 0.05, 1),
        ),
        conditional7,
        {"model": "forest", "alpha": 1e-3, "share": 0.2, "c": 1, "gamma": 1, "leaves": 128, "features": 0.35},
    ),
    Problem(
        "boosting6_failing",
        (
            logarithmic("rate", 1e-3, 1),
            logarithmic_integer("rounds", 10, 10_000),
            integer("depth", 1, 16),
            continuous("rows", 0.1, 1),
            logarithmic("penalty", 1e-3, 1e3),
            categorical("kind", "plain", "dart", "goss"),
        ),
        boosting6,
        {"rate": 10**-1.7, "rounds": 1259, "depth": 7, "rows": 0.75, "penalty": 10**0.5, "kind": "plain"},
    ),
    Problem(
        "kernels4",
        (
            categorical("kernel", *(f"{family}{member}" for family in "abcdef" for member in range(1, 5))),
            continuous("roughness", -1.5, 1.5),
            logarithmic("length", 1e-2, 1e2),
            logarithmic("jitter", 1e-8, 1),
        ),
        kernels4,
        {"kernel": "d2", "roughness": 0.25, "length": 1.0, "jitter": 1e-4},
    ),
    Problem(
        "wide24",
        (
            *(continuous(f"x{i}", 0, 1) for i in range(1, 9)),
            *(logarithmic(f"rate{i}", 1e-5, 1) for i in range(1, 5)),
            *(integer(f"n{i}", 1, 32) for i in range(1, 7)),
            *(categorical(f"c{i}", "u", "v", "w", "x") for i in range(1, 7)),
        ),
        wide24,
        {
            **_number_axes("x", (0.5, 0.4, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5)),
            **_number_axes("rate", (1e-3,) * 4),
            **{f"n{i}": 11 for i in range(1, 7)},
            **{f"c{i}": "v" for i in range(1, 7)},
        },
    ),
)
