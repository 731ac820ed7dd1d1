"""A drill: two runs of one job, one of them interrupted, and the verdict on them."""

import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard._sdk.connection import Api
from trainyard._sdk.resume_drill.evidence import find_evidence
from trainyard._sdk.resume_drill.jobs import DrillJob, drill_name, drill_request
from trainyard._sdk.resume_drill.models import ModelComparison, compare_models
from trainyard._sdk.resume_drill.runs import DrillRun, InterruptionPoint, run_interrupted, run_whole
from trainyard._sdk.resume_drill.verdict import (
    ResumeOutcome,
    Verdict,
    decide,
    not_comparable,
    too_short,
    without_checkpoints,
)
from trainyard._sdk.storage.transfers import download_object
from trainyard._sdk.training.job import TrainingJobHandle
from trainyard._sdk.training.outcomes import Details, model_uri
from trainyard._sdk.training.stream import Description
from trainyard.foundation.jobs.training.interruptions import share_between
from trainyard.foundation.jobs.training.plan import MetricDefinition
from trainyard.foundation.locations import parse_s3_uri

# The shares of a run between which it is interrupted, so that both attempts have work to do.
EARLIEST_SHARE, LATEST_SHARE = 0.35, 0.65
# A shorter run cannot be interrupted at a chosen point.
MIN_TRAINING_S = 1.0


@dataclass(frozen=True, slots=True)
class DrillResult:
    """The verdict of a drill, with its runs and jobs in the order in which they ran."""

    verdict: Verdict
    runs: Sequence[DrillRun] = ()
    jobs: Sequence[DrillJob] = ()


def run_drill(
    api: Api, description: Description, *, bucket: str, seed: int, tolerance: float, report: Callable[[str], None]
) -> DrillResult:
    """Run a job again, without and with an interruption, and decide whether its script resumes.

    The seed chooses when the interruption happens: in the middle of the run, after the first checkpoint.
    """
    name = description["TrainingJobName"]
    if not description.get("CheckpointConfig"):
        return DrillResult(without_checkpoints(name))
    token, engine = secrets.token_hex(3), TrainingJobHandle(api, name).details()["Engine"]
    first, second = (DrillJob(bucket, drill_name(name, token, role)) for role in ("whole", "interrupted"))
    report(f'Running "{first.job_name}" without an interruption …')
    whole = run_whole(api, drill_request(description, first, engine=engine, is_spot=False))
    if whole.status != "Completed":
        return DrillResult(not_comparable(whole), (whole,), (first,))
    if whole.trained.total_seconds() < MIN_TRAINING_S:
        return DrillResult(too_short(whole), (whole,), (first,))
    report(f'Running "{second.job_name}" with an interruption …')
    point = InterruptionPoint.in_run(whole, share_between(seed, EARLIEST_SHARE, LATEST_SHARE))
    again = run_interrupted(api, drill_request(description, second, engine=engine, is_spot=True), second, point=point)
    evidence = find_evidence(whole, again, _metric_definitions(description))
    models = _compare_models(api, whole.details, again.details) if again.status == "Completed" else None
    verdict = decide(whole, again, evidence=evidence, models=models, tolerance=tolerance)
    if verdict.outcome is ResumeOutcome.DIFFERS:
        verdict = _with_baseline(api, description, whole, verdict=verdict)
    return DrillResult(verdict, (whole, again), (first, second))


def _metric_definitions(description: Description) -> list[MetricDefinition]:
    defined = description["AlgorithmSpecification"].get("MetricDefinitions", ())
    return [MetricDefinition(each["Name"], each["Regex"]) for each in defined]


def _compare_models(api: Api, first: Details, second: Details) -> ModelComparison | None:
    """Compare the models of two jobs; None if one has no model."""
    uris = [model_uri(first), model_uri(second)]
    if None in uris:
        return None
    with tempfile.TemporaryDirectory(prefix="trainyard-drill-") as folder:
        archives = [Path(folder, f"{number}.tar.gz") for number in range(2)]
        for uri, archive in zip(uris, archives, strict=True):
            where = parse_s3_uri(str(uri), account="")
            download_object(api, archive, bucket=where.bucket.name, key=where.key)
        return compare_models(*archives)


def _with_baseline(api: Api, description: Description, whole: DrillRun, *, verdict: Verdict) -> Verdict:
    """Add to the verdict whether uninterrupted runs differ too, if the original job can show that."""
    details = TrainingJobHandle(api, description["TrainingJobName"]).details()
    if description["TrainingJobStatus"] != "Completed" or len(details["Attempts"]) != 1:
        return verdict
    models = _compare_models(api, details, whole.details)
    if models is None:
        return verdict
    sentence = "The original job produced the same model as the uninterrupted run, so the script resumes incorrectly."
    if not models.is_equal:
        sentence = (
            f"The original job and the uninterrupted run also differ, by up to {models.largest.value:.3g}: the script "
            "is not deterministic, or its code or data has changed."
        )
    return Verdict(verdict.outcome, verdict.sentence, (*verdict.evidence, sentence))
