"""Saves a checkpoint that a rule requests before the training stops, on the training thread between two steps."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.hook.contract import SendEvent
from trainyard.instance.recorder.states import local_tensors
from trainyard.link.event_protocol import WANTED, AgentEventKind


class RequestedCheckpoint:
    """Checks after each step whether the agent requests a checkpoint. The first rank of an instance saves it.

    If a model is sharded over ranks, each rank saves its own part. `environment` is that of the process.
    """

    def __init__(
        self, ml: Path, folder: Path, *, environment: Mapping[str, str], send_event: SendEvent, is_first: bool
    ) -> None:
        self._request = ml / WANTED
        self._folder = folder
        self._environment = environment
        self._send_event = send_event
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
        if self._is_done or not self._request.exists():
            return
        self._is_done = True
        request = json.loads(self._request.read_bytes())
        if "checkpoint" not in request or not (self._is_first or self._is_sharded):
            return
        try:
            path = self._save(number)
        except Exception as error:
            # A full disk, or a state that cannot be saved.
            self._send_event(AgentEventKind.SAVED, {"why": str(error) or type(error).__name__, "path": ""})
        else:
            self._send_event(AgentEventKind.SAVED, {"path": str(path)})

    @property
    def _is_sharded(self) -> bool:
        tensors = [tensor for model in self._models for tensor in model.parameters()]
        return any(local_tensors({"": tensor})[""] is not tensor for tensor in tensors)

    def _save(self, number: int) -> Path:
        part = f"-rank-{self._environment.get('RANK', '0')}" if self._is_sharded else ""
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
