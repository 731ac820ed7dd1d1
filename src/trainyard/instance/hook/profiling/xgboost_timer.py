"""Times the rounds of an XGBoost training: a step is a boosting round.

A round counts as backward: its gradients and its trees. Predictions and evaluations are forwards, loading data between
two rounds is a wait for data, and what callbacks and objectives of the program compute is other.
"""

import functools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import xgboost

from trainyard.formats.profiles.contract import ProgramChange, StepPhase
from trainyard.formats.profiles.step_times import TRAIN
from trainyard.instance.hook import process
from trainyard.instance.hook.profiling.stack_sampler import StackSampler
from trainyard.instance.hook.profiling.step_clock import StepClock
from trainyard.instance.hook.profiling.step_file import StepFile
from trainyard.instance.hook.profiling.trial import AppliedChanges, ProgramTrial, TrialEnd

Note = Callable[[str], None]

_NO_TRIAL = ProgramTrial()
_ROUND, _OTHER = StepPhase.BACKWARD, StepPhase.OTHER
_PHASES = {
    "boost": _ROUND,
    "predict": StepPhase.FORWARD,
    "inplace_predict": StepPhase.FORWARD,
    "eval_set": StepPhase.FORWARD,
    "save_model": StepPhase.CHECKPOINT,
}


class XGBoostTimer:
    """Times the rounds of the thread that boosts first. An error ends the timing, not the training."""

    def __init__(
        self,
        open_file: Callable[[Callable[[], Mapping[str, Any]]], StepFile],
        *,
        note: Note,
        trial: ProgramTrial = _NO_TRIAL,
    ) -> None:
        self._open_file, self._note = open_file, note
        self._file: StepFile | None = None
        self._clock = StepClock()
        self._sampler = StackSampler(lambda: (self._clock.phase, self._clock.number))
        self._thread: int | None = None
        self._is_off = False
        self._rounds_open = 0
        self._facts: dict[str, Any] = {"framework": "xgboost", "framework_version": xgboost.__version__}
        self._applied = AppliedChanges(trial.changes, note=note)
        self._end = TrialEnd(trial.steps, self.close)
        process.bind(self)
        _attach(self)

    def facts(self) -> Mapping[str, Any]:
        """The members of ProgramFacts that are known by now, as JSON values."""
        return {**self._facts, **self._sampler.facts(), "changes": self._applied.facts()}

    def close(self) -> None:
        process.release(self)
        self._end.cancel()
        self._detach()
        if self._file is not None:
            self._file.close()
        self._applied.note_missing()

    def forget(self) -> None:
        self._is_off = True
        self._sampler.forget()
        _detach(self)
        if self._file is not None:
            self._file.forget()

    def is_ours(self) -> bool:
        return not self._is_off and self._thread in (None, threading.get_ident())

    @property
    def has_begun(self) -> bool:
        return self._thread is not None

    @contextmanager
    def phase(self, phase: StepPhase) -> Iterator[None]:
        self._clock.enter(phase)
        try:
            yield
        finally:
            self._clock.leave()

    @contextmanager
    def round(self, booster: Any, data: Any) -> Iterator[None]:
        """Time a round, which may consist of one for each booster of a cross-validation."""
        self._thread = threading.get_ident()
        if not self._rounds_open and self._end.is_due:
            self._end.end_program()
        if isinstance(booster, xgboost.Booster):
            self._guard(lambda: self._change(booster))
        self._rounds_open += 1
        try:
            with self.phase(_ROUND):
                yield
        finally:
            self._rounds_open -= 1
        if isinstance(booster, xgboost.Booster):
            self._guard(lambda: self._observe(booster, data))
        if not self._rounds_open:
            self._guard(self._end_step)

    def _end_step(self) -> None:
        self._clock.end_step(TRAIN)
        if not self._clock.close_step():
            return
        self._end.count_steps(1)
        self._sampler.start(threading.get_ident())
        if self._file is None:
            self._file = self._open_file(self.facts)
        self._file.add(self._clock.drain())

    def _change(self, booster: Any) -> None:
        threads = self._applied.wanted(ProgramChange.THREADS)
        if threads is None:
            return
        if threads.isdigit() and int(threads):
            booster.set_param({"nthread": int(threads)})
            self._applied.apply(ProgramChange.THREADS, threads)
        else:
            self._applied.refuse(ProgramChange.THREADS, f'"{threads}" is not a number of at least 1')

    def _observe(self, booster: Any, data: Any) -> None:
        if "device" in self._facts:
            return
        parameters = json.loads(booster.save_config())["learner"]["generic_param"]
        self._facts["device"] = str(parameters["device"]).partition(":")[0]
        self._facts["threads"] = int(parameters["nthread"]) or len(os.sched_getaffinity(0))
        self._facts["samples_per_step"] = data.num_row()

    def _guard(self, work: Callable[[], object]) -> None:
        if self._is_off:
            return
        try:
            work()
        except Exception as error:
            self._is_off = True
            self._detach()
            self._note(f"The rounds of the program are no longer timed; training continues: {error!r}.")

    def _detach(self) -> None:
        self._sampler.stop()
        _detach(self)


_timer: XGBoostTimer | None = None
_is_patched: list[bool] = []


def _attach(timer: XGBoostTimer) -> None:
    global _timer
    _timer = timer
    if _is_patched:
        return
    _is_patched.append(True)
    booster: Any = xgboost.Booster
    data: Any = xgboost.DMatrix
    for name, phase in _PHASES.items():
        setattr(booster, name, _timed(getattr(booster, name), phase))
    booster.update = _timed_round(booster.update)
    data.__init__ = _timed(data.__init__, StepPhase.DATA_WAIT)
    # The boosters of a cross-validation take a round in turn.
    packed = getattr(xgboost.training, "_PackedBooster", None)
    if packed is not None:
        packed.update = _timed_folds(packed.update)


def _detach(timer: XGBoostTimer) -> None:
    global _timer
    if _timer is timer:
        _timer = None


def _timed(original: Callable[..., Any], phase: StepPhase) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        timer = _timer
        if timer is None or not timer.is_ours() or not timer.has_begun:
            return original(*args, **kwargs)
        with timer.phase(phase):
            return original(*args, **kwargs)

    return call


def _timed_round(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def update(self: Any, dtrain: Any, iteration: int, fobj: Any = None) -> Any:
        timer = _timer
        if timer is None or not timer.is_ours():
            return original(self, dtrain, iteration, fobj)
        with timer.round(self, dtrain):
            return original(self, dtrain, iteration, fobj and _timed(fobj, _OTHER))

    return update


def _timed_folds(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        timer = _timer
        if timer is None or not timer.is_ours():
            return original(self, *args, **kwargs)
        with timer.round(self, None):
            return original(self, *args, **kwargs)

    return update
