"""Find the job with instances that a request names, of the kind that it names or of any."""

from trainyard.foundation.errors import NotFound
from trainyard.server.jobs.instance_job_kinds import RECORD_KINDS
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.visibility import load_visible


def load_named_job(call: Call, shape: Shape) -> Resource:
    """Load the training job or processing job that a request names; NotFound if the caller can see none.

    Jobs of different kinds can have the same name. Without a Kind, the training job is meant.
    """
    name: str = shape["TrainingJobName"]
    if "Kind" in shape:
        return load_visible(call, RECORD_KINDS[shape["Kind"]], name)
    for kind in RECORD_KINDS.values():
        try:
            return load_visible(call, kind, name)
        except NotFound:
            continue
    raise NotFound(RECORD_KINDS["training"], name)
