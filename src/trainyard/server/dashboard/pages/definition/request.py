"""The CreateTrainingJob request that would create a job again."""

import json
import re
from datetime import datetime
from typing import Any

from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.job_frame import JobFrame
from trainyard.server.services.contract import Shape
from trainyard.wire.request_members import request_members

# What the toolkits of frameworks add to the hyperparameters of a script.
TOOLKIT_PREFIX = "sagemaker_"
PROGRAM, CODE = "sagemaker_program", "sagemaker_submit_directory"
# What a tuning job adds to those of its training jobs.
TUNING_HYPERPARAMETERS = ("_tuning_objective_metric",)

_MAX_NAME = 63
_TIMED = re.compile(r"(?P<base>.+)-\d{4}(-\d{2}){5}-\d{3}")
_COPY = re.compile(r"(?P<base>.+)-copy(-(?P<number>\d{1,4}))?")


async def request_of(visit: Visit, job: JobFrame) -> Shape:
    """Return the request, with the tags that the job has now. AWS's description has more members than it takes."""
    tags = (await visit.api.call("sagemaker", "ListTags", {"ResourceArn": job.arn}))["Tags"]
    operation = visit.api.models.service("sagemaker").operation_model("CreateTrainingJob")
    # A description has all switches, also those that no request set.
    request: Shape = {
        name: value for name, value in request_members(operation, job.description).items() if value is not False
    }
    if given := request.get("HyperParameters"):
        own = {name: text for name, text in given.items() if name not in TUNING_HYPERPARAMETERS}
        request["HyperParameters"] = own
    return request | ({"Tags": tags} if tags else {})


def decode_hyperparameter(text: str) -> Any:
    """Return the value of a hyperparameter of a script, which SDKs send as JSON; other texts as they are."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def next_name(name: str, now: datetime) -> str:
    """Return a name for a copy of a job: with a new time if the name has one, else as the next copy."""
    if timed := _TIMED.fullmatch(name):
        stamp = f"{now:%Y-%m-%d-%H-%M-%S}-{now.microsecond // 1000:03}"
        return f"{timed['base'][: _MAX_NAME - len(stamp) - 1]}-{stamp}"
    copy = _COPY.fullmatch(name)
    base, ending = (copy["base"], f"copy-{int(copy['number'] or 1) + 1}") if copy else (name, "copy")
    return f"{base[: _MAX_NAME - len(ending) - 1].rstrip('-')}-{ending}"
