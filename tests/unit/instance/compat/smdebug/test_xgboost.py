"""The hook for XGBoost as scripts create it."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import smdebug.xgboost as smd
import xgboost
from smdebug.exceptions import InvalidCollectionConfiguration, SMDebugError

PARAMETERS = {"max_depth": 2, "nthread": 1}


@pytest.fixture
def data() -> xgboost.DMatrix:
    x = np.random.default_rng(1).normal(size=(60, 3))
    return xgboost.DMatrix(x, x[:, 0])


def train(hook: Any, data: xgboost.DMatrix, rounds: int = 3) -> xgboost.Booster:
    return xgboost.train(PARAMETERS, data, rounds, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)


def test_metrics_are_saved_every_tenth_round(out: str, data: xgboost.DMatrix) -> None:
    hook = smd.Hook(out)
    assert smd.get_hook() is hook
    train(hook, data, rounds=12)
    hook.close()
    trial = smd.create_trial(out)
    assert (trial.tensor_names(), trial.steps()) == (["train-rmse"], [0, 10])


def test_data_may_be_a_file(out: str, tmp_path: Path, data: xgboost.DMatrix) -> None:
    file = tmp_path / "data.csv"
    file.write_text("".join(f"{row / 9},{row},{row % 3},{row * 2}\n" for row in range(9)))
    hook = smd.Hook(
        out,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["labels"],
        validation_data=(str(file), "csv"),
    )
    train(hook, data)
    hook.close()
    assert smd.create_trial(out).tensor("labels").value(0) == pytest.approx([row / 9 for row in range(9)])


def test_data_that_cannot_be_read_is_refused(out: str, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("")
    for wrong, complaint in (
        ((str(tmp_path / "nothing"), "csv"), "does not exist"),
        ((str(tmp_path / "data.txt"), "parquet"), "not a supported data format"),
        (3, "neither a DMatrix"),
    ):
        with pytest.raises(SMDebugError, match=complaint):
            smd.Hook(out, train_data=wrong)


def test_reductions_are_not_taken(out: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("smdebug").propagate = True
    hook = smd.Hook(out, reduction_config=smd.ReductionConfig(["min"]))
    assert "no effect" in caplog.text
    assert hook.reduction_config == smd.ReductionConfig(save_raw_tensor=True)


def test_what_the_program_saves_goes_with_the_next_round(out: str, data: xgboost.DMatrix) -> None:
    hook = smd.Hook(out, save_config=smd.SaveConfig(save_interval=1))
    hook.save_scalar("rows", data.num_row())
    hook.save_tensor("first", np.arange(3))
    train(hook, data)
    hook.close()
    trial = smd.create_trial(out)
    assert trial.tensor("scalar/rows").steps() == trial.tensor("first").steps() == [0]


def test_a_collection_without_tensors_is_refused(out: str, data: xgboost.DMatrix) -> None:
    hook = smd.Hook(out)
    hook.get_collection("mine")
    with pytest.raises(InvalidCollectionConfiguration):
        train(hook, data)
