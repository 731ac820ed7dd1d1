"""What the reports of agents mean for a training job. Pure: a job and frames in, the job after them out."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainyard.foundation.clock import from_micros
from trainyard.foundation.jobs import (
    Artifact,
    Attempt,
    InstanceState,
    MetricSummary,
    Outcome,
    Phase,
    RuleState,
    SecondaryStatus,
    TrainingJob,
)
from trainyard.foundation.rule_status import RuleStatus
from trainyard.foundation.rules import MAX_FINDINGS
from trainyard.foundation.transitions import advance, may_become
from trainyard.link.contract import Frame, FrameKind

MAX_NOTES = 100
MAX_RULES = 20  # of a job
MAX_TEXT = 4096  # characters of what is told of a rule
MAX_EVIDENT = 3  # findings of a rule that keep their evidence
MAX_SERIES, MAX_POINTS = 4, 256  # of the evidence of a finding
MAX_PHASES = 100  # of an instance; a waterfall has about a dozen

_SCALARS = ("step", "mode", "worker", "tensor", "message", "value", "threshold", "severity", "module")
_S = SecondaryStatus
_STEPS = (_S.DOWNLOADING, _S.TRAINING, _S.UPLOADING)


@dataclass(frozen=True, slots=True)
class Report:
    """What one instance has told since its cursor, and where the next read begins."""

    instance: str
    frames: Sequence[Frame]
    next_offset: int


def absorb(job: TrainingJob, reports: Sequence[Report]) -> TrainingJob:
    """The job after these reports, taken in the order of their times, with the cursors behind them."""
    told = [(frame.at_us, report.instance, frame.sequence, frame) for report in reports for frame in report.frames]
    for _, instance, _, frame in sorted(told, key=lambda entry: entry[:3]):
        job = _with_frame(job, instance, frame)
    for report in reports:
        attempt = live_attempt(job)
        moved = replace(attempt.instance(report.instance), cursor=report.next_offset)
        job = job.with_attempt(attempt.with_instance(moved))
    return job


def live_attempt(job: TrainingJob) -> Attempt:
    attempt = job.attempt
    assert attempt is not None, "only what has been placed can report"
    return attempt


def _with_frame(job: TrainingJob, instance: str, frame: Frame) -> TrainingJob:
    if frame.kind in _OF_INSTANCE:
        attempt = live_attempt(job)
        changed = _OF_INSTANCE[frame.kind](attempt.instance(instance), frame)
        job = job.with_attempt(attempt.with_instance(changed))
    if frame.kind in _OF_JOB:
        job = _OF_JOB[frame.kind](job, frame)
    return job


def _status(state: InstanceState, frame: Frame) -> InstanceState:
    return replace(state, status=SecondaryStatus(frame.payload["status"]))


def _phase(state: InstanceState, frame: Frame) -> InstanceState:
    payload = frame.payload
    phase = Phase(payload["name"], from_micros(payload["started_us"]), from_micros(payload["ended_us"]))
    return replace(state, phases=(*state.phases, phase)[-MAX_PHASES:])


def _metric(state: InstanceState, frame: Frame) -> InstanceState:
    payload = frame.payload
    at, has_lapsed = from_micros(payload["at_us"]), bool(payload.get("has_lapsed"))
    summary = MetricSummary(payload["value"], at, payload["count"], has_lapsed=has_lapsed)
    return replace(state, metrics={**state.metrics, payload["name"]: summary})


def _rule(state: InstanceState, frame: Frame) -> InstanceState:
    """A program can write what it likes to its agent, so that nothing here is taken for granted but the frame."""
    payload = frame.payload
    name, status = _text(payload.get("rule")), _text(payload.get("status"))
    if status not in set(RuleStatus) or (name not in state.rules and len(state.rules) >= MAX_RULES):
        return state
    known = state.rules[name].findings if name in state.rules else ()
    told = RuleState(
        name,
        RuleStatus(status),
        from_micros(frame.at_us),
        details=_text(payload.get("details")),
        judged=_count(payload.get("judged")),
        dropped=_count(payload.get("dropped")),
        findings=(*known, *_finding(payload.get("finding"), has_evidence=len(known) < MAX_EVIDENT))[:MAX_FINDINGS],
        stops=payload.get("stops") is True,
    )
    return replace(state, rules={**state.rules, name: told})


def _finding(given: object, *, has_evidence: bool) -> list[Mapping[str, object]]:
    if not isinstance(given, dict):
        return []
    finding: dict[str, object] = {name: _scalar(given[name]) for name in _SCALARS if name in given}
    evidence = given.get("evidence")
    if has_evidence and isinstance(evidence, list | tuple):
        finding["evidence"] = [_series(each) for each in evidence[:MAX_SERIES] if isinstance(each, dict)]
    return [finding]


def _series(given: Mapping[str, object]) -> dict[str, object]:
    points = {name: given.get(name) for name in ("steps", "values")}
    return {"label": _text(given.get("label"))} | {
        name: [_scalar(value) for value in values[-MAX_POINTS:]] if isinstance(values, list | tuple) else []
        for name, values in points.items()
    }


def _scalar(value: object) -> object:
    """A text or a number as every database takes it in JSON: a number that is none, or without end, as a word."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float) else _text(value)


def _text(given: object) -> str:
    return given[:MAX_TEXT] if isinstance(given, str) else ""


def _count(given: object) -> int:
    return max(0, given) if isinstance(given, int) else 0


def _exited(state: InstanceState, frame: Frame) -> InstanceState:
    payload = frame.payload
    return replace(
        state,
        exit_code=payload.get("code"),
        exit_signal=payload.get("signal"),
        is_oom=bool(payload.get("is_oom")),
    )


def _ended(state: InstanceState, frame: Frame) -> InstanceState:
    payload = frame.payload
    return replace(
        state,
        outcome=Outcome(payload["outcome"]),
        reason=payload.get("reason") or "",
        ended_at=from_micros(frame.at_us),
    )


def _move_on(job: TrainingJob, frame: Frame) -> TrainingJob:
    """Downloading is what the first instance begins; Training and Uploading is what all of them have come to."""
    instances = live_attempt(job).instances
    reached = [_progress(instance) for instance in instances]
    furthest = max(min(reached), min(1, max(reached)))
    to = _STEPS[furthest - 1] if furthest else None
    if to is None or not may_become(job, to):
        return job
    return advance(job, to, at=from_micros(frame.at_us))


def _progress(instance: InstanceState) -> int:
    if instance.has_ended:
        return len(_STEPS)
    return _STEPS.index(instance.status) + 1 if instance.status else 0


def _note(job: TrainingJob, frame: Frame) -> TrainingJob:
    return job.noted(frame.payload["text"]) if len(job.notes) < MAX_NOTES else job


def _artifact(job: TrainingJob, frame: Frame) -> TrainingJob:
    payload = frame.payload
    artifact = Artifact(payload["uri"], payload["size"])
    return replace(job, artifacts={**job.artifacts, payload["kind"]: artifact})


def _fail(job: TrainingJob, frame: Frame) -> TrainingJob:
    """The instance whose program failed first gives the job its reason and its card.

    One that only lost a connection did so because of another, though that may have taken longer to end.
    """
    if frame.payload["outcome"] != Outcome.FAILED:
        return job
    card = frame.payload.get("card") or {}
    if job.failure and not _comes_before(card, job.card):
        return job
    return replace(job, failure=frame.payload.get("reason") or "The program failed.", card=card)


def _comes_before(card: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether one program's end is rather the cause than that of another; only programs tell when they ended."""
    if not card.get("at_us") or not other.get("at_us"):
        return False
    return (card.get("is_consequence"), card["at_us"]) < (other.get("is_consequence"), other["at_us"])


_OF_INSTANCE: Mapping[FrameKind, Callable[[InstanceState, Frame], InstanceState]] = {
    FrameKind.STATUS: _status,
    FrameKind.PHASE: _phase,
    FrameKind.METRIC: _metric,
    FrameKind.RULE: _rule,
    FrameKind.EXITED: _exited,
    FrameKind.ENDED: _ended,
}
_OF_JOB: Mapping[FrameKind, Callable[[TrainingJob, Frame], TrainingJob]] = {
    FrameKind.STATUS: _move_on,
    FrameKind.NOTE: _note,
    FrameKind.ARTIFACT: _artifact,
    FrameKind.ENDED: _fail,
}
