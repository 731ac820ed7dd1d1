"""Runs scripts for smdebug and XGBoost one after another, and prints what their trials report, as JSON.

Its argument is a folder for the output of the hooks. It does not know whose `smdebug` it imports.
"""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

with contextlib.suppress(ModuleNotFoundError):
    # The original looks for the distribution by name; the one without CUDA libraries has another name.
    import pkg_resources  # type: ignore[import-not-found]  # no longer in setuptools

    pkg_resources.working_set.add(pkg_resources.Distribution(project_name="xgboost", version=xgboost.__version__))

import smdebug.xgboost as smd
from smdebug.trials import create_trial

PARAMETERS = {
    "objective": "binary:logistic",
    "max_depth": 3,
    "eta": 0.4,
    "eval_metric": ["logloss", "auc"],
    "nthread": 1,
}


def data() -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    made = np.random.default_rng(1)
    x = made.normal(size=(200, 4))
    y = (x[:, 0] + 0.5 * x[:, 1] ** 2 > 0.3).astype(int)
    return xgboost.DMatrix(x[:150], y[:150]), xgboost.DMatrix(x[150:], y[150:])


def train(hook: Any, rounds: int) -> None:
    trained, held = data()
    evals = [(trained, "train"), (held, "validation")]
    xgboost.train(PARAMETERS, trained, rounds, evals=evals, callbacks=[hook], verbose_eval=False)
    hook.close()


def metrics_alone(out: str) -> None:
    train(smd.Hook(out_dir=out), 25)


def all_collections(out: str) -> None:
    trained, held = data()
    names = ["metrics", "losses", "predictions", "labels", "feature_importance", "average_shap", "full_shap"]
    hook = smd.Hook(
        out_dir=out,
        save_config=smd.SaveConfig(save_interval=3),
        include_collections=[*names, "trees", "hyperparameters"],
        train_data=trained,
        validation_data=held,
        hyperparameters={"eta": 0.4, "max_depth": 3},
    )
    train(hook, 7)


def a_job_with_a_file(out: str) -> None:
    file = Path(out).with_suffix(".json")
    collections = [{"CollectionName": "feature_importance", "CollectionParameters": {"save_interval": "2"}}]
    content = {"LocalPath": out, "HookParameters": {"save_interval": "4"}, "CollectionConfigurations": collections}
    file.write_text(json.dumps(content))
    train(smd.Hook.hook_from_config(str(file)), 5)


def told_by(trial: Any) -> dict[str, Any]:
    # Our trials do not store text: the columns of trees that name nodes and features.
    words = {f"trees/{column}" for column in ("ID", "Feature", "Yes", "No", "Missing", "Category")}
    names = [name for name in trial.tensor_names() if name not in words]
    return {
        "names": names,
        "steps": trial.steps(),
        "metrics": trial.tensor_names(collection="metrics"),
        "tensors": {
            name: {str(step): np.nan_to_num(value, nan=-1e9).reshape(-1).tolist() for step, value in values.items()}
            for name in names
            for values in [trial.tensor(name).values()]
        },
    }


def main(folder: str) -> None:
    told = {}
    for script in (metrics_alone, all_collections, a_job_with_a_file):
        out = str(Path(folder) / script.__name__)
        script(out)
        smd.del_hook()
        told[script.__name__] = told_by(create_trial(out))
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
