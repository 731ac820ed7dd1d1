"""DescribeTrainingJob, StopTrainingJob and DeleteTrainingJob."""

from contextlib import suppress

from trainyard.foundation.confined import remove_tree
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.transitions import ask_to_stop
from trainyard.server.jobs.training import KIND, LOG_GROUP, change_to, events_of, job_of
from trainyard.server.log_streams import GROUP, forget_foreign_streams
from trainyard.server.records.contract import NewEvent, Resource, ResourceKey
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.training.description import training_job_description
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault


def describe_training_job(call: Call, shape: Shape) -> Shape:
    return training_job_description(load_visible(call, KIND, shape["TrainingJobName"]), now=call.now)


def stop_training_job(call: Call, shape: Shape) -> Shape:
    while True:
        resource = load_visible(call, KIND, shape["TrainingJobName"])
        job = job_of(resource)
        if job.is_final:
            message = f"The request was rejected because the training job is in status {job.status}."
            raise Fault("ValidationException", message)
        after = ask_to_stop(job, "user", at=call.now)
        if after == job or _apply(call, resource, after):
            call.yard.compute.wake(resource.id)
            return {}


def delete_training_job(call: Call, shape: Shape) -> Shape:
    while True:
        resource = load_visible(call, KIND, shape["TrainingJobName"])
        job = job_of(resource)
        if not job.is_final:
            message = f"Training job {job.name} is {job.status}; stop it first, and delete it once it has ended."
            raise Fault("ResourceInUse", message)
        # The streams first: a new job with the same name must not show the logs of this one.
        group = ResourceKey(resource.key.account, GROUP, LOG_GROUP)
        forget_foreign_streams(call.yard.records, group, prefix=f"{job.name}/", now=call.now)
        if call.yard.records.delete(resource, now=call.now, event=NewEvent("training-job.deleted", {"name": job.name})):
            # A later sweep removes what is left.
            with suppress(OSError):
                remove_tree(call.yard.compute.jobs / resource.id)
            return {}


OPERATIONS: Operations = {
    "DescribeTrainingJob": describe_training_job,
    "StopTrainingJob": stop_training_job,
    "DeleteTrainingJob": delete_training_job,
}


def _apply(call: Call, resource: Resource, after: TrainingJob) -> bool:
    change, events = change_to(resource, after), events_of(job_of(resource), after)
    return call.yard.records.apply(resource, change, now=call.now, events=events) is not None
