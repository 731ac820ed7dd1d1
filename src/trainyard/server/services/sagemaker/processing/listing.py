"""ListProcessingJobs."""

from trainyard.server.jobs.processing import KIND
from trainyard.server.records.contract import Query, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.processing.description import processing_job_summary

# The default of AWS.
PAGE = 10

_ORDERS = {"Name": SortBy.NAME, "CreationTime": SortBy.CREATED, "Status": SortBy.STATUS}


def list_processing_jobs(call: Call, shape: Shape) -> Shape:
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
    shown: Shape = {"ProcessingJobSummaries": [processing_job_summary(each) for each in page.resources]}
    return shown | ({"NextToken": page.next_after} if page.next_after else {})


OPERATIONS: Operations = {"ListProcessingJobs": list_processing_jobs}
