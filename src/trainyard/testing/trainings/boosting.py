"""Boosted trees: three healthy trainings with XGBoost, and their faulty twins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

Numbers = NDArray[np.float64]
# Receives the training data and the validation data.
MakeCallback = Callable[["Boosting", Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Boosting:
    """Samples with their labels, and the parameters of a training."""

    features: Numbers
    labels: Numbers
    parameters: dict[str, Any]
    rounds: int
    # Applied to the labels of the training data.
    relabel: Callable[[Numbers], Numbers] = np.copy


@dataclass(frozen=True, slots=True)
class BoostedTraining:
    """A boosted training that can be repeated. Each seed holds back another fifth of the samples for validation."""

    name: str
    prepare: Callable[[], Boosting]

    def run(self, seed: int, *, make_callback: MakeCallback) -> None:
        """Run all rounds."""
        boosting = self.prepare()
        order = np.random.default_rng(seed).permutation(len(boosting.labels))
        held_back, learned = np.split(order, [len(order) // 5])
        training = xgboost.DMatrix(boosting.features[learned], boosting.relabel(boosting.labels[learned]))
        validation = xgboost.DMatrix(boosting.features[held_back], boosting.labels[held_back])
        xgboost.train(
            {**boosting.parameters, "seed": seed, "nthread": 1},
            training,
            num_boost_round=boosting.rounds,
            evals=[(training, "train"), (validation, "validation")],
            callbacks=[make_callback(boosting, training, validation)],
            verbose_eval=False,
        )


@dataclass(frozen=True, slots=True)
class BoostingFault:
    """One thing that can be wrong with a boosted training, and the rules that should find it."""

    change: Callable[[Boosting], Boosting]
    of: BoostedTraining
    rules: Sequence[str]

    @property
    def name(self) -> str:
        return self.change.__name__

    @property
    def summary(self) -> str:
        """What is wrong, in one sentence."""
        return (self.change.__doc__ or "").strip()

    @property
    def twin(self) -> BoostedTraining:
        """The training with this fault."""
        return BoostedTraining(f"{self.of.name} with {self.name}", lambda: self.change(self.of.prepare()))


def progress() -> Boosting:
    """Regression: the progression of diabetes."""
    features, labels = load_diabetes(return_X_y=True)
    return Boosting(features, labels, {"objective": "reg:squarederror", "max_depth": 3, "eta": 0.1}, 40)


def tumours() -> Boosting:
    """Binary classification: whether a tumour is benign."""
    features, labels = load_breast_cancer(return_X_y=True)
    return Boosting(features, labels, {"objective": "binary:logistic", "max_depth": 2, "eta": 0.1}, 25)


def digits() -> Boosting:
    """Ten classes: handwritten digits."""
    features, labels = load_digits(return_X_y=True)
    parameters = {"objective": "multi:softprob", "num_class": 10, "max_depth": 6, "eta": 0.1}
    return Boosting(features, labels, parameters, 20)


def deep_trees(boosting: Boosting) -> Boosting:
    """Trees may have fourteen levels, so each sample gets its own leaf."""
    return replace(boosting, parameters={**boosting.parameters, "max_depth": 14})


def leaking_feature(boosting: Boosting) -> Boosting:
    """One of the features is the label."""
    leaking = np.concatenate([boosting.features, boosting.labels[:, None]], axis=1)
    return replace(boosting, features=leaking)


def rare_tumours(boosting: Boosting) -> Boosting:
    """Only one in twelve malignant tumours is in the data."""
    malignant = np.flatnonzero(boosting.labels == 0)
    kept = np.sort(np.concatenate([np.flatnonzero(boosting.labels == 1), malignant[::12]]))
    return replace(boosting, features=boosting.features[kept], labels=boosting.labels[kept])


def mistaken_digits(boosting: Boosting) -> Boosting:
    """Each 3 in the training data is labelled as an 8."""
    return replace(boosting, relabel=lambda labels: np.where(labels == 3, 8.0, labels))


BOOSTED = {each.__name__: BoostedTraining(f"boosted_{each.__name__}", each) for each in (progress, tumours, digits)}
BOOSTING_FAULTS = {
    fault.name: fault
    for fault in (
        BoostingFault(deep_trees, BOOSTED["progress"], ("TreeDepth", "Overfit")),
        BoostingFault(leaking_feature, BOOSTED["progress"], ("FeatureImportanceOverweight",)),
        BoostingFault(rare_tumours, BOOSTED["tumours"], ("ClassImbalance",)),
        BoostingFault(mistaken_digits, BOOSTED["digits"], ("Confusion",)),
    )
}
