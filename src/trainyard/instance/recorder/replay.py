"""Replays a recorded step: the script starts as usual, and its first steps become those of the record.

The script's own weights, batches and random numbers are replaced as each step begins. When the requested step has
ended, its losses are compared with the recorded ones, and the program exits.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.instance.hook.contract import SendEvent
from trainyard.instance.recorder.inputs import intercept_inputs, overwrite_tensors
from trainyard.instance.recorder.records import LoadedRecord, LoadedStep, exact_text, read_record
from trainyard.instance.recorder.states import restore_group_values

# The channel with the records.
CHANNEL = "trainyard-replay"


class Replayer:
    """Replaces the inputs and state of the script's steps, on the training thread."""

    def __init__(self, folder: Path, step: int, *, worker: str, output: Path, send_event: SendEvent) -> None:
        self._folder = folder
        self._step = step
        self._worker = worker
        self._output = output
        self._send_event = send_event
        self._current: LoadedStep | None = None
        self._arguments: list[Sequence[Any]] = []
        self._targets: list[Sequence[Any]] = []
        self._losses: list[tuple[str, str]] = []
        self._optimizers: list[Any] = []
        intercept_inputs(batches=self._replace_batch, targets=self._replace_target)
        register_optimizer_step_pre_hook(self._before_update)

    @cached_property
    def _record(self) -> LoadedRecord:
        """The record, read at the first batch or step, since not every process of a program trains."""
        try:
            return read_record(self._folder, self._worker, self._step)
        except LookupError as error:
            self._refuse(str(error))

    @cached_property
    def _remaining(self) -> list[LoadedStep]:
        return list(self._record.steps)

    @cached_property
    def _batches(self) -> list[Any]:
        return [batch for step in self._record.steps for batch in step.batches]

    def take(self, step: Step) -> None:
        """Do nothing. A subscriber makes all ranks record their steps."""

    def end(self) -> None:
        return

    def begin_step(self, _number: int, *, mode: Mode, models: Sequence[Any], optimizers: Sequence[Any]) -> None:  # noqa: ARG002
        if mode is not Mode.TRAIN:
            return
        if not self._remaining:
            self._conclude()
        self._current = self._remaining.pop(0)
        self._arguments, self._targets = list(self._current.arguments), list(self._current.targets)
        self._losses = []
        if self._current.number == self._record.state.step:
            try:
                self._record.state.restore(models)
            except LookupError as error:
                self._refuse(f"the model of the script differs from the recorded one: {error}")
        self._current.random.restore()

    def batch(self, _model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._arguments and not overwrite_tensors((args, dict(kwargs)), self._arguments.pop(0)):
            self._refuse("the script calls its model with tensors that differ from the recorded ones in shape")

    def loss(self, name: str, value: Any) -> None:
        if self._current is not None:
            self._losses.append((name, exact_text(value)))

    def end_step(self, _number: int) -> None:
        if self._current is not None and not self._remaining:
            self._conclude()

    def _replace_batch(self, batch: Any) -> Any:
        recorded = self._batches.pop(0) if self._batches else None
        return batch if recorded is None else recorded

    def _replace_target(self, target: Any) -> Any:
        if self._targets:
            overwrite_tensors(target, self._targets.pop(0))
        return target

    def _before_update(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._current is None:
            return
        if optimizer not in self._optimizers:
            self._optimizers.append(optimizer)
            self._record.state.restore_optimizer(len(self._optimizers) - 1, optimizer)
        number = self._optimizers.index(optimizer)
        if number < len(self._current.groups):
            restore_group_values(optimizer, self._current.groups[number])

    def _conclude(self) -> NoReturn:
        recorded, replayed = list(self._record.steps[-1].losses), self._losses
        is_same = recorded == replayed
        about = {"recorded": recorded, "replayed": replayed, "is_same": is_same}
        now = ", ".join(_format_loss(value) for _, value in replayed) or "none"
        before = ", ".join(_format_loss(value) for _, value in recorded) or "none"
        sentence = (
            f"the loss is {now}, the same as recorded, bit for bit."
            if is_same
            else f"the loss is {now}, but the recorded loss was {before}."
        )
        if self._record.changed and not is_same:
            sentence += f" The program had changed the {self._record.changed} before they were recorded."
        self._exit(sentence, about, code=0)

    def _refuse(self, why: str) -> NoReturn:
        self._exit(f"cannot be done: {why}.", {"is_same": False}, code=1)

    def _exit(self, sentence: str, about: Mapping[str, Any], *, code: int) -> NoReturn:
        """Exit at once, since what the script would do after this step is not part of the replay."""
        text = f"replay of step {self._step} on {self._worker}: {sentence}"
        self._send_event("note", {"text": text[0].upper() + text[1:]})
        self._output.mkdir(parents=True, exist_ok=True)
        result = {"step": self._step, "worker": self._worker, **about}
        (self._output / f"{self._worker}.json").write_text(json.dumps(result, indent=1))
        sys.stdout.write(f"[trainyard] {text}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _format_loss(value: str) -> str:
    return repr(float.fromhex(value))
