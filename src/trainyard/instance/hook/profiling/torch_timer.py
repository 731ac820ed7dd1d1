"""Follows a torch training from step to step, and times the phases of each.

A training step ends when its optimizer has stepped; several optimizers that step one after the other end one step.
Without any optimizer, each backward ends a step. An evaluation step is one forward of a model in evaluation mode
without gradients. In the trial of a program, the timer also makes the changes, and ends the program.

What runs at each step costs the training, and more than it seems to: torch's work in between has filled the caches. So
these methods call little, and what can wait is done for many steps at once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import torch
from torch import nn

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.profiles.step_times import EVAL, TRAIN, StepRow
from trainyard.instance.hook import process
from trainyard.instance.hook.profiling import timed_calls
from trainyard.instance.hook.profiling.facts import ProgramFactsRecorder
from trainyard.instance.hook.profiling.loaders import WatchedLoaders
from trainyard.instance.hook.profiling.memory_holders import MemoryHolders
from trainyard.instance.hook.profiling.rank_waits import BackwardEnd, is_rank_of_several
from trainyard.instance.hook.profiling.stack_sampler import StackSampler
from trainyard.instance.hook.profiling.step_clock import LEAVE, MAX_MARKS, StepClock
from trainyard.instance.hook.profiling.step_file import StepFile
from trainyard.instance.hook.profiling.torch_changes import TorchChanges
from trainyard.instance.hook.profiling.trial import AppliedChanges, ProgramTrial, TrialEnd
from trainyard.instance.hook.profiling.windows_on_demand import ProfiledSteps
from trainyard.instance.hook.pytorch import patches
from trainyard.instance.hook.pytorch.model_finder import ModelFinder
from trainyard.instance.hook.pytorch.patches import Closure
from trainyard.instance.hook.pytorch.roots import Root

Note = Callable[[str], None]

_DATA_WAIT, _FORWARD, _BACKWARD = int(StepPhase.DATA_WAIT), int(StepPhase.FORWARD), int(StepPhase.BACKWARD)
_OPTIMIZER, _COMMUNICATION, _OTHER = int(StepPhase.OPTIMIZER), int(StepPhase.COMMUNICATION), int(StepPhase.OTHER)
_NO_TRIAL = ProgramTrial()
# Nothing has this identity.
_NO_THREAD = -1
# Steps are handed on when there are so many, or when so much time has passed.
_BATCH_STEPS = 64
BATCH_S = 0.25


class TorchTimer:
    """Times a training, from the first optimizer or data loader on. An error ends the timing, not the training.

    `make_windows` makes what takes profiles of some of the steps; without it, none are taken.
    """

    # Python looks up the attributes of an object that has more than 30 of them in a dictionary, which takes longer.
    __slots__ = (
        *("__weakref__", "_applied", "_backward_end", "_backwards", "_batch_ns", "_batch_step", "_changes", "_end"),
        *("_file", "_forwards", "_has_begun", "_has_forward", "_has_optimizer", "_has_waits", "_is_sampling"),
        *("_is_step_over", "_is_trial", "_is_waiting_for_ranks", "_loaders", "_marks", "_may_have_ranks", "_memory"),
        *("_models", "_next_look", "_note", "_open_file", "_optimizer_steps", "_recorder", "_sampler", "_stepped"),
        *("_thread", "_windows", "clock", "leave_phase"),
    )

    def __init__(
        self,
        open_file: Callable[[Callable[[], Mapping[str, Any]]], StepFile],
        *,
        note: Note,
        make_windows: "Callable[[TorchTimer], ProfiledSteps] | None" = None,
        trial: ProgramTrial = _NO_TRIAL,
    ) -> None:
        self._open_file, self._note = open_file, note
        self._file: StepFile | None = None
        self.clock = StepClock()
        # What is called at each step adds its marks to those of the clock, and calls nothing.
        self._marks = self.clock.marks
        self.leave_phase = self.clock.leave
        self._recorder = ProgramFactsRecorder()
        self._memory = MemoryHolders()
        self._sampler = StackSampler(lambda: (self.clock.phase, self.clock.number))
        # The training thread, once it is known; _NO_THREAD when nothing is timed any more.
        self._thread: int | None = None
        self._has_begun = False
        # Whether a forward or a batch is the first of another step.
        self._is_step_over = True
        self._backwards = 0
        self._has_optimizer = self._has_forward = self._has_waits = self._is_sampling = False
        self._forwards = self._optimizer_steps = 0
        # In which step each optimizer has stepped last, by its id.
        self._stepped: dict[int, int] = {}
        # The step of an optimizer, counted from 1, from which on it is observed again.
        self._next_look = 0
        # The step before which closed steps are handed on, and when they are.
        self._batch_step = self._batch_ns = 0
        self._backward_end = BackwardEnd(self._begin_rank_wait)
        self._is_waiting_for_ranks = False
        # Until the first steps are handed on, a program may be about to join other ranks.
        self._may_have_ranks = True
        self._applied = AppliedChanges(trial.changes, note=note)
        self._changes = TorchChanges(self._applied)
        self._end = TrialEnd(trial.steps, self.close)
        self._is_trial = trial.steps is not None or self._applied.is_wanted
        self._windows = make_windows(self) if make_windows is not None else None
        self._models = ModelFinder(self)
        self._loaders = WatchedLoaders(self)
        process.bind(self)
        patches.attach(self)
        timed_calls.time_calls(self)
        self._guard(self._changes.change_process)

    def facts(self) -> Mapping[str, Any]:
        """The members of ProgramFacts that are known by now, as JSON values."""
        return {
            **self._recorder.facts(loaded_samples=self._loaders.samples),
            **self._sampler.facts(),
            "loaders": self._loaders.facts(),
            "memory_holders": self._memory.facts(),
            "changes": self._applied.facts(),
        }

    def close(self) -> None:
        process.release(self)
        self._end.cancel()
        # A thread that started now would only have to end.
        self._sampler.stop()
        if self._has_begun and not self._is_off:
            if self._is_step_over:
                self._begin_step()
            self._guard(lambda: self._record(self.clock.drain()))
        self._detach()
        if self._file is not None:
            self._file.close()
        self._applied.note_missing()

    def forget(self) -> None:
        """Stop timing in a forked child, except that workers of data loaders still record what batches cost."""
        self._thread = _NO_THREAD
        self._sampler.forget()
        if self._windows is not None:
            self._windows.forget()
        patches.detach(self)
        timed_calls.stop_timing(self)
        self._loaders.forget()
        if self._file is not None:
            self._file.forget()

    def is_ours(self) -> bool:
        thread = self._thread
        return thread is None or thread == get_ident()

    def enter_phase(self, phase: int) -> int:
        thread = self._thread
        if thread != get_ident() and thread is not None:
            return 0
        return self.clock.enter(phase)

    def begin_wait(self) -> int:
        thread = self._thread
        if thread != get_ident() and thread is not None:
            return 0
        if self._is_step_over:
            self._begin_step()
        now = perf_counter_ns()
        marks = self._marks
        marks += _DATA_WAIT, now
        return now

    def count_wait(self, name: str, seconds: float) -> None:
        self._has_waits = True
        self._recorder.count_wait(name, seconds)

    def begin_loading(self, loader: Any) -> bool:
        models = self._models.models
        is_training = torch.is_grad_enabled() and (not models or any(model.training for model in models))
        if is_training:
            self._guard(lambda: self._changes.change_loader(loader))
        return is_training

    def enter(self, root: Root, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Time a forward, except one that checkpointing repeats during backward."""
        thread = self._thread
        if (thread != get_ident() and thread is not None) or patches.backward_depth:
            return
        if self._is_step_over:
            self._begin_step()
        self._has_forward = True
        self._forwards += 1
        # Samples that data loaders have counted are better known.
        if not self._loaders.samples or self._forwards >= self._recorder.next_look:
            self._observe_forward(root, args, kwargs)
        marks = self._marks
        marks += _FORWARD, perf_counter_ns()

    def leave(self, root: Root, _output: Any) -> None:
        thread = self._thread
        if (thread != get_ident() and thread is not None) or patches.backward_depth:
            return
        if torch.is_grad_enabled() or (model := root.model) is None or model.training:
            marks = self._marks
            marks += LEAVE, perf_counter_ns()
            if len(marks) > MAX_MARKS:
                self.clock.count()
        else:
            self.clock.end_step(EVAL)
            self._is_step_over = True

    def observe_module(self, module: nn.Module) -> None:
        self._models.observe_module(module)

    def observe_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._guard(lambda: self._observe_optimizer(optimizer))

    def before_step(self, optimizer: torch.optim.Optimizer, closure: Closure | None) -> Closure | None:
        thread = get_ident()
        if thread != self._thread:
            if self._thread is not None:
                return closure
            # The thread that steps an optimizer is the training thread.
            self._thread = thread
        self._has_optimizer = True
        key = id(optimizer)
        clock = self.clock
        if self._stepped.get(key) == clock.number:
            # Nothing that is timed lies between two steps of this program.
            self._begin_step()
        self._optimizer_steps += 1
        if self._optimizer_steps >= self._next_look or key not in self._models.searched:
            self._guard(partial(self._observe_step, optimizer))
        clock.enter(_OPTIMIZER)
        return closure and self._timed_closure(closure)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if get_ident() != self._thread:
            return
        clock = self.clock
        self._stepped[id(optimizer)] = clock.number
        # The time of the optimizer ends with the step.
        clock.end_step(TRAIN)
        self._backwards = 0
        self._is_step_over = True
        if self._has_forward:
            self._has_forward = False
        elif not any(root.calls for root in self._models.roots):
            self._guard(lambda: self._retry_attaching(optimizer))

    def skip_step(self) -> None:
        """The gradients were not finite, so that the optimizer did not step; the iteration took its time anyway."""
        if self._backwards and self.is_ours():
            self._end_training_step()

    def observe_loss(self, *_: object) -> None:
        """Losses tell nothing about time."""

    def before_backward(self, tensors: Any) -> None:
        thread = self._thread
        if thread != get_ident() and thread is not None:
            return
        # A backward can only be of the next step, unless one has ended without an optimizer.
        if self._is_step_over and self.clock.ended_mode:
            self._begin_step()
        marks = self._marks
        marks += _BACKWARD, perf_counter_ns()
        if self._may_have_ranks and is_rank_of_several():
            for loss in patches.losses_of(tensors):
                self._guard(partial(self._backward_end.watch, loss))

    def after_backward(self) -> None:
        thread = self._thread
        if thread != get_ident() and thread is not None:
            return
        if self._is_waiting_for_ranks:
            self._end_rank_wait()
        marks = self._marks
        marks += LEAVE, perf_counter_ns()
        self._backwards += 1
        if not self._has_optimizer:
            self._guard(self._find_without_optimizer)
        if not self._models.references:
            self._is_step_over = True

    def abandon_backward(self) -> None:
        if self.is_ours():
            if self._is_waiting_for_ranks:
                self._end_rank_wait()
            self.clock.leave()

    @property
    def _is_off(self) -> bool:
        return self._thread == _NO_THREAD

    def _find_without_optimizer(self) -> None:
        if not self._models.references:
            self._models.find_without_optimizer()

    def _begin_rank_wait(self) -> None:
        # On a GPU, this is a thread of autograd; the training thread waits for it.
        self._is_waiting_for_ranks = True
        self.clock.enter(_COMMUNICATION)

    def _end_rank_wait(self) -> None:
        self._is_waiting_for_ranks = False
        self.clock.leave()
        self._backward_end.forget()

    def _timed_closure(self, closure: Closure) -> Closure:
        """Return a closure that does not count as the optimizer's time, since a whole training step may be in it."""

        def compute() -> Any:
            self.clock.enter(_OTHER)
            try:
                return closure()
            finally:
                self.clock.leave()

        return compute

    def _observe_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._models.observe_optimizer(optimizer)
        self._change_models()

    def _observe_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._models.observe_step(optimizer)
        self._change_models()
        self._recorder.observe_optimizer(optimizer)
        if self._optimizer_steps == self._memory.next_look:
            self._memory.observe_step(self._models.models, self._models.optimizers)
        self._next_look = 0 if self._is_trial else self._memory.next_look

    def _observe_forward(self, root: Root, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            model = root.outermost
            if model is not None and model.training:
                self._recorder.observe_forward(self._forwards, model, args=args, kwargs=kwargs)
        except Exception as error:
            self._fail(error)

    def _retry_attaching(self, optimizer: torch.optim.Optimizer) -> None:
        self._models.retry_attaching(optimizer)
        self._change_models()

    def _change_models(self) -> None:
        if self._applied.is_wanted:
            self._changes.change_models(self._models.roots)

    def _begin_step(self) -> None:
        try:
            clock = self.clock
            if not self._has_begun:
                # The program may have set its threads meanwhile.
                self._changes.change_process()
                self._has_begun = True
            if self._backwards and not clock.ended_mode:
                self._end_training_step()
            mode = clock.close_step()
            if self._has_waits and mode:
                self._has_waits = False
                self._recorder.end_waits(is_training=mode == TRAIN)
            self._is_step_over = self._backwards > 0 and not self._models.references
            if clock.number >= self._batch_step or clock.ended_ns >= self._batch_ns:
                self._hand_on_steps()
        except Exception as error:
            self._fail(error)

    def _end_training_step(self) -> None:
        self._backwards = 0
        self.clock.end_step(TRAIN)
        self._is_step_over = True

    def _hand_on_steps(self) -> None:
        """Hand on the steps that were closed. Called between two steps."""
        steps = self.clock.drain()
        self._record(steps)
        number = self.clock.number
        # No optimizer has stepped in the next step. Programs may make new ones for each.
        self._stepped.clear()
        self._batch_ns = perf_counter_ns() + int(BATCH_S * 1e9)
        self._batch_step = number + (_BATCH_STEPS if steps and not self._is_trial else 1)
        if self._windows is not None:
            self._batch_step = min(self._batch_step, self._windows.begin_step(number, steps[-1] if steps else None))
        if self._end.is_due:
            self._end.end_program()

    def _record(self, steps: Sequence[StepRow]) -> None:
        if not steps:
            return
        self._may_have_ranks = is_rank_of_several()
        trained = sum(1 for step in steps if step.mode == TRAIN)
        self._end.count_steps(trained)
        self._recorder.count_steps(trained)
        if trained and not self._is_sampling:
            self._is_sampling = True
            self._thread = self._thread or get_ident()
            # Warm workers fork before the first step, and could not if there were another thread.
            self._sampler.start(self._thread)
        if self._file is None:
            self._file = self._open_file(self.facts)
        self._file.add(steps)

    def _guard(self, work: Callable[[], object]) -> None:
        """Do what is not done at each step."""
        if self._is_off:
            return
        try:
            work()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._is_off:
            return
        self._thread = _NO_THREAD
        self._detach()
        self._note(f"The steps of the program are no longer timed; training continues: {error!r}.")

    def _detach(self) -> None:
        if self._windows is not None:
            self._windows.close()
        self._sampler.stop()
        patches.detach(self)
        timed_calls.stop_timing(self)
        self._loaders.detach()
        self._models.detach()
