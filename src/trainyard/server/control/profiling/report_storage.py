"""Stores the reports of a job on S3, where AWS has them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import RulePlan
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.objects.contract import Attributes, ObjectStore
from trainyard.objects.encryption.headers import key_headers
from trainyard.server.control.profiling.contract import REPORT_RULE

PAGE = "profiler-report.html"
MAX_FILE_BYTES = 256 * 1024**2

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_TYPES = {".html": "text/html; charset=utf-8", ".ipynb": "application/x-ipynb+json", ".json": "application/json"}
# Of a multipart object; a local store writes what it gets.
_CHUNK_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class ReportStorage:
    """The reports of all jobs of a yard."""

    objects: ObjectStore

    def store(self, job: TrainingJob, rule: RulePlan, folder: Path, files: Sequence[str], *, now: datetime) -> None:
        """Store the files of a rule. Objects of earlier evaluations are replaced, the page last.

        Raises what the store raises: the quota of the owner may be full, or the bucket gone.
        """
        prefix = report_prefix(job, rule)
        for name in sorted(files, key=lambda each: each == PAGE):
            if not _NAME.fullmatch(name):
                raise InvalidRequest(f'"{name}" is not a file of a report.')
            self._put(job, Location(prefix.bucket, f"{prefix.key}{name}"), folder / name, now=now)

    def _put(self, job: TrainingJob, where: Location, path: Path, *, now: datetime) -> None:
        content_type = _TYPES.get(path.suffix, "application/octet-stream")
        writer = self.objects.writer(
            where, Attributes({"content-type": content_type, **key_headers(job.plan.output_key)})
        )
        try:
            for chunk in _chunks(path):
                writer.write(chunk)
        except BaseException:
            writer.abort()
            raise
        writer.commit(now=now)


def report_prefix(job: TrainingJob, rule: RulePlan) -> Location:
    """Return the prefix of the files of a rule, which ends with a slash."""
    base = (rule.output_path or job.plan.output_path).rstrip("/")
    return parse_s3_uri(f"{base}/{job.name}/rule-output/{rule.name}/profiler-output/", job.account)


def report_page(job: TrainingJob) -> str:
    """Return where the page of the first report of a job is on S3; empty if the job has no report."""
    rules = job.plan.profiler.rules if job.plan.profiler else ()
    for rule in rules:
        if rule.rule == REPORT_RULE:
            return f"{report_prefix(job, rule)}{PAGE}"
    return ""


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        left = MAX_FILE_BYTES
        while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk
