"""Start the training jobs of trials, with the code of CreateTrainingJob."""

from datetime import datetime

from trainyard.foundation.errors import InvalidRequest, NotFound, Unavailable
from trainyard.foundation.jobs.tuning import TuningJob, TuningTrial
from trainyard.server.jobs import instance_jobs, training
from trainyard.server.jobs.tuning import job_of, request_of
from trainyard.server.records.contract import Resource, ResourceId, ResourceKey
from trainyard.server.services.contract import Shape, Yard
from trainyard.server.services.sagemaker.training.creation import JobOwner, build_training_job, submit_training_job
from trainyard.server.services.sagemaker.tuning.instance_choice import choose_resources
from trainyard.server.services.sagemaker.tuning.trial_requests import definition_in, trial_request
from trainyard.wire.fault import Fault


class TrainingJobLauncher:
    """Launches the training jobs of trials in a yard; implements TrialLauncher.

    A trial gets the current tags of its tuning job, and its training job names its tuning job.
    """

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    def launch(self, tuning_job: Resource, trial: TuningTrial, *, now: datetime) -> ResourceId:
        study = job_of(tuning_job)
        # Looked up first: the job may exist although something that it needed is gone.
        started = self._find_started(study, trial)
        if started is not None:
            return started
        owner = JobOwner(self._yard, study.account, study.region, now)
        shape = self._request(owner, tuning_job, trial)
        job = build_training_job(owner, shape)
        try:
            return submit_training_job(owner, job, shape).id
        except Fault as error:
            # The name was taken in the meantime.
            started = self._find_started(study, trial)
            if started is None:
                raise Unavailable(
                    f"The training job {trial.job} was created and deleted in the meantime; try again."
                ) from error
            return started

    def _find_started(self, study: TuningJob, trial: TuningTrial) -> ResourceId | None:
        """Return the training job of a trial if it was started before."""
        try:
            found = self._yard.records.load(ResourceKey(study.account, training.KIND, trial.job))
        except NotFound:
            return None
        if instance_jobs.request_of(found).get("TuningJobArn") != study.arn:
            raise InvalidRequest(
                f"A training job {trial.job} exists that is not a trial of the tuning job {study.name}, so this trial "
                "cannot use its name; delete that training job once it has ended."
            )
        return found.id

    def _request(self, owner: JobOwner, tuning_job: Resource, trial: TuningTrial) -> Shape:
        study = job_of(tuning_job)
        definition = definition_in(request_of(tuning_job), trial.definition)
        tags = owner.yard.records.tags(study.account, study.arn)
        shape = trial_request(
            definition,
            trial.values,
            name=trial.job,
            metric=study.plan.definition(trial.definition).objective.metric,
            resources=choose_resources(owner, definition, tags=tags),
            pruning_rules=study.plan.pruning_rules,
        )
        return {
            **shape,
            "TuningJobArn": study.arn,
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        }
