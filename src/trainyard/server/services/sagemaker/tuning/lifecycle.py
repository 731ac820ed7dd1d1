"""DescribeHyperParameterTuningJob, StopHyperParameterTuningJob and DeleteHyperParameterTuningJob."""

from dataclasses import replace

from trainyard.foundation.jobs.tuning import TuningStatus
from trainyard.server.jobs.tuning import KIND, change_to, events_of, job_of, tuning_key
from trainyard.server.records.contract import NewEvent, Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.tuning.description import tuning_job_description
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault

STOPPED_BY_USER = "Its user stopped it."


def describe_hyper_parameter_tuning_job(call: Call, shape: Shape) -> Shape:
    return tuning_job_description(call.yard.records, load_tuning_job(call, shape), now=call.now)


def stop_hyper_parameter_tuning_job(call: Call, shape: Shape) -> Shape:
    """Ask the controller to stop the training jobs; then the tuning job is Stopped."""
    while True:
        resource = load_tuning_job(call, shape)
        job = job_of(resource)
        if job.is_final:
            raise Fault(
                "ValidationException",
                f"The request was rejected because the hyperparameter tuning job is in status {job.status}.",
            )
        if job.status is TuningStatus.STOPPING:
            return {}
        after = replace(job, status=TuningStatus.STOPPING, stop_reason=job.stop_reason or STOPPED_BY_USER)
        change = change_to(resource, after, due_at=call.now)
        if call.yard.records.apply(resource, change, now=call.now, events=events_of(job, after)) is not None:
            call.yard.compute.wake(resource.id)
            return {}


def delete_hyper_parameter_tuning_job(call: Call, shape: Shape) -> Shape:
    """Delete a tuning job. Its training jobs stay."""
    while True:
        resource = load_tuning_job(call, shape)
        job = job_of(resource)
        if not job.is_final:
            raise Fault(
                "ResourceInUse",
                f"Tuning job {job.name} is {job.status}; stop it first, and delete it once it has ended.",
            )
        if call.yard.records.delete(resource, now=call.now, event=NewEvent("tuning-job.deleted", {"name": job.name})):
            return {}


OPERATIONS: Operations = {
    "DescribeHyperParameterTuningJob": describe_hyper_parameter_tuning_job,
    "StopHyperParameterTuningJob": stop_hyper_parameter_tuning_job,
    "DeleteHyperParameterTuningJob": delete_hyper_parameter_tuning_job,
}


def load_tuning_job(call: Call, shape: Shape) -> Resource:
    """Load the tuning job that a request names; NotFound if the caller cannot see it."""
    return load_visible(call, KIND, tuning_key(call.account, shape["HyperParameterTuningJobName"]).name)
