"""What the program itself does to its steps: Python code, calls that wait for the GPU, copies to it."""

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import HotLine, ProgramFacts, Synchronization
from trainyard.insight.profiling.traces.roles import TimeRole
from trainyard.insight.profiling.verdict.contract import Bottleneck, BottleneckKind
from trainyard.insight.profiling.verdict.detectors.bounds import speedup_without
from trainyard.insight.profiling.verdict.steady_state import SteadyState
from trainyard.insight.profiling.verdict.wording import (
    count,
    describe_cores,
    describe_gpu_use,
    duration,
    is_library_call,
    percent,
)

_MIN_SHARE = 0.1
# Without samples of the stack, what no phase claims may be anything, such as the loss.
_MIN_UNEXPLAINED_SHARE = 0.25
_MIN_SAMPLES = 10
_COMPUTING = (StepPhase.FORWARD, StepPhase.BACKWARD, StepPhase.OPTIMIZER)
# A tensor operation that takes long uses the cores of its threads; Python uses one.
_ONE_CORE = 1.35
# Of a computing phase, this much has to be seen on lines of the program.
_MIN_COMPUTING_LINES = 0.5
_SHOWN_LINES = 3
# Of the time in all calls that wait for the GPU, what one has to take to be worth a word.
_MIN_CALL_SHARE = 0.05
# Rarer calls are told by how many steps lie between them.
_OFTEN = 0.67


def find_python(state: SteadyState) -> Bottleneck | None:
    """Return the time in code of the program that is neither waiting nor computing with tensors."""
    if not state.has_phases:
        return None
    outside = max(0.0, state.share(StepPhase.OTHER) - _synchronizing_share(state))
    within, lines = _lines_within_computing(state)
    own = [line for line in state.program.hot_lines if line.phase is StepPhase.OTHER]
    has_samples = state.program.stack_samples >= _MIN_SAMPLES
    outside = outside if outside >= (_MIN_SHARE if has_samples and own else _MIN_UNEXPLAINED_SHARE) else 0.0
    share = state.idle_bound(outside + within)
    if share < _MIN_SHARE:
        return None
    evidence = []
    if outside:
        evidence.append(
            f"The program spends {duration(outside * state.step_s)} of a step of {duration(state.step_s)} outside "
            "the model, the optimizer and the data loader."
        )
    if within:
        evidence.append(f"Within the model and the optimizer, its own lines take {percent(within)} of the step.")
    if has_samples:
        evidence += _describe([*own, *lines], state.program.stack_samples)
    if state.cores_used is not None and state.cores and state.cores_used <= _ONE_CORE < state.cores:
        evidence += describe_cores(state.cores_used, state.cores)
    title = f"Python: the program's own code takes {percent(outside + within)} of the step."
    return Bottleneck(BottleneckKind.PYTHON, title, evidence, share, speedup_without(outside + within))


def find_synchronization(state: SteadyState) -> Bottleneck | None:
    """Return the time of calls that wait for the GPU. While it computes, they cost nothing; they cost what it idles."""
    waits = _synchronizing_share(state)
    share = state.idle_bound(waits)
    if not state.is_on_gpu or share < _MIN_SHARE:
        return None
    calls = main_synchronizations(state.program)
    names = ", ".join(f".{each.name}() ({_frequency(each.calls_per_step)})" for each in calls)
    lines = [line for line in state.program.hot_lines if (line.file, line.line) in _synchronizing_lines(state)]
    evidence = [
        f"In each step of {duration(state.step_s)}, lines that wait for the GPU take {duration(waits * state.step_s)}: "
        f"{names}.",
        *_describe(lines, state.program.stack_samples),
        *describe_gpu_use(state.gpu_use),
    ]
    title = (
        f"Synchronization: the program waits for the GPU during {percent(waits)} of the step, and then the GPU waits "
        "for the program."
    )
    return Bottleneck(BottleneckKind.SYNCHRONIZATION, title, evidence, share, speedup_without(waits))


def main_synchronizations(program: ProgramFacts) -> Sequence[Synchronization]:
    """Return the calls that the program waits in most, without those that hardly cost anything."""
    calls = sorted(
        (each for each in program.synchronizations if each.calls_per_step > 0), key=lambda each: -each.seconds_per_step
    )
    total = sum(each.seconds_per_step for each in calls)
    return [each for each in calls if each.seconds_per_step >= _MIN_CALL_SHARE * total][:_SHOWN_LINES]


def find_copies(state: SteadyState) -> Bottleneck | None:
    """Return the copies to the device. One from memory that is not pinned also waits for what was launched before."""
    if not state.is_on_gpu:
        return None
    phase = state.share(StepPhase.HOST_TO_DEVICE)
    copies = state.role_share(TimeRole.MEMCPY)
    share = state.idle_bound(phase) if copies is None else copies
    if share < _MIN_SHARE:
        return None
    evidence = [
        f"Copying a batch to the GPU takes {duration(state.phases_s[StepPhase.HOST_TO_DEVICE])} of a step of "
        f"{duration(state.step_s)}."
    ]
    if copies is not None:
        evidence.append(f"In the trace, the GPU copies without computing anything {percent(copies)} of the time.")
    if state.loader is not None:
        pinned = "pins" if state.loader.is_pinning else "does not pin"
        evidence.append(f"The data loader {pinned} its memory.")
    title = f"Copies to the GPU take {percent(share)} of the step."
    evidence += describe_gpu_use(state.gpu_use)
    return Bottleneck(BottleneckKind.HOST_TO_DEVICE, title, evidence, share, speedup_without(max(phase, share)))


def _synchronizing_share(state: SteadyState) -> float:
    """Return the share of the step in the calls that wait, and in what is computed on their lines only for them."""
    if not state.is_on_gpu or not state.step_s:
        return 0.0
    waits = sum(each.seconds_per_step for each in state.program.synchronizations) / state.step_s
    outside = [line for line in state.program.hot_lines if line.phase is StepPhase.OTHER]
    seen = sum(line.samples for line in outside)
    if seen < _MIN_SAMPLES:
        return min(1.0, waits)
    lines = _synchronizing_lines(state)
    on_lines = sum(line.samples for line in outside if (line.file, line.line) in lines) / seen
    return min(1.0, max(waits, on_lines * state.share(StepPhase.OTHER)))


def _synchronizing_lines(state: SteadyState) -> set[tuple[str, int]]:
    """Return the lines of the program on which a call that waits for the GPU was seen."""
    names = tuple(f".{each.name}(" for each in state.program.synchronizations if each.calls_per_step > 0)
    return {(line.file, line.line) for line in state.program.hot_lines if any(name in line.called for name in names)}


def _lines_within_computing(state: SteadyState) -> tuple[float, list[HotLine]]:
    """Return the share of the step on own lines in computing phases, if Python and no operation takes their time."""
    if state.cores_used is None or state.program.stack_samples < _MIN_SAMPLES:
        return 0.0, []
    if (state.cores or 1) > 1 and state.cores_used / state.ranks_on_host > _ONE_CORE:
        return 0.0, []
    samples: Counter[StepPhase] = Counter()
    own: Counter[StepPhase] = Counter()
    lines = []
    for line in state.program.hot_lines:
        samples[line.phase] += line.samples
        if line.phase in _COMPUTING and not is_library_call(line.called):
            own[line.phase] += line.samples
            lines.append(line)
    found = [phase for phase in own if own[phase] >= _MIN_COMPUTING_LINES * samples[phase] and own[phase] >= 3]
    share = sum(state.share(phase) * own[phase] / samples[phase] for phase in found)
    return share, [line for line in lines if line.phase in found]


def _describe(lines: list[HotLine], samples: int) -> list[str]:
    ranked = sorted(lines, key=lambda line: -line.samples)[:_SHOWN_LINES]
    return [
        f"{percent(line.samples / max(samples, 1))} of the stack samples are at {PurePath(line.file).name}:"
        f"{line.line}{_within(line.function)}: {line.called}"
        for line in ranked
        if line.samples >= 2
    ]


def _within(function: str) -> str:
    return "" if function == "<module>" else f", in {function}"


def _frequency(calls_per_step: float) -> str:
    """Say how often something is called, in words that suit rare calls too."""
    if calls_per_step >= _OFTEN:
        return f"{count(calls_per_step, 'call')} per step"
    return f"once in {count(round(1 / calls_per_step), 'step')}"
