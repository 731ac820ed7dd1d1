"""One tuning job by its name: described, stopped, deleted."""

from dataclasses import replace

from trainyard.foundation.tuning import TuningStatus
from trainyard.server.records.contract import NewEvent, Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.tuning.described import described
from trainyard.server.services.visible import load_visible
from trainyard.server.tuning import KIND, change_to, events_of, tuning_job_of, tuning_key
from trainyard.wire.fault import Fault

STOPPED_BY_USER = "Its user stopped it."


def describe_hyper_parameter_tuning_job(call: Call, shape: Shape) -> Shape:
    return described(call.yard.records, load_tuning_job(call, shape), now=call.now)


def stop_hyper_parameter_tuning_job(call: Call, shape: Shape) -> Shape:
    """The controller stops its training jobs, and then it is Stopped."""
    while True:
        resource = load_tuning_job(call, shape)
        job = tuning_job_of(resource)
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
            call.yard.workshop.wake(resource.id)
            return {}


def delete_hyper_parameter_tuning_job(call: Call, shape: Shape) -> Shape:
    """Its training jobs stay."""
    while True:
        resource = load_tuning_job(call, shape)
        job = tuning_job_of(resource)
        if not job.is_final:
            raise Fault(
                "ResourceInUse", f"Tuning job {job.name} is {job.status}; stop it, and delete it when it has ended."
            )
        if call.yard.records.delete(resource, now=call.now, event=NewEvent("tuning-job.deleted", {"name": job.name})):
            return {}


OPERATIONS: Operations = {
    "DescribeHyperParameterTuningJob": describe_hyper_parameter_tuning_job,
    "StopHyperParameterTuningJob": stop_hyper_parameter_tuning_job,
    "DeleteHyperParameterTuningJob": delete_hyper_parameter_tuning_job,
}


def load_tuning_job(call: Call, shape: Shape) -> Resource:
    """The one that a request names; NotFound where the caller sees none."""
    return load_visible(call, KIND, tuning_key(call.account, shape["HyperParameterTuningJobName"]).name)
