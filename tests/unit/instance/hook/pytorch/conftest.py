"""A hook that finds models automatically, and the steps that it recorded."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainyard.formats.tensors.contract import ABSENT, Mode, Statistic, Step
from trainyard.instance.hook.configuration import parse_config
from trainyard.instance.hook.contract import HookContext, StepObserver, TensorRequest
from trainyard.instance.hook.pytorch.torch_hook import TorchHook
from trainyard.instance.hook.recording import HookRecording


class Seen:
    """Everything that a hook publishes: steps, in order, and notes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self.has_ended = False
        self.hook: TorchHook | None = None

    def take(self, step: Step) -> None:
        self.steps.append(step)

    def end(self) -> None:
        self.has_ended = True

    def send_event(self, kind: str, payload: Mapping[str, Any]) -> None:
        if kind == "note":
            self.notes.append(payload["text"])

    def close(self) -> list[Step]:
        """Close the hook and return all its steps."""
        assert self.hook is not None
        self.hook.close()
        assert self.notes == []
        return self.steps

    def of(self, mode: Mode) -> list[Step]:
        return [step for step in self.steps if step.mode is mode]


Watch = Callable[..., Seen]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Starts a hook with these collections, in AWS's format, which finds models automatically."""
    made: list[TorchHook] = []

    def start(
        collections: Mapping[str, Mapping[str, str]] | None = None,
        *,
        requests: tuple[TensorRequest, ...] = (),
        observers: tuple[StepObserver, ...] = (),
        parameters: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Seen:
        seen = Seen(tmp_path / "tensors")
        named = [{"CollectionName": name, "CollectionParameters": own} for name, own in (collections or {}).items()]
        content = {
            "LocalPath": str(seen.folder),
            "HookParameters": {"overhead_budget": "none", **(parameters or {})},
            "CollectionConfigurations": named,
        }
        context = HookContext([seen], requests, observers, seen.send_event)
        seen.hook = TorchHook(HookRecording(parse_config(content), context), **options)
        made.append(seen.hook)
        return seen

    yield start
    for hook in made:
        hook.close()


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def names(step: Step) -> set[str]:
    """Return the tensors that were observed in a step."""
    taken = step.statistics[:, Statistic.NANS] != ABSENT
    return {tensor.name for tensor, is_taken in zip(step.table.tensors, taken, strict=True) if is_taken}


def value(step: Step, name: str, column: Statistic = Statistic.MEAN) -> float:
    assert name in names(step), f"{name} is not among {sorted(names(step))}"
    return float(step.statistics[step.table.places[name], column])


def scalar(step: Step, name: str) -> float:
    return float(step.scalars[step.table.scalars.index(step.table.places[name])])


def mean(tensor: torch.Tensor) -> float:
    return float(np.float32(tensor.detach().double().mean().item()))
