"""A checkpoint that a rule wants before the training is stopped, saved by the thread that trains between two steps."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.recorder.states import local_tensors
from trainyard.link.told import WANTED, ToldKind

Tell = Callable[[str, Mapping[str, Any]], None]


class WantedCheckpoint:
    """Looks after each step whether the agent wants one; the first rank of an instance saves it.

    Where a model is shared out over ranks, each saves its part.
    """

    def __init__(self, ml: Path, folder: Path, *, tell: Tell, is_first: bool) -> None:
        self._wanted = ml / WANTED
        self._folder = folder
        self._tell = tell
        self._is_first = is_first
        self._models: Sequence[Any] = ()
        self._optimizers: Sequence[Any] = ()
        self._is_done = False

    def begin_step(self, _number: int, *, mode: Mode, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
        if mode is Mode.TRAIN:
            self._models, self._optimizers = models, optimizers

    def batch(self, _model: Any, _args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> None:
        return

    def loss(self, _name: str, _value: Any) -> None:
        return

    def end_step(self, number: int) -> None:
        if self._is_done or not self._wanted.exists():
            return
        self._is_done = True
        wanted = json.loads(self._wanted.read_bytes())
        if "checkpoint" not in wanted or not (self._is_first or self._is_shared_out):
            return
        try:
            path = self._save(number)
        except Exception as error:  # of a full disk, or of a state that cannot be saved
            self._tell(ToldKind.SAVED, {"why": str(error) or type(error).__name__, "path": ""})
        else:
            self._tell(ToldKind.SAVED, {"path": str(path)})

    @property
    def _is_shared_out(self) -> bool:
        tensors = [tensor for model in self._models for tensor in model.parameters()]
        return any(local_tensors({"": tensor})[""] is not tensor for tensor in tensors)

    def _save(self, number: int) -> Path:
        part = f"-rank-{os.environ.get('RANK', '0')}" if self._is_shared_out else ""
        path = self._folder / f"trainyard-step-{number}{part}.pt"
        self._folder.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.tmp")
        state = {
            "step": number,
            "models": [model.state_dict() for model in self._models],
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
        }
        torch.save(state, new)
        new.rename(path)
        return path
