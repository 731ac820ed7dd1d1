"""A hook for XGBoost: a training callback that records every round.

A step is a boosting round. Names are AWS's: `train-rmse`, `predictions`, `labels`,
`feature_importance/<type>/<feature>`, `average_shap/<feature>`, `full_shap/<feature>`, `trees/<column>`,
`hyperparameters/<name>`.
"""

import functools
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Kind, Mode
from trainyard.instance.hook.contract import StepRecording
from trainyard.instance.hook.selection import ALL, DEFAULT, LOSSES, Collection, FrameworkDefaults

log = logging.getLogger(__name__)

METRICS = "metrics"
# AWS's regexes with three fixes: the name of a dataset may contain digits (XGBRegressor uses validation_0), metrics to
# maximize are never losses, whatever follows their name (ndcg@5), and no feature is missed because of its last letter.
_METRIC, _MAXIMIZED = r"[^/]+-[^/]+", r"(auc|aucpr|map|ndcg|pre)(@[^/]*)?-?"
_LOSS = re.compile(rf"^(?!.*-{_MAXIMIZED}$){_METRIC}$")
XGBOOST = FrameworkDefaults(
    "xgboost",
    (
        Collection(ALL, (".*",)),
        Collection(DEFAULT),
        Collection("hyperparameters", ("^hyperparameters/",)),
        Collection(METRICS, (f"^{_METRIC}$",)),
        Collection(LOSSES, (_LOSS.pattern,)),
        Collection("predictions", ("^predictions$",)),
        Collection("labels", ("^labels$",)),
        Collection("feature_importance", ("^feature_importance/",)),
        Collection("average_shap", (r"^average_shap/(?!bias$)",)),
        Collection("full_shap", (r"^full_shap/(?!bias$)",)),
        Collection("trees", ("^trees/",)),
    ),
    frozenset({METRICS}),
    interval=10,
)

_IMPORTANCE_TYPES = ("weight", "gain", "cover", "total_gain", "total_cover")
_TREE_BOOSTERS = ("gbtree", "dart")
_TRAIN = "train"


class BoosterCallback(xgboost.callback.TrainingCallback):
    """Records every round of a training. A failure is logged once and ends the recording.

    Predictions and labels come from `validation_data`, feature contributions (SHAP) from predictions on `train_data`;
    without the data they are not recorded.
    """

    def __init__(
        self,
        recording: StepRecording | None = None,
        *,
        hyperparameters: Mapping[str, Any] | None = None,
        train_data: Any = None,
        validation_data: Any = None,
    ) -> None:
        super().__init__()
        self.hyperparameters = hyperparameters
        self.train_data, self.validation_data = train_data, validation_data
        self.recording = recording

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        if self.recording is not None:
            try:
                self.recording.begin(Mode.GLOBAL)
                self.observe(self.recording, model, epoch=epoch, evals_log=evals_log)
                self.recording.finish()
            # Whatever failed, the training must continue.
            except Exception:
                log.warning("a round could not be recorded; recording has stopped", exc_info=True)
                self.recording = None
        return False

    def observe(
        self, recording: StepRecording, model: Any, *, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Observe everything the open step needs of a round."""
        _observe_metrics(recording, evals_log)
        _observe_hyperparameters(recording, self.hyperparameters or {})
        if not isinstance(model, xgboost.Booster):
            # A cross-validation passes several boosters at once.
            return
        _observe_predictions(recording, model, self.validation_data)
        _observe_contributions(recording, model, self.train_data)
        if _booster(model) in _TREE_BOOSTERS:
            _observe_importances(recording, model)
            _observe_trees(recording, model, epoch)


MakeCallback = Callable[[Mapping[str, Any], Any, Any], BoosterCallback | None]


def attach_to_training(make_callback: MakeCallback) -> None:
    """Add a callback to every training of this process that does not bring one of this kind.

    `make_callback` receives the parameters, the training data, and other data if the training evaluates any.
    """
    for module in (xgboost, xgboost.training, xgboost.sklearn):
        setattr(module, _TRAIN, _with_callback(getattr(module, _TRAIN), make_callback))


def _with_callback(train: Callable[..., Any], make_callback: MakeCallback) -> Callable[..., Any]:
    @functools.wraps(train)
    def train_with_callback(params: Mapping[str, Any], dtrain: Any, *args: Any, **options: Any) -> Any:
        callbacks = list(options.pop("callbacks", None) or ())
        if not any(isinstance(each, BoosterCallback) for each in callbacks):
            others = (data for data, _ in options.get("evals") or () if data is not dtrain)
            callback = make_callback(params, dtrain, next(others, None))
            callbacks += [callback] if callback is not None else []
        return train(params, dtrain, *args, callbacks=callbacks, **options)

    return train_with_callback


def _observe_metrics(recording: StepRecording, evals_log: Mapping[str, Mapping[str, Any]]) -> None:
    for data, metrics in evals_log.items():
        for metric, values in metrics.items():
            name, last = f"{data}-{metric}", values[-1]
            # A cross-validation reports the mean and the standard deviation.
            value = last[0] if isinstance(last, tuple) else last
            recording.observe_scalar(name, float(value), kind=Kind.LOSS if _LOSS.match(name) else Kind.OUTPUT)


def _observe_hyperparameters(recording: StepRecording, hyperparameters: Mapping[str, Any]) -> None:
    for name, value in hyperparameters.items():
        tensor, number = f"hyperparameters/{name}", _number(value)
        if number is not None and recording.is_wanted(tensor, Kind.INPUT):
            recording.observe_scalar(tensor, number, kind=Kind.INPUT)


def _observe_predictions(recording: StepRecording, model: Any, data: Any) -> None:
    if data is None:
        return
    if recording.is_wanted("predictions", Kind.OUTPUT):
        recording.observe("predictions", model.predict(data), kind=Kind.OUTPUT)
    if recording.is_wanted("labels", Kind.INPUT):
        recording.observe("labels", data.get_label(), kind=Kind.INPUT)


def _observe_contributions(recording: StepRecording, model: Any, data: Any) -> None:
    if data is None:
        return
    features = [*_features(model), "bias"]
    # The whole matrix under the name of each feature, because AWS's notebooks read it from the first one.
    whole = [name for each in features if recording.is_wanted(name := f"full_shap/{each}", Kind.OUTPUT)]
    average = {
        place: name
        for place, each in enumerate(features)
        if recording.is_wanted(name := f"average_shap/{each}", Kind.OUTPUT)
    }
    if not whole and not average:
        return
    contributions = model.predict(data, pred_contribs=True)
    for name in whole:
        recording.observe(name, contributions, kind=Kind.OUTPUT)
    means = contributions.mean(axis=tuple(range(contributions.ndim - 1)), dtype=np.float64)
    for place, name in average.items():
        recording.observe_scalar(name, float(means[place]), kind=Kind.OUTPUT)


def _observe_importances(recording: StepRecording, model: Any) -> None:
    """Observe the importance of every feature that has been split on, as its share of the total."""
    for kind in _IMPORTANCE_TYPES:
        prefix = f"feature_importance/{kind}"
        if not any(recording.is_wanted(f"{prefix}/{feature}", Kind.OUTPUT) for feature in _features(model)):
            continue
        scores = model.get_score(importance_type=kind)
        total = sum(scores.values())
        for feature, score in scores.items():
            recording.observe_scalar(f"{prefix}/{feature}", score / total, kind=Kind.OUTPUT)


def _observe_trees(recording: StepRecording, model: Any, epoch: int) -> None:
    if not recording.is_wanted("trees/Node", Kind.OUTPUT):
        return
    for column, values in tree_columns(model, epoch).items():
        # Columns of text are left out: a recording holds numbers.
        if values.dtype.kind != "U":
            recording.observe(f"trees/{column}", values, kind=Kind.OUTPUT)


def tree_columns(model: Any, epoch: int) -> dict[str, NDArray[Any]]:
    """Return the nodes of all trees of a round as columns. The gain of a leaf is its value."""
    trees = [json.loads(tree) for tree in model[epoch : epoch + 1].get_dump(with_stats=True, dump_format="json")]
    rows = [
        _row(number, node)
        for number, tree in enumerate(trees, epoch * len(trees))
        for node in sorted(_nodes(tree), key=lambda node: int(node["nodeid"]))
    ]
    return {column: np.array([row[column] for row in rows]) for column in rows[0]}


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("children", ()):
        yield from _nodes(child)


def _row(tree: int, node: Mapping[str, Any]) -> dict[str, Any]:
    split = node.get("split_condition", np.nan)
    categories = split if isinstance(split, list) else []
    others = {key: f"{tree}-{node[key]}" if key in node else "nan" for key in ("yes", "no", "missing")}
    return {
        "Tree": tree,
        "Node": node["nodeid"],
        "ID": f"{tree}-{node['nodeid']}",
        "Feature": node.get("split", "Leaf"),
        "Split": np.nan if categories else float(split),
        "Yes": others["yes"],
        "No": others["no"],
        "Missing": others["missing"],
        "Gain": float(node.get("gain", node.get("leaf", np.nan))),
        "Cover": float(node["cover"]),
        "Category": ",".join(map(str, categories)) or "nan",
    }


def _features(model: Any) -> Sequence[str]:
    return model.feature_names or [f"f{place}" for place in range(model.num_features())]


def _booster(model: Any) -> str:
    config = json.loads(model.save_config())
    return str(config["learner"]["gradient_booster"]["name"])


def _number(value: Any) -> float | None:
    """Return a hyperparameter as a number, also if it is given as text; None if it is not numeric."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
