"""Judges the profile of a job: one bottleneck first, further ones, advice, costs, and the change since earlier runs."""

from collections.abc import Callable, Mapping, Sequence

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.profiling.contract import InstanceFacts, JobProfile
from trainyard.insight.profiling.traces.trace_profile import TraceProfile
from trainyard.insight.profiling.verdict.advice import advise, idle_gpu_advice
from trainyard.insight.profiling.verdict.contract import (
    Bottleneck,
    BottleneckKind,
    EarlierRun,
    ProfileVerdict,
)
from trainyard.insight.profiling.verdict.costs import compute_costs
from trainyard.insight.profiling.verdict.detectors.compute import (
    find_compute,
    find_precision,
    find_small_batch,
    find_small_kernels,
)
from trainyard.insight.profiling.verdict.detectors.data_wait import find_data_wait
from trainyard.insight.profiling.verdict.detectors.hardware import find_idle_gpu, find_memory_growth, find_throttling
from trainyard.insight.profiling.verdict.detectors.program import find_copies, find_python, find_synchronization
from trainyard.insight.profiling.verdict.detectors.ranks import find_communication, find_slow_rank
from trainyard.insight.profiling.verdict.detectors.stalls import find_checkpoints, find_initialization
from trainyard.insight.profiling.verdict.instance_types import advise_on_instance_types
from trainyard.insight.profiling.verdict.regression import find_regression, summarize_run
from trainyard.insight.profiling.verdict.steady_state import (
    MIN_STEPS,
    SteadyState,
    find_steady_state,
    training_steps,
)
from trainyard.insight.profiling.verdict.wording import count, duration, percent, times

__all__ = ["judge_profile", "summarize_run"]

# Of equal shares, the first is named first.
_DETECTORS: Sequence[Callable[[SteadyState], Bottleneck | None]] = (
    *(find_throttling, find_data_wait, find_checkpoints, find_slow_rank, find_communication),
    *(find_synchronization, find_copies, find_python, find_small_batch, find_small_kernels, find_precision),
)
# A job that will fail has no use for quicker steps.
_FATAL = frozenset({BottleneckKind.MEMORY_GROWTH})
_MIN_EVALUATION_SHARE = 0.2


def judge_profile(
    profile: JobProfile,
    *,
    traces: Sequence[TraceProfile] = (),
    earlier: Sequence[EarlierRun] = (),
    instance_types: Mapping[str, InstanceFacts] | None = None,
) -> ProfileVerdict:
    """Return what the profile means. `instance_types` are those of the yard by name, for advice in money."""
    state = find_steady_state(profile, traces)
    if state is None:
        return _judge_without_steps(profile)
    found = _rank(state, [each for detect in _DETECTORS if (each := detect(state)) is not None])
    first, *others = found
    advice = [*advise(state, found), *advise_on_instance_types(state, first, instance_types or {})]
    return ProfileVerdict(
        summary=_summarize(first),
        bottleneck=first,
        others=tuple(others),
        advice=tuple(advice),
        costs=compute_costs(state),
        regression=find_regression(state, earlier),
        notes=(*profile.notes, *state.notes, *_remarks(state)),
    )


def _rank(state: SteadyState, found: Sequence[Bottleneck]) -> Sequence[Bottleneck]:
    """Return the bottlenecks in order, computing last."""
    rest = list(found)
    kinds = {each.kind for each in found}
    if BottleneckKind.SMALL_BATCH in kinds:
        # A larger batch has larger kernels too.
        rest = [each for each in rest if each.kind is not BottleneckKind.SMALL_KERNELS]
    idle, start = find_idle_gpu(state.profile), find_initialization(state.profile)
    rest += [idle] if idle is not None else []
    # The time before the steps and the shares of the steps are parts of different wholes.
    steps_share = 1 - (start.share if start is not None else 0.0)
    if start is not None:
        rest.append(start)
    rest.sort(key=lambda each: -(each.share if each is start else each.share * steps_share))
    growth = find_memory_growth(state)
    first = [growth] if growth is not None else []
    return [*first, *rest, find_compute(state, is_alone=not first and not rest)]


def _summarize(first: Bottleneck) -> str:
    if first.kind is BottleneckKind.COMPUTE:
        return f"{first.title} Only a change to the model, its precision or the hardware makes it quicker."
    if first.kind is BottleneckKind.MEMORY_GROWTH:
        return f"{first.title} {first.evidence[-1] if len(first.evidence) == 1 else first.evidence[1]}"
    if first.max_speedup is None:
        return first.title
    return f"{first.title} Without that, the job would be at most {times(first.max_speedup)} as fast."


def _judge_without_steps(profile: JobProfile) -> ProfileVerdict:
    steps, now = training_steps(profile), _now_us(profile)
    elapsed = duration(max(0.0, (now - profile.started_us) / 1e6))
    if steps:
        missing = f"Only {count(steps, 'training step')} so far; a verdict needs {MIN_STEPS} after the warm-up."
    elif profile.ended_us is None:
        missing = f"No training step has been timed in {elapsed}; the verdict follows after the first steps."
    else:
        missing = (
            f"No training step was timed in {elapsed}, so only the use of the hardware is known. Steps of PyTorch and "
            "XGBoost are timed automatically."
        )
    notes = (*profile.notes, *_describe_use(profile))
    idle = find_idle_gpu(profile)
    if idle is not None and idle.max_speedup is None:
        return ProfileVerdict(f"{idle.title} {missing}", idle, advice=(idle_gpu_advice(idle),), notes=notes)
    return ProfileVerdict(missing, notes=notes)


def _describe_use(profile: JobProfile) -> Sequence[str]:
    found = []
    for host, samples in profile.hardware.items():
        for metric, name in ((HardwareMetric.JOB_CPU_PERCENT, "cores"), (HardwareMetric.GPU_PERCENT, "GPUs")):
            values = [each[each == each] for each in samples.of(metric).values()]
            known = [float(each.mean()) for each in values if len(each)]
            if known:
                found.append(f"The job used {sum(known) / len(known):.0f} % of the {name} of {host}.")
    return found


def _remarks(state: SteadyState) -> Sequence[str]:
    found = []
    steps = state.lead.all_steps
    seconds = (steps.ends_us - steps.starts_us) / 1e6
    evaluating = sum(float(took) for took, mode in zip(seconds, steps.modes, strict=True) if mode is not Mode.TRAIN)
    share = evaluating / max(float(seconds.sum()), 1e-9)
    if share >= _MIN_EVALUATION_SHARE:
        found.append(f"Evaluations take {percent(share)} of the time of all steps; the verdict is about the training.")
    if state.is_starved:
        found.append("Other work on the machine takes cores that the job could use, so its times vary.")
    if not any(len(samples) for samples in state.profile.hardware.values()):
        found.append("There are no samples of the hardware, so the causes are told apart by the step times alone.")
    return found


def _now_us(profile: JobProfile) -> int:
    """Return until when the profile reaches."""
    if profile.ended_us is not None:
        return profile.ended_us
    ends = [int(rank.steps.ends_us[-1]) for rank in profile.ranks if len(rank.steps)]
    ends += [int(samples.times_us[-1]) for samples in profile.hardware.values() if len(samples)]
    return max(ends, default=profile.started_us)
