"""The verdict of a drill: whether a script resumes, and the evidence. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from trainyard._sdk.resume_drill.evidence import ResumeEvidence
from trainyard._sdk.resume_drill.models import ModelComparison
from trainyard._sdk.resume_drill.runs import DrillRun


class ResumeOutcome(StrEnum):
    """Whether a script resumes. The last two mean that the drill could not tell."""

    EXACT = "resumes exactly"
    WITHIN = "resumes within the tolerance"
    DIFFERS = "resumes, but its result differs"
    STARTED_OVER = "does not resume: it started over"
    NO_CONFIG = "cannot resume: it has no CheckpointConfig"
    NO_CHECKPOINT = "cannot resume: it had saved no checkpoint"
    FAILED = "does not resume: it failed"
    TOO_SHORT = "could not be interrupted"
    UNCLEAR = "could not be judged"


GOOD = frozenset({ResumeOutcome.EXACT, ResumeOutcome.WITHIN})
UNDECIDED = frozenset({ResumeOutcome.TOO_SHORT, ResumeOutcome.UNCLEAR})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a drill, a sentence that explains it, and the evidence."""

    outcome: ResumeOutcome
    sentence: str
    evidence: tuple[str, ...] = ()


def without_checkpoints(job_name: str) -> Verdict:
    """Return the verdict for a job without a CheckpointConfig."""
    return Verdict(
        ResumeOutcome.NO_CONFIG,
        f'Training job "{job_name}" has no CheckpointConfig, so an interruption loses all its work. Set '
        "`checkpoint_s3_uri`, save checkpoints to /opt/ml/checkpoints, and load them from there at the start.",
    )


def not_comparable(whole: DrillRun) -> Verdict:
    """Return the verdict for a job whose uninterrupted run did not complete."""
    return Verdict(
        ResumeOutcome.UNCLEAR,
        f'Even without an interruption the job is {whole.status}, as "{whole.name}": {_reason(whole)}',
    )


def too_short(run: DrillRun) -> Verdict:
    """Return the verdict for a run that ended before it could be interrupted."""
    seconds = run.trained.total_seconds()
    return Verdict(ResumeOutcome.TOO_SHORT, f"It ended after {seconds:.1f} s; drill a job that takes longer.")


def decide(
    whole: DrillRun, again: DrillRun, *, evidence: ResumeEvidence, models: ModelComparison | None, tolerance: float
) -> Verdict:
    """Return the verdict on two runs. `models` is None if no model was saved; then the metrics decide."""
    if not again.interruptions:
        return too_short(again)
    if again.status != "Completed":
        return Verdict(ResumeOutcome.FAILED, f"After the interruption it is {again.status}: {_reason(again)}")
    if not again.checkpoint_files:
        return Verdict(
            ResumeOutcome.NO_CHECKPOINT,
            "There was no file under its checkpoint path at the interruption.",
            (evidence.sentence,),
        )
    sentences = (evidence.sentence, *_metric_lines(whole, again))
    if evidence.has_started_over is None:
        return Verdict(ResumeOutcome.UNCLEAR, "Nothing shows whether it resumed or started over.", sentences)
    if evidence.has_started_over:
        return Verdict(ResumeOutcome.STARTED_OVER, "Its checkpoints were there, but it did not load them.", sentences)
    return _compare_results(whole, again, models=models, tolerance=tolerance, evidence=sentences)


def _compare_results(
    whole: DrillRun, again: DrillRun, *, models: ModelComparison | None, tolerance: float, evidence: tuple[str, ...]
) -> Verdict:
    if models is None:
        return _compare_metrics(whole, again, tolerance=tolerance, evidence=evidence)
    if models.is_equal:
        return Verdict(ResumeOutcome.EXACT, f"The models are the same, in all of {_files(models.files)}.", evidence)
    sentence = f"The models differ{_difference(models)}."
    is_near = models.is_within(tolerance)
    return Verdict(ResumeOutcome.WITHIN if is_near else ResumeOutcome.DIFFERS, sentence, evidence)


def _compare_metrics(whole: DrillRun, again: DrillRun, *, tolerance: float, evidence: tuple[str, ...]) -> Verdict:
    if not whole.metrics:
        return Verdict(ResumeOutcome.UNCLEAR, "It resumed, but there is no model and no metric to compare.", evidence)
    difference = max(abs(value - again.metrics.get(name, float("inf"))) for name, value in whole.metrics.items())
    if difference == 0:
        return Verdict(
            ResumeOutcome.EXACT, "No model was saved; the last values of all metrics are the same.", evidence
        )
    outcome = ResumeOutcome.WITHIN if difference <= tolerance else ResumeOutcome.DIFFERS
    return Verdict(outcome, f"No model was saved; the metrics differ by up to {difference:.3g}.", evidence)


def _difference(models: ModelComparison) -> str:
    parts = []
    if models.largest.value:
        parts.append(f" by up to {models.largest.value:.3g} ({models.largest.where})")
    if models.others:
        more = f" and {len(models.others) - 1} more" if len(models.others) > 1 else ""
        parts.append(f" in {models.others[0]}{more}, which could not be compared as tensors")
    return ", and".join(parts)


def _metric_lines(whole: DrillRun, again: DrillRun) -> Iterator[str]:
    for name, value in whole.metrics.items():
        other = again.metrics.get(name)
        if other is None:
            yield f'The last "{name}" is {value:.6g}; with the interruption there is none.'
        elif other == value:
            yield f'The last "{name}" is {value:.6g} in both runs.'
        else:
            yield f'The last "{name}" is {value:.6g}, with the interruption {other:.6g}.'


def _files(count: int) -> str:
    return "one file" if count == 1 else f"{count} files"


def _reason(run: DrillRun) -> str:
    lines = str(run.description.get("FailureReason") or "no reason is known.").splitlines()
    return lines[0]
