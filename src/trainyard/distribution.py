"""How the processes of a distributed job are launched, as the hyperparameters that say so on the wire."""

from collections.abc import Mapping
from typing import Any

from trainyard.foundation.errors import InvalidRequest

Distribution = Mapping[str, Any]

_KINDS = (
    "mpi",
    "multi_worker_mirrored_strategy",
    "parameter_server",
    "pytorchddp",
    "smdistributed",
    "torch_distributed",
)


def launcher_hyperparameters(distribution: Distribution | None, instance_type: str | None) -> dict[str, Any]:
    """What the sagemaker SDK makes of its `distribution` argument, not yet encoded."""
    given = _in_smdistributed(distribution or {})
    unknown = sorted(set(given) - set(_KINDS))
    if unknown:
        raise InvalidRequest(f"distribution has {', '.join(unknown)}; it can have {', '.join(_KINDS)}.")
    found = _switches(given)
    if "mpi" in given:
        found |= _mpi(given["mpi"])
    if "smdistributed" in given:
        found |= _smdistributed(given["smdistributed"])
    if instance_type and ("smdistributed" in given or _TORCH in found):
        found["sagemaker_instance_type"] = instance_type
    return found


_TORCH = "sagemaker_torch_distributed_enabled"


def _in_smdistributed(given: Distribution) -> Distribution:
    """The SDK words PyTorch's own data parallelism as that of smdistributed."""
    if "pytorchddp" not in given:
        return given
    if "smdistributed" in given:
        raise InvalidRequest("distribution has both pytorchddp and smdistributed; leave one of them out.")
    others = {kind: how for kind, how in given.items() if kind != "pytorchddp"}
    return {**others, "smdistributed": {"dataparallel": given["pytorchddp"]}}


def _switches(given: Distribution) -> dict[str, Any]:
    names = {
        "parameter_server": "sagemaker_parameter_server_enabled",
        "multi_worker_mirrored_strategy": "sagemaker_multi_worker_mirrored_strategy_enabled",
    }
    found: dict[str, Any] = {name: _is_on(given[kind]) for kind, name in names.items() if kind in given}
    return found | ({_TORCH: True} if _is_on(given.get("torch_distributed")) else {})


def _mpi(given: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"sagemaker_mpi_enabled": _is_on(given)}
    if given.get("processes_per_host"):
        found["sagemaker_mpi_num_of_processes_per_host"] = given["processes_per_host"]
    return found | {"sagemaker_mpi_custom_mpi_options": given.get("custom_mpi_options", "")}


def _smdistributed(given: Mapping[str, Any]) -> dict[str, Any]:
    data = given.get("dataparallel", {})
    model = given.get("modelparallel", {})
    found: dict[str, Any] = {"sagemaker_distributed_dataparallel_enabled": _is_on(data)}
    if _is_on(data):
        found["sagemaker_distributed_dataparallel_custom_mpi_options"] = data.get("custom_mpi_options", "")
    parameters = model.get("parameters") if _is_on(model) else None
    return found | ({"mp_parameters": parameters} if parameters else {})


def _is_on(given: Mapping[str, Any] | None) -> bool:
    return bool(given and given.get("enabled", False))
