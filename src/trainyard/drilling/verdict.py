"""What a drill says of a script. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from trainyard.drilling.models import Comparison
from trainyard.drilling.runs import Run
from trainyard.drilling.work import Work


class Finding(StrEnum):
    """Whether a script resumes. The last two say that the drill could not find out."""

    EXACT = "resumes exactly"
    WITHIN = "resumes within the tolerance"
    DIFFERS = "resumes, but its result differs"
    STARTED_OVER = "does not resume: it started over"
    NO_CONFIG = "cannot resume: it has no CheckpointConfig"
    NO_CHECKPOINT = "cannot resume: it had saved no checkpoint"
    FAILED = "does not resume: it failed"
    TOO_SHORT = "could not be interrupted"
    UNCLEAR = "could not be judged"


GOOD = frozenset({Finding.EXACT, Finding.WITHIN})
UNDECIDED = frozenset({Finding.TOO_SHORT, Finding.UNCLEAR})


@dataclass(frozen=True, slots=True)
class Verdict:
    finding: Finding
    sentence: str
    evidence: tuple[str, ...] = ()


def without_checkpoints(job_name: str) -> Verdict:
    return Verdict(
        Finding.NO_CONFIG,
        f'Training job "{job_name}" has no CheckpointConfig, so that an interruption costs it everything. Give it one '
        "(`checkpoint_s3_uri`), save to /opt/ml/checkpoints, and look there at the start.",
    )


def not_comparable(whole: Run) -> Verdict:
    """After a run without an interruption that did not complete."""
    return Verdict(
        Finding.UNCLEAR,
        f"Without an interruption the job is {whole.status} already, as {whole.name}: {_reason(whole)}",
    )


def too_short(run: Run) -> Verdict:
    """On a run that is over before an interruption could come to it."""
    seconds = run.trained.total_seconds()
    return Verdict(Finding.TOO_SHORT, f"It was over in {seconds:.1f} s; drill a job that takes longer.")


def judge(whole: Run, again: Run, *, work: Work, models: Comparison | None, tolerance: float) -> Verdict:
    """The verdict on two runs; `models` is None where none was saved, and then the metrics decide."""
    if not again.interruptions:
        return too_short(again)
    if again.status != "Completed":
        return Verdict(Finding.FAILED, f"After the interruption it is {again.status}: {_reason(again)}")
    if not again.kept:
        return Verdict(
            Finding.NO_CHECKPOINT, "Nothing lay under its checkpoint path when it was interrupted.", (work.evidence,)
        )
    evidence = (work.evidence, *_metric_lines(whole, again))
    if work.has_started_over is None:
        return Verdict(Finding.UNCLEAR, "Nothing tells whether it went on or started over.", evidence)
    if work.has_started_over:
        return Verdict(Finding.STARTED_OVER, "What it had saved was there, and it did not go on from it.", evidence)
    return _compared(whole, again, models=models, tolerance=tolerance, evidence=evidence)


def _compared(
    whole: Run, again: Run, *, models: Comparison | None, tolerance: float, evidence: tuple[str, ...]
) -> Verdict:
    if models is None:
        return _by_metrics(whole, again, tolerance=tolerance, evidence=evidence)
    if models.is_equal:
        return Verdict(Finding.EXACT, f"The models are the same, in all of {_files(models.files)}.", evidence)
    sentence = f"The models differ{_difference(models)}."
    is_near = models.is_within(tolerance)
    return Verdict(Finding.WITHIN if is_near else Finding.DIFFERS, sentence, evidence)


def _by_metrics(whole: Run, again: Run, *, tolerance: float, evidence: tuple[str, ...]) -> Verdict:
    if not whole.metrics:
        return Verdict(Finding.UNCLEAR, "It went on, but saved no model and has no metric to compare.", evidence)
    apart = max(abs(value - again.metrics.get(name, float("inf"))) for name, value in whole.metrics.items())
    if apart == 0:
        return Verdict(Finding.EXACT, "No model was saved; the last values of its metrics are the same.", evidence)
    finding = Finding.WITHIN if apart <= tolerance else Finding.DIFFERS
    return Verdict(finding, f"No model was saved; its metrics differ by up to {apart:.3g}.", evidence)


def _difference(models: Comparison) -> str:
    parts = []
    if models.apart.value:
        parts.append(f" by up to {models.apart.value:.3g} ({models.apart.where})")
    if models.others:
        more = f" and {len(models.others) - 1} more" if len(models.others) > 1 else ""
        parts.append(f" in {models.others[0]}{more}, which could not be compared as tensors")
    return ", and".join(parts)


def _metric_lines(whole: Run, again: Run) -> Iterator[str]:
    for name, value in whole.metrics.items():
        other = again.metrics.get(name)
        if other is None:
            yield f'"{name}" ended as {value:.6g}, and has no value after the interruption.'
        elif other == value:
            yield f'"{name}" ended as {value:.6g} in both.'
        else:
            yield f'"{name}" ended as {value:.6g}, with the interruption as {other:.6g}.'


def _files(count: int) -> str:
    return "one file" if count == 1 else f"{count} files"


def _reason(run: Run) -> str:
    lines = str(run.description.get("FailureReason") or "no reason was told.").splitlines()
    return lines[0]
