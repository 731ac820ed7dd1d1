"""The kinds of jobs that commands show, follow, stop and remove, by what AWS calls them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard._sdk.training.cloudwatch import LOG_GROUP, PROCESSING_LOG_GROUP

# A job as it is described or listed.
Job = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job. `word` is what the yard's own API calls it, and `shape` begins the names of AWS's members."""

    word: str
    shape: str
    log_group: str

    @property
    def noun(self) -> str:
        return f"{self.word} job"

    @property
    def name_member(self) -> str:
        return f"{self.shape}Name"

    @property
    def status_member(self) -> str:
        return f"{self.shape}Status"

    @property
    def summaries_member(self) -> str:
        return f"{self.shape}Summaries"


TRAINING = JobKind("training", "TrainingJob", LOG_GROUP)
PROCESSING = JobKind("processing", "ProcessingJob", PROCESSING_LOG_GROUP)
KINDS = (TRAINING, PROCESSING)


def kind_of(job: Job) -> JobKind:
    """Return the kind of a job."""
    return next(kind for kind in KINDS if kind.name_member in job)


def name_of(job: Job) -> str:
    name: str = job[kind_of(job).name_member]
    return name


def status_of(job: Job) -> str:
    status: str = job[kind_of(job).status_member]
    return status


def title_of(job: Job) -> str:
    """Return how a sentence begins with a job: Training job "mnist"."""
    return f'{kind_of(job).noun.capitalize()} "{name_of(job)}"'
