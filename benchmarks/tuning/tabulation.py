"""Makes the tables of tasks.py with scikit-learn: `python -m benchmarks.tuning.tabulation [--only NAME ...]`.

Each value is the mean over the folds of one fixed cross-validation: the error rate, the log loss, or the root mean
squared error relative to the standard deviation of the target. All tables together take six minutes of one core.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import ElasticNet, SGDClassifier
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, QuantileTransformer, StandardScaler
from sklearn.svm import SVC

from benchmarks.tuning.problem import Values, number
from benchmarks.tuning.tasks import TABLES, TASKS, Task

Array = npt.NDArray[Any]
SEED = 20_26
NETWORK_EPOCHS = 20
TREES = 20
# The maximum of boosting.
ROUNDS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[task.name for task in TASKS])
    # About trainings that have not converged, which is intended for some.
    warnings.simplefilter("ignore")
    TABLES.mkdir(exist_ok=True)
    for task in TASKS:
        if task.name in parser.parse_args().only:
            tabulate(task)


def tabulate(task: Task) -> None:
    started = time.process_time()
    values = [float(f"{MEASURES[task.name](each):.6g}") for each in task.combinations]
    axes = {axis.within.name: list(axis.nodes) for axis in task.axes}
    (TABLES / f"{task.name}.json").write_text(json.dumps({"axes": axes, "values": values}) + "\n")
    print(f"{task.name}: {len(values)} values, least {min(values)}, {time.process_time() - started:.0f} s", flush=True)


def svc_wine(values: Values) -> float:
    return _svc_error("wine", values)


def svc_digits(values: Values) -> float:
    return _svc_error("digits", values)


def mlp_iris(values: Values) -> float:
    return _network_loss("iris", values)


def mlp_digits(values: Values) -> float:
    return _network_loss("digits", values)


def neighbours_digits(values: Values) -> float:
    errors = []
    for train, test in _folds("digits", 5):
        x_train, x_test, y_train, y_test = _split("digits", train, test)
        parts = PCA(int(values["components"]), random_state=SEED).fit(x_train)
        model = KNeighborsClassifier(
            int(values["neighbours"]), weights=str(values["weights"]), metric=str(values["metric"]), algorithm="brute"
        )
        model.fit(parts.transform(x_train), y_train)
        errors.append(1 - model.score(parts.transform(x_test), y_test))
    return float(np.mean(errors))


def boosting_cancer(values: Values) -> float:
    losses = _cancer_stages(
        number(values, "rate"), int(values["leaves"]), number(values, "penalty"), int(values["least_samples"])
    )
    return losses[int(values["rounds"]) - 1]


def boosting_diabetes(values: Values) -> float:
    errors = _diabetes_stages(str(values["loss"]), number(values, "rate"), int(values["depth"]), number(values, "rows"))
    return errors[int(values["rounds"]) - 1]


def linear_cancer(values: Values) -> float:
    errors = []
    for train, test in _folds("cancer", 5):
        x_train, x_test, y_train, y_test = _split("cancer", train, test)
        model = SGDClassifier(
            loss=str(values["loss"]),
            penalty=str(values["penalty"]),
            alpha=number(values, "alpha"),
            learning_rate="constant",
            eta0=number(values, "rate"),
            max_iter=30,
            tol=None,
            random_state=SEED,
        )
        scaler = StandardScaler().fit(x_train)
        model.fit(scaler.transform(x_train), y_train)
        errors.append(1 - model.score(scaler.transform(x_test), y_test))
    return float(np.mean(errors))


def forest_diabetes(values: Values) -> float:
    errors = []
    for train, test in _folds("diabetes", 3):
        x_train, x_test, y_train, y_test = _split("diabetes", train, test)
        model = RandomForestRegressor(
            TREES,
            criterion=str(values["criterion"]),
            bootstrap=values["bootstrap"] == "yes",
            max_depth=int(values["depth"]),
            max_features=number(values, "features"),
            min_samples_leaf=int(values["least_samples"]),
            random_state=SEED,
        )
        errors.append(_relative_error(model.fit(x_train, y_train).predict(x_test), y_test))
    return float(np.mean(errors))


def elastic_net_diabetes(values: Values) -> float:
    scaler = {
        "standard": StandardScaler(),
        "quantiles": QuantileTransformer(n_quantiles=50, output_distribution="normal", random_state=SEED),
        "no": "passthrough",
    }[str(values["scaled"])]
    errors = []
    for train, test in _folds("diabetes", 5):
        x_train, x_test, y_train, y_test = _split("diabetes", train, test)
        model = make_pipeline(
            scaler,
            PolynomialFeatures(int(values["degree"]), include_bias=False),
            ElasticNet(alpha=number(values, "alpha"), l1_ratio=number(values, "share"), max_iter=300),
        )
        errors.append(_relative_error(model.fit(x_train, y_train).predict(x_test), y_test))
    return float(np.mean(errors))


def _svc_error(data: str, values: Values) -> float:
    errors = []
    for train, test in _folds(data, 3):
        x_train, x_test, y_train, y_test = _split(data, train, test)
        model = SVC(C=number(values, "c"), gamma=number(values, "gamma"), kernel=str(values["kernel"]))
        scaler = StandardScaler().fit(x_train)
        model.fit(scaler.transform(x_train), y_train)
        errors.append(1 - model.score(scaler.transform(x_test), y_test))
    return float(np.mean(errors))


def _network_loss(data: str, values: Values) -> float:
    losses = []
    for train, test in _folds(data, 3):
        x_train, x_test, y_train, y_test = _split(data, train, test)
        scaler = StandardScaler().fit(x_train)
        model = MLPClassifier(
            (int(values["width"]),),
            activation=str(values["activation"]),
            alpha=number(values, "alpha"),
            learning_rate_init=number(values, "rate"),
            batch_size=50,
            max_iter=NETWORK_EPOCHS,
            n_iter_no_change=NETWORK_EPOCHS,
            random_state=SEED,
        )
        model.fit(scaler.transform(x_train), y_train)
        losses.append(_loss(model.predict_proba(scaler.transform(x_test)), y_test))
    return float(np.mean(losses))


@lru_cache(1)
def _cancer_stages(rate: float, leaves: int, penalty: float, least_samples: int) -> list[float]:
    """Return the loss after each round, from one model per fold: rounds are the last axis of the table."""
    losses = []
    for train, test in _folds("cancer", 3):
        x_train, x_test, y_train, y_test = _split("cancer", train, test)
        model = HistGradientBoostingClassifier(
            learning_rate=rate,
            max_iter=ROUNDS,
            max_leaf_nodes=leaves,
            l2_regularization=penalty,
            min_samples_leaf=least_samples,
            max_bins=32,
            early_stopping=False,
            random_state=SEED,
        ).fit(x_train, y_train)
        losses.append([_loss(stage, y_test) for stage in model.staged_predict_proba(x_test)])
    return [float(each) for each in np.mean(losses, axis=0)]


@lru_cache(1)
def _diabetes_stages(loss: str, rate: float, depth: int, rows: float) -> list[float]:
    errors = []
    for train, test in _folds("diabetes", 3):
        x_train, x_test, y_train, y_test = _split("diabetes", train, test)
        model = GradientBoostingRegressor(
            loss=loss, learning_rate=rate, n_estimators=ROUNDS, max_depth=depth, subsample=rows, random_state=SEED
        ).fit(x_train, y_train)
        errors.append([_relative_error(stage, y_test) for stage in model.staged_predict(x_test)])
    return [float(each) for each in np.mean(errors, axis=0)]


def _loss(probabilities: Array, actual: Array) -> float:
    """Return the log loss for classes 0, 1, …. scikit-learn's own spends most of the run time on checks."""
    given = probabilities[np.arange(len(actual)), actual]
    return -float(np.mean(np.log(np.maximum(given, np.finfo(float).eps))))


def _relative_error(predicted: Array, actual: Array) -> float:
    return float(np.sqrt(np.mean((predicted - actual) ** 2)) / np.std(actual))


@cache
def _data(name: str) -> tuple[Array, Array]:
    load = {
        "wine": datasets.load_wine,
        "iris": datasets.load_iris,
        "digits": datasets.load_digits,
        "cancer": datasets.load_breast_cancer,
        "diabetes": datasets.load_diabetes,
    }[name]
    x, y = load(return_X_y=True)
    chosen = np.random.default_rng(SEED).permutation(len(x))[:900]  # half of the digits
    return x[chosen], y[chosen]


@cache
def _folds(name: str, count: int) -> list[tuple[Array, Array]]:
    kind = KFold if name == "diabetes" else StratifiedKFold
    return list(kind(count, shuffle=True, random_state=SEED).split(*_data(name)))


def _split(name: str, train: Array, test: Array) -> tuple[Array, Array, Array, Array]:
    x, y = _data(name)
    return x[train], x[test], y[train], y[test]


MEASURES: dict[str, Callable[[Values], float]] = {
    "svc_wine": svc_wine,
    "svc_digits": svc_digits,
    "mlp_iris": mlp_iris,
    "mlp_digits": mlp_digits,
    "neighbours_digits": neighbours_digits,
    "boosting_cancer": boosting_cancer,
    "boosting_diabetes": boosting_diabetes,
    "linear_cancer": linear_cancer,
    "forest_diabetes": forest_diabetes,
    "elastic_net_diabetes": elastic_net_diabetes,
}

if __name__ == "__main__":
    main()
