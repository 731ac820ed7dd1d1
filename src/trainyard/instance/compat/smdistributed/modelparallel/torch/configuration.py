"""The configuration of model parallelism: the `parameters` of a job's distribution, passed as a hyperparameter."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PIPELINES = ("interleaved", "simple")
PLACEMENTS = {"cluster": "DPT", "spread": "TPD"}

# Parameters of the library without effect here: they tune its speed, or there is nothing to choose.
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
# These would change results or memory use, and are not implemented.
_UNSUPPORTED = (
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
    """The supported parameters. Degrees are numbers of ranks."""

    pipeline_degree: int = 1
    tensor_degree: int = 1
    microbatches: int = 1
    pipeline: str = "interleaved"
    placement: str = "DPT"
    auto_partition: bool = True
    default_partition: int = 0
    prescaled_batch: bool = False


def load_configuration(environment: Mapping[str, str]) -> Configuration:
    """Load the hyperparameter mp_parameters from a program's environment. Without it, nothing is split."""
    text = environment.get("SM_HP_MP_PARAMETERS", "")
    if not text:
        return Configuration()
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ValueError(f"SM_HP_MP_PARAMETERS is {text!r}, which is not valid JSON: {error}.") from error
    if not isinstance(given, dict):
        raise ValueError(f"SM_HP_MP_PARAMETERS is {text!r}; it must be an object of parameters.")
    return parse_parameters(given)


def parse_parameters(given: Mapping[str, Any]) -> Configuration:
    """Parse parameters. Raises ValueError for an invalid one, and warns about unknown ones."""
    _require_supported(given)
    known = _PARSERS.keys() | _WITHOUT_EFFECT | set(_UNSUPPORTED)
    unknown = sorted(given.keys() - known)
    if unknown:
        warnings.warn(
            f"Model parallelism has no parameter {', '.join(unknown)}; it has {', '.join(sorted(_PARSERS))}.",
            stacklevel=3,
        )
    pairs = [(name, value) for name, value in given.items() if name in _PARSERS]
    configuration = Configuration(
        **{member: parser(name, value) for name, value in pairs for member, parser in [_PARSERS[name]]}
    )
    if not 0 <= configuration.default_partition < configuration.pipeline_degree:
        raise ValueError(
            f"default_partition is {configuration.default_partition}; there are {configuration.pipeline_degree} "
            "partitions."
        )
    return configuration


def _require_supported(given: Mapping[str, Any]) -> None:
    used = [name for name in _UNSUPPORTED if str(given.get(name, "")).lower() not in ("", "false", "none", "0", "1")]
    used += [name for name in _UNSUPPORTED if given.get(name) is True and name not in used]
    if used:
        raise ValueError(f"Model parallelism here does not support {', '.join(used)}; remove it from the parameters.")
    if "partitions" in given and given.get("pipeline_parallel_degree", given["partitions"]) != given["partitions"]:
        raise ValueError("partitions and pipeline_parallel_degree are two names for one number, but differ.")


def _count(name: str, value: Any) -> int:
    try:
        count = int(str(value))
    except ValueError:
        count = 0
    if count < 1:
        raise ValueError(f"{name} is {value!r}; it must be 1 or more.")
    return count


def _index(name: str, value: Any) -> int:
    return _count(name, int(value) + 1 if isinstance(value, int) and value >= 0 else value) - 1


def _boolean(name: str, value: Any) -> bool:
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


_PARSERS: Mapping[str, tuple[str, Any]] = {
    "partitions": ("pipeline_degree", _count),
    "pipeline_parallel_degree": ("pipeline_degree", _count),
    "tensor_parallel_degree": ("tensor_degree", _count),
    "microbatches": ("microbatches", _count),
    "pipeline": ("pipeline", _pipeline),
    "placement_strategy": ("placement", _placement),
    "auto_partition": ("auto_partition", _boolean),
    "default_partition": ("default_partition", _index),
    "prescaled_batch": ("prescaled_batch", _boolean),
}
