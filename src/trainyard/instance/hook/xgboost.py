"""What a booster learns, round by round: a callback of XGBoost over the recording of steps.

A step is a round. Names are AWS's: `train-rmse`, `predictions`, `labels`, `feature_importance/<type>/<feature>`,
`average_shap/<feature>`, `full_shap/<feature>`, `trees/<column>`, `hyperparameters/<name>`.
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
from trainyard.instance.hook.collecting import ALL, DEFAULT, LOSSES, Collection, Framework
from trainyard.instance.hook.contract import StepRecording

log = logging.getLogger(__name__)

METRICS = "metrics"
# AWS's regexes, except that data may have digits in its name (XGBRegressor calls it validation_0), that metrics which
# rise are no losses whatever follows their name (ndcg@5), and that no feature is lost for the last letter of its name.
_METRIC, _RISING = r"[^/]+-[^/]+", r"(auc|aucpr|map|ndcg|pre)(@[^/]*)?-?"
_LOSS = re.compile(rf"^(?!.*-{_RISING}$){_METRIC}$")
XGBOOST = Framework(
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

_IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")
_TREES = ("gbtree", "dart")
_TRAIN = "train"


class BoosterCallback(xgboost.callback.TrainingCallback):
    """Tells a recording what every round of a training has brought. What fails in it is noted once and ends it.

    Predictions and labels are those of `validation_data`, contributions of features (SHAP) those to predictions of
    `train_data`; without the data there are none.
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
                self.give(self.recording, model, epoch=epoch, evals_log=evals_log)
                self.recording.finish()
            except Exception:  # whatever it is, the training goes on
                log.warning("rounds are recorded no more", exc_info=True)
                self.recording = None
        return False

    def give(
        self, recording: StepRecording, model: Any, *, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """All that is asked of a round, into the step that is open."""
        _give_metrics(recording, evals_log)
        _give_hyperparameters(recording, self.hyperparameters or {})
        if not isinstance(model, xgboost.Booster):
            return  # the boosters of a cross-validation, of which there are several
        _give_predictions(recording, model, self.validation_data)
        _give_contributions(recording, model, self.train_data)
        if _booster(model) in _TREES:
            _give_importances(recording, model)
            _give_trees(recording, model, epoch)


MakeCallback = Callable[[Mapping[str, Any], Any, Any], BoosterCallback | None]


def watch_training(make_callback: MakeCallback) -> None:
    """Let every training of this process have a callback, unless it brings one of this kind.

    `make_callback` is given the parameters, the data that is trained on and the data that is not, where there is any.
    """
    for module in (xgboost, xgboost.training, xgboost.sklearn):
        setattr(module, _TRAIN, _watched(getattr(module, _TRAIN), make_callback))


def _watched(train: Callable[..., Any], make_callback: MakeCallback) -> Callable[..., Any]:
    @functools.wraps(train)
    def train_watched(params: Mapping[str, Any], dtrain: Any, *args: Any, **options: Any) -> Any:
        callbacks = list(options.pop("callbacks", None) or ())
        if not any(isinstance(each, BoosterCallback) for each in callbacks):
            others = (data for data, _ in options.get("evals") or () if data is not dtrain)
            made = make_callback(params, dtrain, next(others, None))
            callbacks += [made] if made is not None else []
        return train(params, dtrain, *args, callbacks=callbacks, **options)

    return train_watched


def _give_metrics(recording: StepRecording, evals_log: Mapping[str, Mapping[str, Any]]) -> None:
    for data, metrics in evals_log.items():
        for metric, values in metrics.items():
            name, last = f"{data}-{metric}", values[-1]
            value = last[0] if isinstance(last, tuple) else last  # of a cross-validation, the mean and the deviation
            recording.give_scalar(name, float(value), kind=Kind.LOSS if _LOSS.match(name) else Kind.OUTPUT)


def _give_hyperparameters(recording: StepRecording, hyperparameters: Mapping[str, Any]) -> None:
    for name, value in hyperparameters.items():
        tensor, number = f"hyperparameters/{name}", _number(value)
        if number is not None and recording.is_wanted(tensor, Kind.INPUT):
            recording.give_scalar(tensor, number, kind=Kind.INPUT)


def _give_predictions(recording: StepRecording, model: Any, data: Any) -> None:
    if data is None:
        return
    if recording.is_wanted("predictions", Kind.OUTPUT):
        recording.give("predictions", model.predict(data), kind=Kind.OUTPUT)
    if recording.is_wanted("labels", Kind.INPUT):
        recording.give("labels", data.get_label(), kind=Kind.INPUT)


def _give_contributions(recording: StepRecording, model: Any, data: Any) -> None:
    if data is None:
        return
    features = [*_features(model), "bias"]
    # The whole matrix under the name of each feature: AWS's notebooks take it from the first.
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
        recording.give(name, contributions, kind=Kind.OUTPUT)
    means = contributions.mean(axis=tuple(range(contributions.ndim - 1)), dtype=np.float64)
    for place, name in average.items():
        recording.give_scalar(name, float(means[place]), kind=Kind.OUTPUT)


def _give_importances(recording: StepRecording, model: Any) -> None:
    """Of every feature that has been split on, as its share of all."""
    for kind in _IMPORTANCES:
        prefix = f"feature_importance/{kind}"
        if not any(recording.is_wanted(f"{prefix}/{feature}", Kind.OUTPUT) for feature in _features(model)):
            continue
        scores = model.get_score(importance_type=kind)
        total = sum(scores.values())
        for feature, score in scores.items():
            recording.give_scalar(f"{prefix}/{feature}", score / total, kind=Kind.OUTPUT)


def _give_trees(recording: StepRecording, model: Any, epoch: int) -> None:
    if not recording.is_wanted("trees/Node", Kind.OUTPUT):
        return
    for column, values in tree_columns(model, epoch).items():
        if values.dtype.kind != "U":  # text is not kept: a recording is of numbers
            recording.give(f"trees/{column}", values, kind=Kind.OUTPUT)


def tree_columns(model: Any, epoch: int) -> dict[str, NDArray[Any]]:
    """The nodes of all trees of a round, as columns; a leaf has its value as its gain."""
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
    """A hyperparameter as a number, as which jobs give them in words too; None for those that are none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
