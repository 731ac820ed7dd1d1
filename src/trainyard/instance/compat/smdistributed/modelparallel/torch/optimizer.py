"""An optimizer for the parameters that this rank holds."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from .communication import CommGroup, allgather
from .model import PARTIAL, current_model
from .shards import is_shard, like, local, whole


def DistributedOptimizer(  # noqa: N802
    optimizer: torch.optim.Optimizer, *_args: Any, **_options: Any
) -> torch.optim.Optimizer:
    """Remove the parameters of other ranks from an optimizer, and let it save and load states of the whole model.

    Options for the library's own FP16 training have no effect.
    """
    model = current_model()
    if model is None:
        raise RuntimeError("Create the smp.DistributedModel before the smp.DistributedOptimizer.")
    for group in optimizer.param_groups:
        replacements = [model.registry.replacement(each) for each in group["params"]]
        group["params"] = [each for each in replacements if each is not None]
    optimizer.__class__ = type(optimizer.__class__.__name__, (_PartialOptimizer, optimizer.__class__), {})
    model.set_optimizer(optimizer)
    return optimizer


class _PartialOptimizer:
    """Overrides methods of the optimizer's own class."""

    param_groups: list[dict[str, Any]]
    state: dict[torch.nn.Parameter, dict[str, Any]]

    def local_state_dict(self) -> dict[str, Any]:
        """Return the state that this rank holds, by the names of parameters."""
        return self._by_name(local) | {PARTIAL: True}

    def state_dict(self, *_args: Any, **_options: Any) -> dict[str, Any]:
        """Return the state for the whole model, as that of an optimizer of all parameters in order.

        All ranks that share the model call this.
        """
        gathered = allgather(_on_cpu(self._by_name(whole)), CommGroup.MP_GROUP)
        numbers = self._numbers([each["param_groups"] for each in gathered])
        states = {numbers[name]: state for each in gathered for name, state in each["state"].items()}
        groups = [dict(group) for group in self._by_name(local)["param_groups"]]
        for at, group in enumerate(groups):
            names = {name for each in gathered for name in each["param_groups"][at]["params"]}
            group["params"] = sorted(numbers[name] for name in names)
        return {"state": dict(sorted(states.items())), "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load this rank's part of a whole state, or the part that it saved itself. All ranks call this."""
        is_partial = bool(state_dict.get(PARTIAL))
        names = _names()
        keys: Mapping[str, Any] = {name: name for name in names.values()}
        if not is_partial:
            own = [[{"params": _names_of(group["params"], names)} for group in self.param_groups]]
            keys = self._numbers([each for gathered in allgather(own, CommGroup.MP_GROUP) for each in gathered])
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group |= {name: value for name, value in saved.items() if name != "params"}
            for parameter in group["params"]:
                state = state_dict["state"].get(keys[names[id(parameter)]])
                if state is not None:
                    self.state[parameter] = _state_of(parameter, state, is_partial=is_partial)

    def _by_name(self, part: Any) -> dict[str, Any]:
        names = _names()
        states = {
            names[id(parameter)]: {
                key: part(value) if isinstance(value, torch.Tensor) else value for key, value in state.items()
            }
            for parameter, state in self.state.items()
        }
        groups = [group | {"params": _names_of(group["params"], names)} for group in self.param_groups]
        return {"state": states, "param_groups": groups}

    def _numbers(self, by_rank: Iterable[list[dict[str, Any]]]) -> dict[str, int]:
        """Return the numbers that an optimizer of the whole model gives its parameters: group by group, in order."""
        model = current_model()
        assert model is not None, "the optimizer was created after the model"
        ranks = list(by_rank)
        order = {name: at for at, name in enumerate(model.order)}
        numbers: dict[str, int] = {}
        for at in range(len(self.param_groups)):
            names = {name for groups in ranks for name in groups[at]["params"]}
            for name in sorted(names, key=order.__getitem__):
                numbers[name] = len(numbers)
        return numbers


def _names() -> dict[int, str]:
    model = current_model()
    assert model is not None, "the optimizer was created after the model"
    return model.registry.names


def _names_of(parameters: Iterable[torch.nn.Parameter], names: Mapping[int, str]) -> list[str]:
    try:
        return [names[id(each)] for each in parameters]
    except KeyError as error:
        raise RuntimeError("The optimizer has a parameter that does not belong to the smp.DistributedModel.") from error


def _state_of(parameter: torch.nn.Parameter, state: Mapping[str, Any], *, is_partial: bool) -> dict[str, Any]:
    """Convert a saved state to the optimizer's: states with the shape of a shard become shards."""
    converted = dict(state)
    for key, value in state.items():
        if not isinstance(value, torch.Tensor) or key == "step":
            continue
        shape = local(parameter).shape if is_partial else parameter.shape
        moved = value.to(parameter.device)
        is_like = is_shard(parameter) and value.shape == shape
        converted[key] = like(parameter, moved, is_partial=is_partial) if is_like else moved.clone()
    return converted


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {name: _on_cpu(each) for name, each in value.items()}
    return [_on_cpu(each) for each in value] if isinstance(value, list) else value
