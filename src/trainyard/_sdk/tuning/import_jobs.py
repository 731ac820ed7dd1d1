"""Import ended training jobs as an ended tuning job, so that other tuning jobs can learn from it."""

import logging
from collections.abc import Mapping, Sequence

from trainyard._sdk.connection import Api
from trainyard._sdk.job_names import base_of, create_study_named
from trainyard._sdk.tuning.request import Ranges, range_shapes
from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import Shape

log = logging.getLogger(__name__)


def import_jobs(
    api: Api,
    training_jobs: Sequence[str] | str,
    *,
    name: str | None,
    objective: Mapping[str, str],
    ranges: Ranges,
) -> str:
    """Create the tuning job and return its name. A warning names each job with the prefix that cannot be used."""
    names = _names(api, training_jobs) if isinstance(training_jobs, str) else list(training_jobs)
    if not names:
        raise InvalidRequest(
            f'No training job has the prefix "{training_jobs}".'
            if isinstance(training_jobs, str)
            else "training_jobs is empty; name at least one training job."
        )
    request: Shape = {"NamePrefix": training_jobs} if isinstance(training_jobs, str) else {"TrainingJobNames": names}
    request |= {
        "Objective": dict(objective),
        "ParameterRanges": range_shapes(ranges, is_json=_reads_json(api, names[0])),
    }

    def create(study: str) -> None:
        response = api.call("trainyard", "AdoptTrainingJobs", HyperParameterTuningJobName=study, **request)
        for skipped in response["PassedOver"]:
            log.warning("training job %s was not imported: %s", skipped["TrainingJobName"], skipped["Reason"])

    if name:
        create(name)
    return name or create_study_named(base_of(names[0]), create)


def _names(api: Api, prefix: str) -> list[str]:
    """Return the first training jobs whose names start with a prefix."""
    page = api.call("sagemaker", "ListTrainingJobs", NameContains=prefix, SortBy="Name", SortOrder="Ascending")
    found = (summary["TrainingJobName"] for summary in page["TrainingJobSummaries"])
    return [name for name in found if name.startswith(prefix)]


def _reads_json(api: Api, training_job: str) -> bool:
    """Whether the hyperparameters of a training job are JSON, which is so if the job runs a script."""
    description = api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=training_job)
    return "sagemaker_program" in description.get("HyperParameters", {})
