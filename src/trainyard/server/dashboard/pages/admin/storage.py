"""What uses the disk: the objects of users, the packages that jobs installed, and the files of jobs."""

import asyncio
from collections import defaultdict
from typing import Any

from starlette.responses import Response

from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.pages.admin.section import next_address, render_section
from trainyard.server.services.contract import Shape

_BUCKETS, _JOBS = 100, 50


async def show_storage(visit: Visit) -> Response:
    after = visit.query.get("after", "")
    storage, yard, jobs = await asyncio.gather(
        visit.api.call("trainyard", "DescribeStorage"),
        visit.api.call("trainyard", "DescribeYard"),
        visit.api.call("trainyard", "ListJobStorage", {"MaxResults": _JOBS} | ({"NextToken": after} if after else {})),
    )
    buckets = sorted(storage["Buckets"], key=lambda each: (-each["Bytes"], each["BucketName"]))
    return render_section(
        visit,
        "storage",
        disk=yard.get("Storage"),
        users=_users(storage),
        buckets=buckets[:_BUCKETS],
        more_buckets=max(0, len(buckets) - _BUCKETS),
        jobs=jobs["Jobs"],
        next_address=next_address(visit, jobs.get("NextToken", "")),
        is_first=not after,
    )


def _users(storage: Shape) -> list[dict[str, Any]]:
    """Return what each user stores, the most first."""
    objects, packages = defaultdict[str, int](int), defaultdict[str, int](int)
    for bucket in storage["Buckets"]:
        objects[bucket["UserName"]] += bucket["Bytes"]
    for environment in storage["Environments"]:
        packages[environment["UserName"]] += environment["Bytes"]
    names = sorted(objects | packages, key=lambda name: (-objects[name] - packages[name], name))
    return [{"name": name, "objects": objects[name], "packages": packages[name]} for name in names]
