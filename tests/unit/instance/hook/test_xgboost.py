"""Recordings of real boosters."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from trainyard.formats.tensors.contract import Kind
from trainyard.formats.tensors.trials.trial import Trial, create_trial
from trainyard.instance.hook.configuration import parse_config
from trainyard.instance.hook.recording import HookRecording
from trainyard.instance.hook.xgboost import XGBOOST, BoosterCallback, attach_to_training, tree_columns

PARAMETERS = {"objective": "binary:logistic", "max_depth": 3, "eval_metric": ["logloss", "auc"], "nthread": 1}


@pytest.fixture(scope="module")
def data() -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    made = np.random.default_rng(1)
    x = made.normal(size=(200, 4))
    y = (x[:, 0] + 0.5 * x[:, 1] ** 2 > 0.3).astype(int)
    return xgboost.DMatrix(x[:150], y[:150]), xgboost.DMatrix(x[150:], y[150:])


def recording(folder: Path, collections: Iterable[str] = (), interval: int = 1) -> HookRecording:
    named = [{"CollectionName": name} for name in collections]
    content = {
        "LocalPath": str(folder),
        "CollectionConfigurations": named,
        "HookParameters": {"save_interval": interval},
    }
    return HookRecording(parse_config(content, framework=XGBOOST))


def trained(callback: BoosterCallback, train: Any, validation: Any, rounds: int = 4) -> xgboost.Booster:
    evals = [(train, "train"), (validation, "validation")]
    return xgboost.train(PARAMETERS, train, rounds, evals=evals, callbacks=[callback], verbose_eval=False)


def test_metrics_are_recorded_at_every_round(tmp_path: Path, data: tuple[Any, Any]) -> None:
    kept = recording(tmp_path)
    evaluated: dict[str, Any] = {}
    xgboost.train(
        PARAMETERS,
        data[0],
        4,
        evals=[(data[0], "train"), (data[1], "validation")],
        evals_result=evaluated,
        callbacks=[BoosterCallback(kept)],
        verbose_eval=False,
    )
    kept.close()
    trial = create_trial(tmp_path)
    assert trial.tensor_names() == ["train-auc", "train-logloss", "validation-auc", "validation-logloss"]
    told = trial.series("validation-logloss")
    assert told.steps.tolist() == [0, 1, 2, 3]
    assert told.values == pytest.approx(evaluated["validation"]["logloss"])
    assert trial.tensors()["train-logloss"].kind is Kind.LOSS
    assert trial.tensor_names(collection="losses") == ["train-logloss", "validation-logloss"]


@pytest.mark.parametrize(
    ("metric", "is_loss"),
    [
        ("train-rmse", True),
        ("validation_0-mlogloss", True),
        ("test-error@0.7", True),
        ("train-auc", False),
        ("train-ndcg@5-", False),
        ("train-map@3", False),
        ("my-data-aucpr", False),
    ],
)
def test_metrics_to_maximize_are_not_losses(metric: str, is_loss: bool) -> None:
    collections = {collection.name: collection for collection in XGBOOST.collections}
    assert collections["metrics"].has(metric)
    assert collections["losses"].has(metric) == is_loss


def test_every_tenth_round_is_saved_by_default(tmp_path: Path, data: tuple[Any, Any]) -> None:
    kept = HookRecording(parse_config({"LocalPath": str(tmp_path)}, framework=XGBOOST))
    trained(BoosterCallback(kept), *data, rounds=21)
    kept.close()
    trial = create_trial(tmp_path)
    assert trial.steps() == [0, 10, 20]
    assert len(trial.series("train-logloss").steps) == 21, "numbers are known of every round"


def test_predictions_and_labels_are_those_of_the_data_that_is_not_trained_on(
    tmp_path: Path, data: tuple[Any, Any]
) -> None:
    kept = recording(tmp_path, ["predictions", "labels"], interval=3)
    booster = trained(BoosterCallback(kept, validation_data=data[1]), *data)
    kept.close()
    trial = create_trial(tmp_path)
    assert trial.tensor("predictions").steps() == [0, 3]
    assert np.array_equal(trial.tensor("predictions").value(3), booster.predict(data[1]))
    assert np.array_equal(trial.labels(3)[0], data[1].get_label())


def test_importances_are_shares_of_all_features(tmp_path: Path, data: tuple[Any, Any]) -> None:
    kept = recording(tmp_path, ["feature_importance"])
    booster = trained(BoosterCallback(kept), *data)
    kept.close()
    trial = create_trial(tmp_path)
    for kind in ("weight", "gain", "cover", "total_gain", "total_cover"):
        names = trial.tensor_names(regex=f"^feature_importance/{kind}/")
        values = {name.rpartition("/")[2]: float(trial.tensor(name).value(3)) for name in names}
        scores: dict[str, Any] = booster.get_score(importance_type=kind)
        assert sum(values.values()) == pytest.approx(1)
        assert values == pytest.approx({feature: score / sum(scores.values()) for feature, score in scores.items()})


def test_contributions_are_those_to_predictions_of_the_training_data(tmp_path: Path, data: tuple[Any, Any]) -> None:
    kept = recording(tmp_path, ["average_shap", "full_shap"], interval=3)
    booster = trained(BoosterCallback(kept, train_data=data[0]), *data)
    kept.close()
    trial = create_trial(tmp_path)
    whole = booster.predict(data[0], pred_contribs=True)
    assert trial.tensor_names(collection="average_shap") == [f"average_shap/f{place}" for place in range(4)]
    assert float(trial.tensor("average_shap/f1").value(3)) == pytest.approx(whole[:, 1].mean(dtype=np.float64))
    assert np.array_equal(trial.tensor("full_shap/f0").value(3), whole)


def test_trees_are_recorded_node_by_node(tmp_path: Path, data: tuple[Any, Any]) -> None:
    kept = recording(tmp_path, ["trees"])
    booster = trained(BoosterCallback(kept), *data)
    kept.close()
    trial = create_trial(tmp_path)
    columns = tree_columns(booster, 2)
    assert trial.tensor("trees/Node").value(2).tolist() == columns["Node"].tolist() == sorted(columns["Node"])
    assert columns["Tree"].tolist() == [2] * len(columns["Node"])
    assert np.array_equal(trial.tensor("trees/Split").value(2), columns["Split"], equal_nan=True)
    leaves = columns["Feature"] == "Leaf"
    assert np.isnan(columns["Split"]).tolist() == leaves.tolist()
    assert columns["ID"][0] == "2-0"
    assert columns["Yes"][0] == "2-1"
    assert columns["Yes"][leaves].tolist() == ["nan"] * sum(leaves)
    assert columns["Cover"][0] > columns["Cover"][-1] > 0


def test_hyperparameters_are_recorded_as_numbers(tmp_path: Path, data: tuple[Any, Any]) -> None:
    kept = recording(tmp_path, ["hyperparameters"])
    trained(
        BoosterCallback(kept, hyperparameters={"eta": "0.3", "max_depth": 3, "objective": "binary:logistic"}), *data
    )
    kept.close()
    trial = create_trial(tmp_path)
    assert trial.tensor_names(collection="hyperparameters") == ["hyperparameters/eta", "hyperparameters/max_depth"]
    assert float(trial.tensor("hyperparameters/eta").value(0)) == 0.3


def test_a_round_of_several_trees_is_recorded_whole(tmp_path: Path) -> None:
    made = np.random.default_rng(2)
    x, y = made.normal(size=(90, 3)), made.integers(0, 3, 90)
    parameters = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2, "nthread": 1}
    booster = xgboost.train(parameters, xgboost.DMatrix(x, y), 3)
    assert sorted(set(tree_columns(booster, 2)["Tree"])) == [6, 7, 8]


def test_linear_boosters_have_no_trees_and_importances(tmp_path: Path, data: tuple[Any, Any]) -> None:
    kept = recording(tmp_path, ["trees", "feature_importance"])
    linear = {"booster": "gblinear", "objective": "binary:logistic", "nthread": 1}
    evals = [(data[0], "train")]
    xgboost.train(linear, data[0], 2, evals=evals, callbacks=[BoosterCallback(kept)], verbose_eval=False)
    kept.close()
    assert create_trial(tmp_path).tensor_names() == ["train-logloss"]


def test_a_cross_validation_records_the_means_of_its_metrics(tmp_path: Path, data: tuple[Any, Any]) -> None:
    kept = recording(tmp_path, ["trees"])
    found = xgboost.cv(PARAMETERS, data[0], 2, nfold=2, as_pandas=False, callbacks=[BoosterCallback(kept)])
    kept.close()
    assert create_trial(tmp_path).series("test-logloss").values == pytest.approx(found["test-logloss-mean"])


def test_failures_do_not_reach_the_training(tmp_path: Path, data: tuple[Any, Any], caplog: Any) -> None:
    kept = recording(tmp_path, ["predictions"])
    wrong = xgboost.DMatrix(np.zeros((3, 99)))
    booster = trained(BoosterCallback(kept, validation_data=wrong), *data)
    kept.close()
    assert booster.num_boosted_rounds() == 4
    assert "recording has stopped" in caplog.text


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[list[HookRecording]]:
    """Record all trainings of the process, each separately, until the test ends."""
    modules = (xgboost, xgboost.training, xgboost.sklearn)
    originals = [module.__dict__["train"] for module in modules]
    made: list[HookRecording] = []

    def make(parameters: Any, train: Any, validation: Any) -> BoosterCallback:
        made.append(recording(tmp_path / str(len(made)), ["predictions", "hyperparameters"]))
        return BoosterCallback(made[-1], hyperparameters=parameters, train_data=train, validation_data=validation)

    attach_to_training(make)
    yield made
    for module, original in zip(modules, originals, strict=True):
        module.__dict__["train"] = original


def read(recordings: list[HookRecording]) -> Trial:
    (only,) = recordings
    only.close()
    return create_trial(only.config.folder)


def test_a_program_without_a_hook_is_recorded(watched: list[HookRecording], data: tuple[Any, Any]) -> None:
    evals = [(data[0], "train"), (data[1], "validation")]
    xgboost.train(PARAMETERS, data[0], num_boost_round=3, evals=evals, verbose_eval=False)
    trial = read(watched)
    assert trial.steps() == [0, 1, 2]
    assert {"train-auc", "predictions", "hyperparameters/max_depth"} <= set(trial.tensor_names())


def test_models_with_scikit_learns_interface_are_recorded(watched: list[HookRecording]) -> None:
    x = np.random.default_rng(3).normal(size=(60, 2))
    model = xgboost.XGBRegressor(n_estimators=2, n_jobs=1)
    model.fit(x, x[:, 0], eval_set=[(x, x[:, 0])], verbose=False)
    assert "validation_0-rmse" in read(watched).tensor_names(collection="losses")


def test_a_program_with_its_own_hook_has_only_that_one(
    watched: list[HookRecording], tmp_path: Path, data: tuple[Any, Any]
) -> None:
    kept = recording(tmp_path / "own")
    trained(BoosterCallback(kept), *data)
    kept.close()
    assert watched == []
