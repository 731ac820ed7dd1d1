"""Runs a recorded step again: the script starts as usual, and its first steps are those of the record.

What the script brings of its own, weights, batches and random numbers, is replaced as each step begins. When the step
that is asked for has ended, its losses are compared with those of the record, and the program ends.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainyard.formats.tensors.contract import Mode, Step
from trainyard.instance.recorder.inputs import follow, overwrite
from trainyard.instance.recorder.records import ReadRecord, ReadStep, exact, read_record
from trainyard.instance.recorder.states import put_group_values

CHANNEL = "trainyard-replay"  # that brings the records

Tell = Callable[[str, Mapping[str, Any]], None]


class Replayer:
    """Observes the steps of the script that is run again, on the thread that trains."""

    def __init__(self, folder: Path, step: int, *, worker: str, output: Path, tell: Tell) -> None:
        self._folder = folder
        self._step = step
        self._worker = worker
        self._output = output
        self._tell = tell
        self._current: ReadStep | None = None
        self._arguments: list[Sequence[Any]] = []
        self._targets: list[Sequence[Any]] = []
        self._losses: list[tuple[str, str]] = []
        self._optimizers: list[Any] = []
        follow(batches=self._fetched, targets=self._target)
        register_optimizer_step_pre_hook(self._before_update)

    @cached_property
    def _record(self) -> ReadRecord:
        """Read when the first batch or step comes: not every process of a program trains."""
        try:
            return read_record(self._folder, self._worker, self._step)
        except LookupError as error:
            self._refuse(str(error))

    @cached_property
    def _left(self) -> list[ReadStep]:
        return list(self._record.steps)

    @cached_property
    def _batches(self) -> list[Any]:
        return [batch for step in self._record.steps for batch in step.batches]

    def take(self, step: Step) -> None:
        """Nothing is judged; but who is told of steps makes all ranks follow theirs."""

    def end(self) -> None:
        return

    def begin_step(self, _number: int, *, mode: Mode, models: Sequence[Any], optimizers: Sequence[Any]) -> None:  # noqa: ARG002
        if mode is not Mode.TRAIN:
            return
        if not self._left:
            self._conclude()
        self._current = self._left.pop(0)
        self._arguments, self._targets = list(self._current.arguments), list(self._current.targets)
        self._losses = []
        if self._current.number == self._record.state.step:
            try:
                self._record.state.put(models)
            except LookupError as error:
                self._refuse(f"the model of the script is another than that of the record: {error}")
        self._current.random.put()

    def batch(self, _model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._arguments and not overwrite((args, dict(kwargs)), self._arguments.pop(0)):
            self._refuse("the script calls its model with other tensors than those of the record")

    def loss(self, name: str, value: Any) -> None:
        if self._current is not None:
            self._losses.append((name, exact(value)))

    def end_step(self, _number: int) -> None:
        if self._current is not None and not self._left:
            self._conclude()

    def _fetched(self, batch: Any) -> Any:
        recorded = self._batches.pop(0) if self._batches else None
        return batch if recorded is None else recorded

    def _target(self, target: Any) -> Any:
        if self._targets:
            overwrite(target, self._targets.pop(0))
        return target

    def _before_update(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self._current is None:
            return
        if optimizer not in self._optimizers:
            self._optimizers.append(optimizer)
            self._record.state.put_optimizer(len(self._optimizers) - 1, optimizer)
        place = self._optimizers.index(optimizer)
        if place < len(self._current.groups):
            put_group_values(optimizer, self._current.groups[place])

    def _conclude(self) -> NoReturn:
        recorded, replayed = list(self._record.steps[-1].losses), self._losses
        is_same = recorded == replayed
        about = {"recorded": recorded, "replayed": replayed, "is_same": is_same}
        now = ", ".join(_shown(value) for _, value in replayed) or "none"
        before = ", ".join(_shown(value) for _, value in recorded) or "none"
        sentence = (
            f"the loss is {now}, the same as recorded, bit for bit."
            if is_same
            else f"the loss is {now}, and was recorded as {before}."
        )
        if self._record.changed and not is_same:
            sentence += f" The program had written into the {self._record.changed} before they were recorded."
        self._leave(sentence, about, code=0)

    def _refuse(self, why: str) -> NoReturn:
        self._leave(f"cannot be done: {why}.", {"is_same": False}, code=1)

    def _leave(self, sentence: str, about: Mapping[str, Any], *, code: int) -> NoReturn:
        """End the process at once: whatever the script would do after this step is no part of it."""
        text = f"replay of step {self._step} on {self._worker}: {sentence}"
        self._tell("note", {"text": text[0].upper() + text[1:]})
        self._output.mkdir(parents=True, exist_ok=True)
        told = {"step": self._step, "worker": self._worker, **about}
        (self._output / f"{self._worker}.json").write_text(json.dumps(told, indent=1))
        sys.stdout.write(f"[trainyard] {text}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _shown(value: str) -> str:
    return repr(float.fromhex(value))
