"""What the reports of agents mean for a job. Pure: a job and frames in, a job out."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainyard.foundation.clock import from_micros
from trainyard.foundation.jobs.attempts import (
    Attempt,
    InstancePhase,
    InstanceState,
    MetricSummary,
    OutcomeKind,
    RuleState,
)
from trainyard.foundation.jobs.contents import digest_of_packages
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.foundation.jobs.status import RuleStatus, SecondaryStatus
from trainyard.foundation.jobs.training.rules import MAX_FINDINGS
from trainyard.foundation.jobs.transitions import J, advance, may_become
from trainyard.link.contract import Frame, FrameKind

MAX_NOTES = 100
MAX_RULES = 20  # of a job
MAX_TEXT = 4096  # characters
MAX_FINDINGS_WITH_EVIDENCE = 3  # per rule
MAX_SERIES, MAX_POINTS = 4, 256  # of the evidence of a finding
# As on AWS. An agent knows no others.
HOST_METRICS = (
    "CPUUtilization",
    "MemoryUtilization",
    "DiskUtilization",
    "GPUUtilization",
    "GPUMemoryUtilization",
)
MAX_PACKAGES, MAX_PACKAGE_NAME = 5000, 200
MAX_PHASES = 100  # of an instance; about a dozen is normal

_SCALARS = ("step", "mode", "worker", "tensor", "message", "value", "threshold", "severity", "module")
_S = SecondaryStatus
_STEPS = {_S.DOWNLOADING: 1, _S.TRAINING: 2, _S.PROCESSING: 2, _S.UPLOADING: 3}
_ENDED = 3


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """What one instance reported since its cursor, and where the next read begins."""

    instance: str
    frames: Sequence[Frame]
    next_offset: int


def apply_reports(
    job: J, reports: Sequence[InstanceReport], *, more: Mapping[FrameKind, Callable[[J, Frame], J]] | None = None
) -> J:
    """Apply reports to a job in the order of their times, and move the cursors behind them.

    `more` says what those frames mean that only jobs of this kind have.
    """
    entries = [(frame.at_us, report.instance, frame.sequence, frame) for report in reports for frame in report.frames]
    for _, instance, _, frame in sorted(entries, key=lambda entry: entry[:3]):
        job = _with_frame(job, instance, frame)
        if more and frame.kind in more:
            job = more[frame.kind](job, frame)
    for report in reports:
        attempt = live_attempt(job)
        moved = replace(attempt.instance(report.instance), cursor=report.next_offset)
        job = job.with_attempt(attempt.with_instance(moved))
    return job


def host_metrics(report: InstanceReport) -> Sequence[str]:
    """Return the names of CloudWatch metrics of its host that an instance reported."""
    given = [frame.payload.get("metrics") for frame in report.frames if frame.kind is FrameKind.HARDWARE]
    return [name for name in HOST_METRICS if any(isinstance(names, list) and name in names for names in given)]


def installed_packages(report: InstanceReport) -> Sequence[str]:
    """Return the packages that an instance reported as installed; none if it has not reported any.

    Code of the job may have chosen names of packages, so only their number and length are trusted.
    """
    given = [frame.payload.get("packages") for frame in report.frames if frame.kind is FrameKind.ENVIRONMENT]
    return _clean_packages(given[-1]) if given else ()


def _clean_packages(given: object) -> Sequence[str]:
    named = given[:MAX_PACKAGES] if isinstance(given, list) else []
    return [name[:MAX_PACKAGE_NAME] for name in named if isinstance(name, str)]


def live_attempt(job: InstanceJob) -> Attempt:
    attempt = job.attempt
    assert attempt is not None, "only a placed job has a live attempt"
    return attempt


def _with_frame(job: J, instance: str, frame: Frame) -> J:
    if frame.kind in _INSTANCE_FRAMES:
        attempt = live_attempt(job)
        changed = _INSTANCE_FRAMES[frame.kind](attempt.instance(instance), frame)
        job = job.with_attempt(attempt.with_instance(changed))
    match frame.kind:
        case FrameKind.STATUS:
            return _advance_status(job, frame)
        case FrameKind.NOTE:
            return _apply_note(job, frame)
        case FrameKind.ENDED:
            return _record_failure(job, frame)
    return job


def _apply_status(state: InstanceState, frame: Frame) -> InstanceState:
    return replace(state, status=SecondaryStatus(frame.payload["status"]))


def _apply_phase(state: InstanceState, frame: Frame) -> InstanceState:
    payload = frame.payload
    phase = InstancePhase(payload["name"], from_micros(payload["started_us"]), from_micros(payload["ended_us"]))
    return replace(state, phases=(*state.phases, phase)[-MAX_PHASES:])


def _apply_download(state: InstanceState, frame: Frame) -> InstanceState:
    done, total = (_clean_count(frame.payload.get(name)) for name in ("done_bytes", "total_bytes"))
    return replace(state, downloaded_bytes=min(done, total), download_bytes=total)


def _apply_metric(state: InstanceState, frame: Frame) -> InstanceState:
    payload = frame.payload
    at, has_lapsed = from_micros(payload["at_us"]), bool(payload.get("has_lapsed"))
    # Agents of earlier versions report no range.
    summary = MetricSummary(
        payload["value"],
        at,
        payload["count"],
        has_lapsed=has_lapsed,
        lowest=payload.get("lowest"),
        highest=payload.get("highest"),
    )
    return replace(state, metrics={**state.metrics, payload["name"]: summary})


def _apply_rule(state: InstanceState, frame: Frame) -> InstanceState:
    """Apply the state of a rule. A program can send its agent anything, so only the frame itself is trusted."""
    payload = frame.payload
    name, status = _clean_text(payload.get("rule")), _clean_text(payload.get("status"))
    if status not in set(RuleStatus) or (name not in state.rules and len(state.rules) >= MAX_RULES):
        return state
    before = state.rules.get(name)
    known = before.findings if before else ()
    details = _clean_text(payload.get("details"))
    # A report may only say that more steps were evaluated.
    is_same = before is not None and (before.status, before.details) == (status, details)
    reported = RuleState(
        name,
        RuleStatus(status),
        before.at if before is not None and is_same and not payload.get("finding") else from_micros(frame.at_us),
        details=details,
        judged=_clean_count(payload.get("judged")),
        dropped=_clean_count(payload.get("dropped")),
        findings=(
            *known,
            *_clean_finding(payload.get("finding"), has_evidence=len(known) < MAX_FINDINGS_WITH_EVIDENCE),
        )[:MAX_FINDINGS],
        stops=payload.get("stops") is True,
    )
    return replace(state, rules={**state.rules, name: reported})


def _clean_finding(given: object, *, has_evidence: bool) -> list[Mapping[str, object]]:
    if not isinstance(given, dict):
        return []
    finding: dict[str, object] = {name: _clean_scalar(given[name]) for name in _SCALARS if name in given}
    evidence = given.get("evidence")
    if has_evidence and isinstance(evidence, list | tuple):
        finding["evidence"] = [_clean_series(each) for each in evidence[:MAX_SERIES] if isinstance(each, dict)]
    return [finding]


def _clean_series(given: Mapping[str, object]) -> dict[str, object]:
    points = {name: given.get(name) for name in ("steps", "values")}
    return {"label": _clean_text(given.get("label"))} | {
        name: [_clean_scalar(value) for value in values[-MAX_POINTS:]] if isinstance(values, list | tuple) else []
        for name, values in points.items()
    }


def _clean_scalar(value: object) -> object:
    """Return a value that every database accepts in JSON: NaN and infinity become words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float) else _clean_text(value)


def _clean_text(given: object) -> str:
    return given[:MAX_TEXT] if isinstance(given, str) else ""


def _clean_count(given: object) -> int:
    return max(0, given) if isinstance(given, int) else 0


def _apply_environment(state: InstanceState, frame: Frame) -> InstanceState:
    packages = _clean_packages(frame.payload.get("packages"))
    return replace(state, environment=digest_of_packages(packages)) if packages else state


def _apply_exit(state: InstanceState, frame: Frame) -> InstanceState:
    payload = frame.payload
    return replace(
        state,
        exit_code=payload.get("code"),
        exit_signal=payload.get("signal"),
        is_oom=bool(payload.get("is_oom")),
    )


def _apply_end(state: InstanceState, frame: Frame) -> InstanceState:
    payload = frame.payload
    return replace(
        state,
        outcome=OutcomeKind(payload["outcome"]),
        reason=payload.get("reason") or "",
        ended_at=from_micros(frame.at_us),
        message=payload.get("message") or "",
    )


def _advance_status(job: J, frame: Frame) -> J:
    """Advance the job: Downloading when the first instance does, running and Uploading when all have."""
    instances = live_attempt(job).instances
    reached = [_progress(instance) for instance in instances]
    furthest = max(min(reached), min(1, max(reached)))
    to = (None, _S.DOWNLOADING, job.lifecycle.running, _S.UPLOADING)[furthest]
    if to is None or not may_become(job, to):
        return job
    return advance(job, to, at=from_micros(frame.at_us))


def _progress(instance: InstanceState) -> int:
    if instance.has_ended:
        return _ENDED
    return _STEPS[instance.status] if instance.status else 0


def _apply_note(job: J, frame: Frame) -> J:
    return job.with_notes(frame.payload["text"]) if len(job.notes) < MAX_NOTES else job


def _record_failure(job: J, frame: Frame) -> J:
    """Record the failure of the instance whose program failed first.

    An instance that only lost a connection failed because of another one, even if that one took longer to end.
    """
    if frame.payload["outcome"] != OutcomeKind.FAILED:
        return job
    card = frame.payload.get("card") or {}
    if job.failure and not _is_earlier_cause(card, job.card):
        return job
    return replace(job, failure=frame.payload.get("reason") or "The program failed.", card=card)


def _is_earlier_cause(card: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether one failure is more likely the cause than another. Only failures of programs have a time."""
    if not card.get("at_us") or not other.get("at_us"):
        return False
    return (card.get("is_consequence"), card["at_us"]) < (other.get("is_consequence"), other["at_us"])


_INSTANCE_FRAMES: Mapping[FrameKind, Callable[[InstanceState, Frame], InstanceState]] = {
    FrameKind.STATUS: _apply_status,
    FrameKind.DOWNLOAD: _apply_download,
    FrameKind.PHASE: _apply_phase,
    FrameKind.METRIC: _apply_metric,
    FrameKind.RULE: _apply_rule,
    FrameKind.ENVIRONMENT: _apply_environment,
    FrameKind.EXITED: _apply_exit,
    FrameKind.ENDED: _apply_end,
}
