"""Begins the training jobs of trials, by the same code as a create call."""

from datetime import datetime

from trainyard.foundation.errors import InvalidRequest, NotFound, Unavailable
from trainyard.foundation.tuning import Trial, TuningJob
from trainyard.server import jobs
from trainyard.server.records.contract import Resource, ResourceId, ResourceKey
from trainyard.server.services.contract import Shape, Yard
from trainyard.server.services.sagemaker.creation import Owner, begin_job, checked_job
from trainyard.server.services.sagemaker.tuning.choosing import chosen
from trainyard.server.services.sagemaker.tuning.trials import definition_in, trial_request
from trainyard.server.tuning import request_of, tuning_job_of
from trainyard.wire.fault import Fault


class Launcher:
    """The TrialLauncher of a yard.

    A trial has the tags that its tuning job has by then, and its training job tells of which tuning job it is.
    """

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    def launch(self, tuning_job: Resource, trial: Trial, *, now: datetime) -> ResourceId:
        study = tuning_job_of(tuning_job)
        # Looked for first: what a job once needed may be gone, and the job is there nevertheless.
        known = self._known(study, trial)
        if known is not None:
            return known
        owner = Owner(self._yard, study.account, study.region, now)
        shape = self._request(owner, tuning_job, trial)
        job = checked_job(owner, shape)
        try:
            return begin_job(owner, job, shape).id
        except Fault as error:  # the name was taken since
            known = self._known(study, trial)
            if known is None:
                raise Unavailable(f"The training job {trial.job} came and went; it can be begun again.") from error
            return known

    def _known(self, study: TuningJob, trial: Trial) -> ResourceId | None:
        """The training job of a trial that was begun before."""
        try:
            found = self._yard.records.load(ResourceKey(study.account, jobs.KIND, trial.job))
        except NotFound:
            return None
        if jobs.request_of(found).get("TuningJobArn") != study.arn:
            raise InvalidRequest(
                f"A training job {trial.job} exists that is no trial of the tuning job {study.name}, so that this "
                "trial cannot have its name; delete that training job when it has ended."
            )
        return found.id

    def _request(self, owner: Owner, tuning_job: Resource, trial: Trial) -> Shape:
        study = tuning_job_of(tuning_job)
        definition = definition_in(request_of(tuning_job), trial.definition)
        tags = owner.yard.records.tags(study.account, study.arn)
        shape = trial_request(
            definition,
            trial.values,
            name=trial.job,
            metric=study.plan.definition(trial.definition).objective.metric,
            resources=chosen(owner, definition, tags=tags),
            pruning_rules=study.plan.pruning_rules,
        )
        return {
            **shape,
            "TuningJobArn": study.arn,
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        }
