"""Collections: named sets of tensors, with what to save of them and when."""

import json
from collections.abc import Mapping
from typing import Any

from ..exceptions import SMDebugTypeError, SMDebugValueError
from .modes import ModeKeys
from .reduction_config import ReductionConfig
from .save_config import SaveConfig, SaveConfigMode

ALLOWED_PARAMS = ["name", "include_regex", "reduction_config", "save_config", "tensor_names", "save_histogram"]


class CollectionKeys:
    """The names of the collections that frameworks fill."""

    DEFAULT = "default"
    ALL = "all"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    LOSSES = "losses"
    BIASES = "biases"
    LAYERS = "layers"
    SM_METRICS = "sm_metrics"
    OPTIMIZER_VARIABLES = "optimizer_variables"
    TENSORFLOW_SUMMARIES = "tensorflow_summaries"
    METRICS = "metrics"
    HYPERPARAMETERS = "hyperparameters"
    PREDICTIONS = "predictions"
    LABELS = "labels"
    FEATURE_IMPORTANCE = "feature_importance"
    AVERAGE_SHAP = "average_shap"
    FULL_SHAP = "full_shap"
    TREES = "trees"


SUMMARIES_COLLECTIONS = {CollectionKeys.TENSORFLOW_SUMMARIES}
SCALAR_COLLECTIONS = {
    CollectionKeys.LOSSES,
    CollectionKeys.METRICS,
    CollectionKeys.FEATURE_IMPORTANCE,
    CollectionKeys.AVERAGE_SHAP,
    CollectionKeys.SM_METRICS,
}
SM_METRIC_COLLECTIONS = {CollectionKeys.LOSSES, CollectionKeys.METRICS, CollectionKeys.SM_METRICS}
NON_REDUCTION_COLLECTIONS = SCALAR_COLLECTIONS | SUMMARIES_COLLECTIONS
NON_HISTOGRAM_COLLECTIONS = SCALAR_COLLECTIONS | SUMMARIES_COLLECTIONS

_COMMON_COLLECTIONS = {CollectionKeys.ALL, CollectionKeys.DEFAULT}
_NETWORK_COLLECTIONS = _COMMON_COLLECTIONS | {
    CollectionKeys.WEIGHTS,
    CollectionKeys.BIASES,
    CollectionKeys.GRADIENTS,
    CollectionKeys.LOSSES,
}
DEFAULT_PYTORCH_COLLECTIONS = set(_NETWORK_COLLECTIONS)
DEFAULT_MXNET_COLLECTIONS = set(_NETWORK_COLLECTIONS)
DEFAULT_TF_COLLECTIONS = _NETWORK_COLLECTIONS | {
    CollectionKeys.METRICS,
    CollectionKeys.INPUTS,
    CollectionKeys.OUTPUTS,
    CollectionKeys.LAYERS,
    CollectionKeys.SM_METRICS,
    CollectionKeys.OPTIMIZER_VARIABLES,
}
DEFAULT_XGBOOST_COLLECTIONS = _COMMON_COLLECTIONS | {
    CollectionKeys.HYPERPARAMETERS,
    CollectionKeys.PREDICTIONS,
    CollectionKeys.LABELS,
    CollectionKeys.FEATURE_IMPORTANCE,
    CollectionKeys.AVERAGE_SHAP,
    CollectionKeys.FULL_SHAP,
    CollectionKeys.TREES,
}


class Collection:
    """Tensors by name, or by a regex found anywhere in their names. A config of None means the hook's."""

    def __init__(
        self,
        name: str,
        include_regex: list[str] | None = None,
        tensor_names: list[str] | set[str] | None = None,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | dict[ModeKeys, SaveConfigMode | None] | None = None,
        save_histogram: bool = True,
    ) -> None:
        self.name = name
        self.include_regex = include_regex if include_regex is not None else []
        self.tensor_names = tensor_names
        self.reduction_config = reduction_config
        self.save_config = save_config
        self.save_histogram = save_histogram

    @property
    def tensor_names(self) -> set[str]:
        return self._tensor_names

    @tensor_names.setter
    def tensor_names(self, tensor_names: list[str] | set[str] | None) -> None:
        if not isinstance(tensor_names, list | set | None):
            raise SMDebugTypeError(f"tensor_names is {tensor_names!r}; it must be a list or a set of names.")
        self._tensor_names = set(tensor_names or ())

    @property
    def reduction_config(self) -> ReductionConfig | None:
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, reduction_config: ReductionConfig | None) -> None:
        if not isinstance(reduction_config, ReductionConfig | None):
            raise SMDebugTypeError(f"reduction_config is {reduction_config!r}; it must be a ReductionConfig.")
        self._reduction_config = reduction_config

    @property
    def save_config(self) -> SaveConfig | None:
        return self._save_config

    @save_config.setter
    def save_config(self, save_config: SaveConfig | dict[ModeKeys, SaveConfigMode | None] | None) -> None:
        if not isinstance(save_config, SaveConfig | dict | None):
            raise SMDebugTypeError(f"save_config is {save_config!r}; it must be a SaveConfig or a dict of modes.")
        self._save_config = SaveConfig(save_config) if isinstance(save_config, dict) else save_config

    def include(self, t: str | list[str]) -> None:
        """Add a regex, or a list of them."""
        if not isinstance(t, str | list):
            raise SMDebugTypeError(f"{t!r} cannot be included; give a regex or a list of them.")
        for each in [t] if isinstance(t, str) else t:
            if isinstance(each, str):
                self.include_regex.append(each)
            else:
                self.include(each)

    def add_tensor_name(self, tname: str) -> None:
        self._tensor_names.add(tname)

    def remove_tensor_name(self, tname: str) -> None:
        self._tensor_names.discard(tname)

    def has_tensor_name(self, tname: str) -> bool:
        return tname in self._tensor_names

    def to_json_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "include_regex": self.include_regex,
            "tensor_names": sorted(self.tensor_names),
            "reduction_config": self.reduction_config and self.reduction_config.to_json_dict(),
            "save_config": self.save_config and self.save_config.to_json_dict(),
            "save_histogram": self.save_histogram,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any]) -> "Collection":
        if not isinstance(params, Mapping):
            raise SMDebugValueError(f"{params!r} is not a dict of {', '.join(ALLOWED_PARAMS)}.")
        return cls(
            name=params["name"],
            include_regex=list(params.get("include_regex") or []),
            tensor_names=set(params.get("tensor_names") or ()),
            reduction_config=ReductionConfig.from_dict(params.get("reduction_config")),
            save_config=SaveConfig.from_dict(params.get("save_config")),
            save_histogram=params.get("save_histogram", True),
        )

    @classmethod
    def from_json(cls, json_str: str) -> "Collection":
        return cls.from_dict(json.loads(json_str))

    def __eq__(self, other: object) -> bool:
        return self.to_json_dict() == other.to_json_dict() if isinstance(other, Collection) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return str(self.to_json_dict())

    def __repr__(self) -> str:
        return f"<class Collection: name={self.name}>"
