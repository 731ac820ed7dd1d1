"""FollowJob: what happens to a job, sent while it happens."""

import asyncio

from trainyard.server.following import Place
from trainyard.server.jobs import KIND
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.visible import load_visible


async def follow_job(call: Call, shape: Shape) -> Shape:
    """Statuses, notes and log lines of a job, pushed until it has ended."""
    resource = await asyncio.to_thread(load_visible, call, KIND, shape["TrainingJobName"])
    place = Place.before(resource.id)
    if "Cursor" in shape:
        place = Place.parse(shape["Cursor"], resource.id)
    elif "Tail" in shape:
        place = await call.yard.followers.place_before_last(resource, shape["Tail"])
    lines = call.yard.followers.follow(resource, place, with_logs=shape.get("Logs", True))
    return {"ContentType": "application/x-ndjson", "Events": lines}


OPERATIONS: Operations = {"FollowJob": follow_job}
