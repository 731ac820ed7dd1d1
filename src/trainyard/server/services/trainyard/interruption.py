"""InterruptJob: takes the place of a spot job away, as a cloud does that needs its machine."""

from trainyard.foundation.errors import Conflict, InvalidRequest
from trainyard.foundation.jobs import SecondaryStatus, Status, TrainingJob
from trainyard.foundation.transitions import interrupt
from trainyard.server.jobs import KIND, change_to, job_of
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.visible import load_visible


def interrupt_job(call: Call, shape: Shape) -> Shape:
    """Have a running spot job give its place away; it goes on when there is room."""
    while True:
        resource = load_visible(call, KIND, shape["TrainingJobName"])
        job = job_of(resource)
        _require_interruptible(job)
        after = interrupt(job, f"{call.caller.user} interrupted it.")
        if after == job or call.yard.records.apply(resource, change_to(resource, after), now=call.now) is not None:
            call.yard.workshop.wake(resource.id)
            return {}


OPERATIONS: Operations = {"InterruptJob": interrupt_job}


def _require_interruptible(job: TrainingJob) -> None:
    if not job.plan.is_spot:
        raise InvalidRequest(
            f"{job.name} is no spot job, so that nothing interrupts it; `trainyard stop {job.name}` ends it."
        )
    if job.status is not Status.IN_PROGRESS:
        raise Conflict("training job", job.name, f"is {job.status}, so that it cannot be interrupted")
    if job.attempt is None:
        raise Conflict("training job", job.name, f"is {job.secondary} and has no place that it could give away")
    if job.secondary is SecondaryStatus.UPLOADING:
        raise Conflict("training job", job.name, "is Uploading its model and about to end")
