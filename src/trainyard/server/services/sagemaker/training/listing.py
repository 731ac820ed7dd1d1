"""ListTrainingJobs."""

from dataclasses import replace

from trainyard.foundation.jobs.training.pools import pool_of
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Query, Resource, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.training.description import training_job_summary

# The default of AWS.
PAGE = 10

# Jobs read for one answer with a filter on warm pools, which may then be short and have a token.
MAX_SCANNED = 2000

_BATCH = 100
_ORDERS = {"Name": SortBy.NAME, "CreationTime": SortBy.CREATED, "Status": SortBy.STATUS}


def list_training_jobs(call: Call, shape: Shape) -> Shape:
    # Jobs here have no training plans.
    if "TrainingPlanArnEquals" in shape:
        return {"TrainingJobSummaries": []}
    found, token = _find_page(call, shape)
    shown = {"TrainingJobSummaries": [training_job_summary(resource, now=call.now) for resource in found]}
    return shown | ({"NextToken": token} if token else {})


OPERATIONS: Operations = {"ListTrainingJobs": list_training_jobs}


def _find_page(call: Call, shape: Shape) -> tuple[list[Resource], str | None]:
    """Return one page of jobs, and the token of the next."""
    query = _query(call, shape)
    if "WarmPoolStatusEquals" in shape:
        return _find_with_pool(call, query, shape["WarmPoolStatusEquals"])
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


def _find_with_pool(call: Call, query: Query, status: str) -> tuple[list[Resource], str | None]:
    """Return one page of jobs whose warm pool has this status. It depends on the time, so no index has it."""
    found: list[Resource] = []
    batch = replace(query, limit=_BATCH)
    for _ in range(MAX_SCANNED // _BATCH):
        page = call.yard.records.find(batch)
        for number, resource in enumerate(page.resources, 1):
            pool = pool_of(job_of(resource), now=call.now)
            if pool is None or pool.status != status:
                continue
            found.append(resource)
            if len(found) == query.limit:
                # The token of a page that ends exactly here.
                return found, call.yard.records.find(replace(batch, limit=number)).next_after
        if page.next_after is None:
            return found, None
        batch = replace(batch, after=page.next_after)
    return found, batch.after
