"""What several ranks lose to each other: to moving gradients, and to one rank that is slower than the others."""

from collections.abc import Sequence

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.insight.profiling.contract import Numbers
from trainyard.insight.profiling.traces.roles import TimeRole
from trainyard.insight.profiling.verdict.contract import Bottleneck, BottleneckKind
from trainyard.insight.profiling.verdict.detectors.bounds import speedup_without
from trainyard.insight.profiling.verdict.steady_state import SteadyRank, SteadyState
from trainyard.insight.profiling.verdict.wording import duration, percent, size

_MIN_SHARE = 0.1
# Ranks that wait for each other have steps of the same length.
_SAME_LENGTH = 0.1
# Collectives wait for the last rank; those of DistributedDataParallel are part of the backward.
_WAITING = (StepPhase.COMMUNICATION, StepPhase.BACKWARD)
_OWN = [phase for phase in StepPhase if phase not in _WAITING]
# The slow rank has to be the slowest in most parts of the time, so that no single event makes it one.
_PARTS, _MIN_SLOWEST_PARTS = 6, 5
# Computing gradients takes about twice as long as the forward.
_BACKWARD_PER_FORWARD, _MAX_BACKWARD_PER_FORWARD = 2.5, 4.0


def find_slow_rank(state: SteadyState) -> Bottleneck | None:
    """Return the rank for which the others wait, if their steps are as long as its own."""
    ranks = state.ranks
    if len(ranks) < 2 or _spread([rank.step_s for rank in ranks]) > _SAME_LENGTH:
        return None
    own = [_own_s(rank) for rank in ranks]
    slow = int(np.argmax(own))
    others = [seconds for number, seconds in enumerate(own) if number != slow]
    excess_s = own[slow] - float(np.median(others))
    share = excess_s / state.step_s
    if share < _MIN_SHARE or not _is_usually_slowest(ranks, slow):
        return None
    rank = ranks[slow]
    usual = np.median([each.phases_s for number, each in enumerate(ranks) if number != slow], axis=0)
    phase = max(_OWN, key=lambda each: rank.phases_s[each] - usual[each])
    evidence = [
        f"{rank.name} on {rank.profile.host} needs {duration(own[slow])} of each step for its own work, the others "
        f"{duration(float(np.median(others)))}; a step of any rank takes {duration(state.step_s)}.",
        f"It spends {duration(float(rank.phases_s[phase]))} on {phase_name(phase)}, the others "
        f"{duration(float(usual[phase]))}.",
    ]
    title = f"Slow rank: the others wait for {rank.name} on {rank.profile.host} during {percent(share)} of the step."
    # Ranks that have waited for long are also slower to go on.
    bound = speedup_without(share + rank.slowed_share(phase))
    return Bottleneck(BottleneckKind.SLOW_RANK, title, evidence, share, bound)


def find_communication(state: SteadyState) -> Bottleneck | None:
    """Return the time of collectives that no rank spends on waiting for a slower one."""
    ranks = state.ranks
    if len(ranks) < 2 and not state.share(StepPhase.COMMUNICATION):
        return None
    traced = [trace.overlap.exposed_share for trace in state.traces if len(trace.collective_calls)]
    timed = min(rank.share(StepPhase.COMMUNICATION) for rank in ranks)
    hidden = min(_communicating_in_backward(rank) for rank in ranks) if len(ranks) > 1 and not traced else 0.0
    role = state.role_share(TimeRole.COMMUNICATION) or 0.0
    share = max(timed + hidden, role, *traced, 0.0)
    if share < _MIN_SHARE:
        return None
    evidence = []
    if timed:
        evidence.append(f"Collectives take {duration(timed * state.step_s)} of a step of {duration(state.step_s)}.")
    if hidden:
        evidence.append(
            f"Backward takes {duration(state.phases_s[StepPhase.BACKWARD])} and forward only "
            f"{duration(state.phases_s[StepPhase.FORWARD])}; the rest of the backward exchanges gradients."
        )
    if traced:
        exposed = percent(max(traced))
        evidence.append(f"In the traces, the ranks communicate without computing anything {exposed} of the time.")
    sent = state.mean(HardwareMetric.NETWORK_SENT_BYTES_S)
    if sent:
        evidence.append(f"The host sends {size(sent)} per second.")
    title = f"Communication: the ranks exchange data during {percent(share)} of the step."
    return Bottleneck(BottleneckKind.COMMUNICATION, title, evidence, share, speedup_without(share))


def phase_name(phase: StepPhase) -> str:
    return {
        StepPhase.DATA_WAIT: "waiting for data",
        StepPhase.HOST_TO_DEVICE: "copies to the device",
        StepPhase.OTHER: "code outside the model",
        StepPhase.CHECKPOINT: "checkpoints",
        StepPhase.COMMUNICATION: "communication",
    }.get(phase, f"the {phase.name.lower()}")


def _own_s(rank: SteadyRank) -> float:
    return float(rank.phases_s[_OWN].sum())


def _communicating_in_backward(rank: SteadyRank) -> float:
    forward, backward = rank.phases_s[StepPhase.FORWARD], rank.phases_s[StepPhase.BACKWARD]
    if not forward or backward < _MAX_BACKWARD_PER_FORWARD * forward:
        return 0.0
    return float(backward - _BACKWARD_PER_FORWARD * forward) / rank.step_s


def _is_usually_slowest(ranks: Sequence[SteadyRank], slow: int) -> bool:
    first = max(rank.start_us for rank in ranks)
    last = min(rank.end_us for rank in ranks)
    if last <= first:
        return False
    edges = np.linspace(first, last, _PARTS + 1)
    parts = np.array([_own_in_parts(rank, edges) for rank in ranks])
    known = np.isfinite(parts).all(axis=0)
    slowest = np.argmax(np.where(known, parts, 0), axis=0)[known]
    return len(slowest) > 0 and int((slowest == slow).sum()) >= len(slowest) * _MIN_SLOWEST_PARTS / _PARTS


def _own_in_parts(rank: SteadyRank, edges: Numbers) -> Numbers:
    middles = (rank.all_steps.starts_us[rank.rows] + rank.all_steps.ends_us[rank.rows]) / 2
    part = np.searchsorted(edges, middles, side="right") - 1
    own = rank.phase_rows_s(*_OWN)
    values = [float(own[part == number].mean()) if (part == number).any() else np.nan for number in range(_PARTS)]
    return np.array(values)


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / max(values)
