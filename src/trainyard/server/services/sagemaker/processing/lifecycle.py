"""DescribeProcessingJob, StopProcessingJob and DeleteProcessingJob."""

from contextlib import suppress

from trainyard.foundation.confined import remove_tree
from trainyard.foundation.jobs.transitions import ask_to_stop
from trainyard.server.jobs.processing import KIND, LOG_GROUP, change_to, events_of, job_of
from trainyard.server.log_streams import GROUP, forget_foreign_streams
from trainyard.server.records.contract import NewEvent, ResourceKey
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.processing.description import processing_job_description
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault


def describe_processing_job(call: Call, shape: Shape) -> Shape:
    return processing_job_description(load_visible(call, KIND, shape["ProcessingJobName"]))


def stop_processing_job(call: Call, shape: Shape) -> Shape:
    while True:
        resource = load_visible(call, KIND, shape["ProcessingJobName"])
        job = job_of(resource)
        if job.is_final:
            message = f"The request was rejected because the processing job is in status {job.status}."
            raise Fault("ValidationException", message)
        after = ask_to_stop(job, "user", at=call.now)
        change, events = change_to(resource, after), events_of(job, after)
        if after == job or call.yard.records.apply(resource, change, now=call.now, events=events) is not None:
            call.yard.compute.wake(resource.id)
            return {}


def delete_processing_job(call: Call, shape: Shape) -> Shape:
    while True:
        resource = load_visible(call, KIND, shape["ProcessingJobName"])
        job = job_of(resource)
        if not job.is_final:
            message = f"Processing job {job.name} is {job.status}; stop it first, and delete it once it has ended."
            raise Fault("ResourceInUse", message)
        # The streams first: a new job with the same name must not show the logs of this one.
        group = ResourceKey(resource.key.account, GROUP, LOG_GROUP)
        forget_foreign_streams(call.yard.records, group, prefix=f"{job.name}/", now=call.now)
        event = NewEvent("processing-job.deleted", {"name": job.name})
        if call.yard.records.delete(resource, now=call.now, event=event):
            # A later sweep removes what is left.
            with suppress(OSError):
                remove_tree(call.yard.compute.jobs / resource.id)
            return {}


OPERATIONS: Operations = {
    "DescribeProcessingJob": describe_processing_job,
    "StopProcessingJob": stop_processing_job,
    "DeleteProcessingJob": delete_processing_job,
}
