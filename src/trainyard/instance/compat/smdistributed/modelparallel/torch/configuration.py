"""What a job asks of model parallelism: the `parameters` of its distribution, which arrive as a hyperparameter."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PIPELINES = ("interleaved", "simple")
PLACEMENTS = {"cluster": "DPT", "spread": "TPD"}

# Known to the library, and without effect here: they say how it is fast, or where there is nothing to choose.
_WITHOUT_EFFECT = frozenset(
    {
        "activation_loading_horizon",
        "active_microbatches",
        "contiguous",
        "ddp",
        "ddp_dist_backend",
        "ddp_port",
        "delayed_parameter_initialization",
        "deterministic_server",
        "fast_mode",
        "memory_weight",
        "optimize",
        "skip_tracing",
        "static_mode",
    }
)
# What would change results or memory, and is not done.
_NOT_SERVED = (
    "bf16",
    "fp16",
    "fp16_params",
    "horovod",
    "offload_activations",
    "sharded_data_parallel_degree",
    "shard_optimizer_state",
)
_TRUE, _FALSE = ("true", "1"), ("false", "0")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The parameters that are served; degrees are numbers of ranks."""

    pipeline_degree: int = 1
    tensor_degree: int = 1
    microbatches: int = 1
    pipeline: str = "interleaved"
    placement: str = "DPT"
    auto_partition: bool = True
    default_partition: int = 0
    prescaled_batch: bool = False


def configuration_of(environment: Mapping[str, str]) -> Configuration:
    """What the hyperparameter mp_parameters says, as programs have it; without one, nothing is split."""
    text = environment.get("SM_HP_MP_PARAMETERS", "")
    if not text:
        return Configuration()
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"SM_HP_MP_PARAMETERS is {text!r}, which is no JSON: {error}.") from error
    if not isinstance(given, dict):
        raise ValueError(f"SM_HP_MP_PARAMETERS is {text!r}; it must be an object of parameters.")
    return read(given)


def read(given: Mapping[str, Any]) -> Configuration:
    """ValueError names the parameter that cannot be; unknown ones are warned about and have no effect."""
    _require_served(given)
    known = _READERS.keys() | _WITHOUT_EFFECT | set(_NOT_SERVED)
    unknown = sorted(given.keys() - known)
    if unknown:
        warnings.warn(
            f"Model parallelism has no parameter {', '.join(unknown)}; it has {', '.join(sorted(_READERS))}.",
            stacklevel=3,
        )
    pairs = [(name, value) for name, value in given.items() if name in _READERS]
    found = Configuration(
        **{member: reader(name, value) for name, value in pairs for member, reader in [_READERS[name]]}
    )
    if not 0 <= found.default_partition < found.pipeline_degree:
        raise ValueError(
            f"default_partition is {found.default_partition}; there are {found.pipeline_degree} partitions."
        )
    return found


def _require_served(given: Mapping[str, Any]) -> None:
    asked = [name for name in _NOT_SERVED if str(given.get(name, "")).lower() not in ("", "false", "none", "0", "1")]
    asked += [name for name in _NOT_SERVED if given.get(name) is True and name not in asked]
    if asked:
        raise ValueError(f"Model parallelism here does not serve {', '.join(asked)}; leave it out of the parameters.")
    if "partitions" in given and given.get("pipeline_parallel_degree", given["partitions"]) != given["partitions"]:
        raise ValueError("partitions and pipeline_parallel_degree are two names of one number, and differ.")


def _count(name: str, value: Any) -> int:
    try:
        count = int(str(value))
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"{name} is {value!r}; it must be a number from 1.")
    return count


def _index(name: str, value: Any) -> int:
    return _count(name, int(value) + 1 if isinstance(value, int) and value >= 0 else value) - 1


def _switch(name: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in _TRUE + _FALSE:
        raise ValueError(f"{name} is {value!r}; it must be true or false.")
    return text in _TRUE


def _pipeline(name: str, value: Any) -> str:
    if value not in PIPELINES:
        raise ValueError(f"{name} is {value!r}; it must be {' or '.join(PIPELINES)}.")
    return str(value)


def _placement(name: str, value: Any) -> str:
    order = PLACEMENTS.get(str(value), str(value))
    if sorted(order) != ["D", "P", "T"]:
        raise ValueError(f"{name} is {value!r}; it must be cluster, spread, or the letters D, P and T in some order.")
    return order


_READERS: Mapping[str, tuple[str, Any]] = {
    "partitions": ("pipeline_degree", _count),
    "pipeline_parallel_degree": ("pipeline_degree", _count),
    "tensor_parallel_degree": ("tensor_degree", _count),
    "microbatches": ("microbatches", _count),
    "pipeline": ("pipeline", _pipeline),
    "placement_strategy": ("placement", _placement),
    "auto_partition": ("auto_partition", _switch),
    "default_partition": ("default_partition", _index),
    "prescaled_batch": ("prescaled_batch", _switch),
}
