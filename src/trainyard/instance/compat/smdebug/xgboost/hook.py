"""The hook for XGBoost: a callback. A step is a boosting round."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from trainyard.instance.hook import attachment
from trainyard.instance.hook.contract import HookContext
from trainyard.instance.hook.xgboost import METRICS, XGBOOST, BoosterCallback

from ..core.hook import BaseHook
from ..core.logger import get_logger
from ..exceptions import SMDebugError
from .collection import CollectionManager

Data = xgboost.DMatrix | tuple[str, str] | None


class Hook(BaseHook, BoosterCallback):
    """Saves the tensors of every round: `xgboost.train(…, callbacks=[hook])`. It saves values, not reductions.

    `train_data` and `validation_data` are matrices, or pairs of a file and its format ("csv" or "libsvm").
    """

    default_collections = {collection.name for collection in XGBOOST.collections}  # noqa: RUF012
    default_include_collections = [METRICS]  # noqa: RUF012
    default_values = {"save_interval": XGBOOST.interval}  # noqa: RUF012
    manager_class = CollectionManager

    def __init__(
        self,
        out_dir: str | None = None,
        *arguments: Any,
        hyperparameters: Mapping[str, Any] | None = None,
        train_data: Data = None,
        validation_data: Data = None,
        **options: Any,
    ) -> None:
        if options.pop("reduction_config", None) is not None:
            get_logger().warning("The reduction_config has no effect: a hook for XGBoost saves values.")
        BoosterCallback.__init__(
            self,
            hyperparameters=hyperparameters,
            train_data=_matrix(train_data),
            validation_data=_matrix(validation_data),
        )
        BaseHook.__init__(self, out_dir, *arguments, **options)
        self._attached_context = attachment.take_over("xgboost")

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        recording = self._begin_step()
        if recording is None or recording.is_off:
            return False
        try:
            self.observe(recording, model, epoch=epoch, evals_log=evals_log)
            self._observe_tensors()
            recording.finish()
        # Whatever failed, the training must continue.
        except Exception as error:
            recording.fail(error)
        return False

    def _context(self) -> HookContext:
        return self._attached_context


def _matrix(data: Data) -> xgboost.DMatrix | None:
    if data is None or isinstance(data, xgboost.DMatrix):
        return data
    if not (isinstance(data, tuple) and len(data) == 2 and all(isinstance(each, str) for each in data)):
        raise SMDebugError(f"{data!r} is neither a DMatrix nor a pair of a file and its format.")
    file, form = Path(data[0]).expanduser(), data[1].rpartition("/")[2].lower()
    if not file.is_file():
        raise SMDebugError(f"The file {file} does not exist.")
    if form not in ("csv", "libsvm"):
        raise SMDebugError(f'"{data[1]}" is not a supported data format; use csv or libsvm.')
    if form == "libsvm":
        return xgboost.DMatrix(f"{file}?format=libsvm")
    table = np.loadtxt(file, delimiter=",", ndmin=2)
    return xgboost.DMatrix(table[:, 1:], table[:, 0])
