"""The drill itself: two runs of one definition, and the verdict on them."""

import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.connection import Api
from trainyard.drilling.definition import Places, definition, drill_name
from trainyard.drilling.models import Comparison, compare_models
from trainyard.drilling.runs import Moment, Run, run_interrupted, run_whole
from trainyard.drilling.verdict import Finding, Verdict, judge, not_comparable, too_short, without_checkpoints
from trainyard.drilling.work import work_of
from trainyard.following import Description
from trainyard.foundation.interruptions import share_between
from trainyard.foundation.jobs import MetricDefinition
from trainyard.foundation.locations import parse_s3_uri
from trainyard.outcomes import Details, model_uri
from trainyard.training_job import TrainingJob
from trainyard.transfers import download_object

EARLIEST, LATEST = 0.35, 0.65  # of a run: between these shares it is interrupted, so that both parts have some work
SHORTEST_S = 1.0  # of a run that can be interrupted at a moment that is meant


@dataclass(frozen=True, slots=True)
class Drilled:
    """What came of a drill; `places` are those of its jobs, in the order in which they ran."""

    verdict: Verdict
    runs: Sequence[Run] = ()
    places: Sequence[Places] = ()


def drill(
    api: Api, job: Description, *, bucket: str, seed: int, tolerance: float, tell: Callable[[str], None]
) -> Drilled:
    """Run a job's definition without and with an interruption, and judge whether its script resumes.

    The interruption comes where the seed says, in the midst of the run and not before there is a checkpoint.
    """
    name = job["TrainingJobName"]
    if not job.get("CheckpointConfig"):
        return Drilled(without_checkpoints(name))
    token, engine = secrets.token_hex(3), TrainingJob(api, name).details()["Engine"]
    first, second = (Places(bucket, drill_name(name, token, role)) for role in ("whole", "interrupted"))
    tell(f'Running "{first.job_name}", without an interruption …')
    whole = run_whole(api, definition(job, first, engine=engine, is_spot=False))
    if whole.status != "Completed":
        return Drilled(not_comparable(whole), (whole,), (first,))
    if whole.trained.total_seconds() < SHORTEST_S:
        return Drilled(too_short(whole), (whole,), (first,))
    tell(f'Running "{second.job_name}", with one …')
    moment = Moment.in_run(whole, share_between(seed, EARLIEST, LATEST))
    again = run_interrupted(api, definition(job, second, engine=engine, is_spot=True), second, moment=moment)
    work = work_of(whole, again, _definitions(job))
    models = _compared(api, whole.details, again.details) if again.status == "Completed" else None
    verdict = judge(whole, again, work=work, models=models, tolerance=tolerance)
    if verdict.finding is Finding.DIFFERS:
        verdict = _with_baseline(api, job, whole, verdict=verdict)
    return Drilled(verdict, (whole, again), (first, second))


def _definitions(job: Description) -> list[MetricDefinition]:
    defined = job["AlgorithmSpecification"].get("MetricDefinitions", ())
    return [MetricDefinition(each["Name"], each["Regex"]) for each in defined]


def _compared(api: Api, first: Details, second: Details) -> Comparison | None:
    """Their models; None where one has none."""
    uris = [model_uri(first), model_uri(second)]
    if None in uris:
        return None
    with tempfile.TemporaryDirectory(prefix="trainyard-drill-") as folder:
        archives = [Path(folder, f"{number}.tar.gz") for number in range(2)]
        for uri, archive in zip(uris, archives, strict=True):
            where = parse_s3_uri(str(uri), account="")
            download_object(api, archive, bucket=where.bucket.name, key=where.key)
        return compare_models(*archives)


def _with_baseline(api: Api, job: Description, whole: Run, *, verdict: Verdict) -> Verdict:
    """The verdict on results that differ, with what the job itself tells of how far runs differ anyway."""
    details = TrainingJob(api, job["TrainingJobName"]).details()
    if job["TrainingJobStatus"] != "Completed" or len(details["Attempts"]) != 1:
        return verdict
    models = _compared(api, details, whole.details)
    if models is None:
        return verdict
    told = "The job itself had come to the same model as its run without an interruption, so the resuming is at fault."
    if not models.is_equal:
        told = (
            f"The job itself and its run without an interruption differ as well, by up to {models.apart.value:.3g}: "
            "the script is not deterministic, or its code or data has changed since."
        )
    return Verdict(verdict.finding, verdict.sentence, (*verdict.evidence, told))
