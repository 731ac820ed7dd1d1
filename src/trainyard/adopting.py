"""Making an ended tuning job of training jobs that have ended, so that others can start from what they found."""

import logging
from collections.abc import Mapping, Sequence

from trainyard.connection import Api
from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import Shape
from trainyard.job_names import base_of, create_study_named
from trainyard.tuning_request import Ranges, range_shapes

log = logging.getLogger(__name__)


def adopt(
    api: Api,
    training_jobs: Sequence[str] | str,
    *,
    name: str | None,
    objective: Mapping[str, str],
    ranges: Ranges,
) -> str:
    """Make the tuning job and return its name; jobs with a prefix that cannot be used are passed over, and named."""
    names = _names(api, training_jobs) if isinstance(training_jobs, str) else list(training_jobs)
    if not names:
        raise InvalidRequest(f'There is no training job to adopt among "{training_jobs}".')
    asked: Shape = {"NamePrefix": training_jobs} if isinstance(training_jobs, str) else {"TrainingJobNames": names}
    asked |= {
        "Objective": dict(objective),
        "ParameterRanges": range_shapes(ranges, is_json=_reads_json(api, names[0])),
    }

    def create(study: str) -> None:
        answer = api.call("trainyard", "AdoptTrainingJobs", HyperParameterTuningJobName=study, **asked)
        for passed in answer["PassedOver"]:
            log.warning("training job %s is not adopted: %s", passed["TrainingJobName"], passed["Reason"])

    if name:
        create(name)
    return name or create_study_named(base_of(names[0]), create)


def _names(api: Api, prefix: str) -> list[str]:
    """Some of the training jobs whose names begin so."""
    page = api.call("sagemaker", "ListTrainingJobs", NameContains=prefix, SortBy="Name", SortOrder="Ascending")
    found = (summary["TrainingJobName"] for summary in page["TrainingJobSummaries"])
    return [name for name in found if name.startswith(prefix)]


def _reads_json(api: Api, training_job: str) -> bool:
    """Whether the hyperparameters of a training job are JSON, as they are where they are for a script."""
    described = api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=training_job)
    return "sagemaker_program" in described.get("HyperParameters", {})
