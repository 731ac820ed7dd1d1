"""Turn the `distribution` argument of an estimator into the hyperparameters that launch a distributed job."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance_group import InstanceGroup

Distribution = Mapping[str, Any]

# The members of each kind of distribution. An unknown one would have no effect, so it is an error.
_SWITCH = ("enabled",)
_MEMBERS: Mapping[str, Sequence[str]] = {
    "mpi": ("enabled", "processes_per_host", "custom_mpi_options"),
    "multi_worker_mirrored_strategy": _SWITCH,
    "parameter_server": _SWITCH,
    "pytorchddp": ("enabled", "custom_mpi_options"),
    "smdistributed": ("dataparallel", "modelparallel"),
    "torch_distributed": _SWITCH,
}
# Those that need no more than to be enabled.
LAUNCHERS = tuple(name for name, members in _MEMBERS.items() if "enabled" in members)
_MEMBERS_OF_SMDISTRIBUTED: Mapping[str, Sequence[str]] = {
    "dataparallel": ("enabled", "custom_mpi_options"),
    "modelparallel": ("enabled", "parameters"),
}


def launcher_hyperparameters(
    distribution: Distribution | None, instance_type: str | None, *, groups: Sequence[InstanceGroup] = ()
) -> dict[str, Any]:
    """Return the hyperparameters that the sagemaker SDK would send, not yet encoded.

    `groups` are the instance groups of the job. `instance_groups` of the distribution names some of them.
    """
    _require_words("distribution", distribution or {}, (*_MEMBERS, _GROUPS))
    given = dict(distribution or {})
    chosen = given.pop(_GROUPS, None)
    _require_members("distribution", given, _MEMBERS)
    given = _in_smdistributed(given)
    _require_members('distribution["smdistributed"]', given.get("smdistributed", {}), _MEMBERS_OF_SMDISTRIBUTED)
    found = _switches(given)
    if "mpi" in given:
        found |= _mpi(given["mpi"])
    if "smdistributed" in given:
        found |= _options_of_smdistributed(given["smdistributed"])
    if instance_type and ("smdistributed" in given or _TORCH in found):
        found["sagemaker_instance_type"] = instance_type
    return found | _chosen_groups(chosen, groups, is_launched=any(value is True for value in found.values()))


_GROUPS = "instance_groups"
_TORCH = "sagemaker_torch_distributed_enabled"


def _require_members(what: str, given: Any, known: Mapping[str, Sequence[str]]) -> None:
    """Raise InvalidRequest for an unknown member at either level."""
    _require_words(what, given, tuple(known))
    for name, part in given.items():
        _require_words(f'{what}["{name}"]', part, known[name])
        switch = part.get("enabled", False)
        if not isinstance(switch, bool):
            raise InvalidRequest(f'{what}["{name}"]["enabled"] is {switch!r}; it must be True or False.')


def _require_words(what: str, given: Any, known: Sequence[str]) -> None:
    if not isinstance(given, Mapping):
        raise InvalidRequest(f'{what} is {given!r}; it must be a dictionary, such as {{"{known[0]}": …}}.')
    unknown = sorted(map(str, set(given) - set(known)))
    if unknown:
        raise InvalidRequest(f'{what} has the unknown key "{unknown[0]}"; the keys are {", ".join(known)}.')


def _in_smdistributed(given: dict[str, Any]) -> dict[str, Any]:
    """Return the distribution with `pytorchddp` as data parallelism of smdistributed, as the sagemaker SDK sends it."""
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


def _options_of_smdistributed(given: Mapping[str, Any]) -> dict[str, Any]:
    data = given.get("dataparallel", {})
    model = given.get("modelparallel", {})
    found: dict[str, Any] = {"sagemaker_distributed_dataparallel_enabled": _is_on(data)}
    if _is_on(data):
        found["sagemaker_distributed_dataparallel_custom_mpi_options"] = data.get("custom_mpi_options", "")
    parameters = model.get("parameters") if _is_on(model) else None
    return found | ({"mp_parameters": parameters} if parameters else {})


def _chosen_groups(
    chosen: Sequence[InstanceGroup | str] | None, groups: Sequence[InstanceGroup], *, is_launched: bool
) -> dict[str, Any]:
    """Return the groups that train together. A single group always does, as in the sagemaker SDK."""
    if isinstance(chosen, str | InstanceGroup):
        raise InvalidRequest(f'distribution["{_GROUPS}"] must be a list of groups.')
    if not is_launched:
        if chosen:
            raise InvalidRequest(
                "distribution has instance_groups, but enables nothing for them; add one of "
                f'{", ".join(_MEMBERS)}, such as {{"mpi": {{"enabled": True}}}}.'
            )
        return {}
    known = [group.instance_group_name for group in groups]
    names = [each if isinstance(each, str) else each.instance_group_name for each in chosen or ()]
    for name in names:
        if name not in known:
            available = f"the job has {', '.join(known)}" if known else "the job has none"
            raise InvalidRequest(f'distribution names the instance group "{name}"; {available}.')
    names = names or (known if len(known) == 1 else [])
    return {"sagemaker_distribution_instance_groups": names} if names else {}


def _is_on(given: Mapping[str, Any] | None) -> bool:
    return bool(given and given.get("enabled", False))
