"""What is remembered of a training job for its lineage: what it read, ran and wrote. It stays when the job is removed.

It is stored under the name of the trial component that SageMaker makes for the job, and its ARN is the node of the job
in the lineage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainyard.foundation.arns import arn
from trainyard.foundation.clock import to_micros
from trainyard.foundation.jobs.contents import SourceContent
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.records.contract import Draft, Resource, ResourceKey

KIND = "job-record"

_SUFFIX = "-aws-training-job"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What one training job read, ran and wrote.

    `environment` is the digest of its installed packages, see `environments.py`; empty if they are unknown. `request`
    is the request of its create call.
    """

    job: str
    job_arn: str
    created_at: datetime
    status: str
    image: str
    request: Mapping[str, Any]
    inputs: tuple[SourceContent, ...] = ()
    code: SourceContent | None = None
    commit: str = ""
    repository: str = ""
    environment: str = ""
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    outputs: tuple[SourceContent, ...] = ()
    checkpoint_uri: str = ""

    @property
    def node_arn(self) -> str:
        _, _, _, region, account, _ = self.job_arn.split(":", 5)
        return node_arn(region, account, self.job)


def node_name(job: str) -> str:
    """Return the name of the trial component of a job."""
    return f"{job}{_SUFFIX}"


def node_arn(region: str, account: str, job: str) -> str:
    return arn("sagemaker", region, account, f"experiment-trial-component/{node_name(job)}")


def record_key(account: str, job: str) -> ResourceKey:
    return ResourceKey(account, KIND, node_name(job))


def draft_of(record: JobRecord) -> Draft:
    _, _, _, region, account, _ = record.job_arn.split(":", 5)
    return Draft(record_key(account, record.job), region, body_of(record), status=record.status, arn=record.node_arn)


def body_of(record: JobRecord) -> Mapping[str, Any]:
    body: Mapping[str, Any] = to_plain(record)
    return body


def job_record_of(resource: Resource) -> JobRecord:
    return from_plain(JobRecord, resource.body)


def is_of(record: JobRecord, *, created_at: datetime) -> bool:
    """Whether a record is of the job that was created at a time, and not of another one with the same name."""
    return to_micros(record.created_at) == to_micros(created_at)
