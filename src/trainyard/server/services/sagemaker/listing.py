"""ListTrainingJobs."""

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.jobs import KIND
from trainyard.server.records.contract import Query, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.described import summarised

PAGE = 10  # what AWS gives when it is not asked for a number

_ORDERS = {"Name": SortBy.NAME, "CreationTime": SortBy.CREATED, "Status": SortBy.STATUS}


def list_training_jobs(call: Call, shape: Shape) -> Shape:
    if "WarmPoolStatusEquals" in shape or "TrainingPlanArnEquals" in shape:
        raise InvalidRequest("Trainyard has neither warm pools nor training plans yet; list without filters on them.")
    query = Query(
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
    page = call.yard.records.find(query)
    shown = {"TrainingJobSummaries": [summarised(resource) for resource in page.resources]}
    return shown | ({"NextToken": page.next_after} if page.next_after else {})


OPERATIONS: Operations = {"ListTrainingJobs": list_training_jobs}
