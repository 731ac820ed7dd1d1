"""ListTrainingJobs."""

from dataclasses import replace

from trainyard.foundation.pools import pool_of
from trainyard.server.jobs import KIND, job_of
from trainyard.server.records.contract import Query, Resource, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.described import summarised

PAGE = 10  # what AWS gives when it is not asked for a number
MAX_LOOKED_AT = 2000  # for one answer with a filter on warm pools, which may then be short and have a token

_BATCH = 100
_ORDERS = {"Name": SortBy.NAME, "CreationTime": SortBy.CREATED, "Status": SortBy.STATUS}


def list_training_jobs(call: Call, shape: Shape) -> Shape:
    if "TrainingPlanArnEquals" in shape:  # no job has a training plan here
        return {"TrainingJobSummaries": []}
    found, token = _found(call, shape)
    shown = {"TrainingJobSummaries": [summarised(resource, now=call.now) for resource in found]}
    return shown | ({"NextToken": token} if token else {})


OPERATIONS: Operations = {"ListTrainingJobs": list_training_jobs}


def _found(call: Call, shape: Shape) -> tuple[list[Resource], str | None]:
    """One page, and the token of the next."""
    query = _query(call, shape)
    if "WarmPoolStatusEquals" in shape:
        return _with_pool(call, query, shape["WarmPoolStatusEquals"])
    page = call.yard.records.find(query)
    return list(page.resources), page.next_after


def _query(call: Call, shape: Shape) -> Query:
    return Query(
        KIND,
        account=call.caller.scope,
        name_contains=shape.get("NameContains", ""),
        status=shape.get("StatusEquals", ""),
        created_after=shape.get("CreationTimeAfter"),
        created_before=shape.get("CreationTimeBefore"),
        modified_after=shape.get("LastModifiedTimeAfter"),
        modified_before=shape.get("LastModifiedTimeBefore"),
        sort_by=_ORDERS[shape.get("SortBy", "CreationTime")],
        descending=shape.get("SortOrder", "Descending") == "Descending",
        limit=shape.get("MaxResults", PAGE),
        after=shape.get("NextToken", ""),
    )


def _with_pool(call: Call, query: Query, status: str) -> tuple[list[Resource], str | None]:
    """Those whose warm pool has a status now. That is a matter of time, so no index can know it."""
    found: list[Resource] = []
    batch = replace(query, limit=_BATCH)
    for _ in range(MAX_LOOKED_AT // _BATCH):
        page = call.yard.records.find(batch)
        for number, resource in enumerate(page.resources, 1):
            pool = pool_of(job_of(resource), now=call.now)
            if pool is None or pool.status != status:
                continue
            found.append(resource)
            if len(found) == query.limit:
                # The token that the records give for a page that ends just here.
                return found, call.yard.records.find(replace(batch, limit=number)).next_after
        if page.next_after is None:
            return found, None
        batch = replace(batch, after=page.next_after)
    return found, batch.after
