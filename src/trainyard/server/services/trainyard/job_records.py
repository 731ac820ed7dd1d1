"""DescribeJobRecord: what a job read, ran and wrote, and whether its inputs are still the same."""

import json

from trainyard.foundation.errors import NotFound
from trainyard.foundation.jobs.contents import SourceContent
from trainyard.server.lineage.environments import packages_in
from trainyard.server.lineage.job_records import KIND, JobRecord, job_record_of, node_name
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.visibility import load_visible
from trainyard.server.source_contents import SourceContents


def describe_job_record(call: Call, shape: Shape) -> Shape:
    """Return what an ended job read, ran and wrote; on request, with what is at its inputs now."""
    try:
        resource = load_visible(call, KIND, node_name(shape["TrainingJobName"]))
    except NotFound as error:
        # Under the name that the caller knows.
        raise NotFound("job record", shape["TrainingJobName"]) from error
    record, account = job_record_of(resource), resource.key.account
    checks = shape.get("ChecksInputs", False)
    return {
        "TrainingJobName": record.job,
        "TrainingJobArn": record.job_arn,
        "NodeArn": record.node_arn,
        "CreationTime": record.created_at,
        "Status": record.status,
        "Image": record.image,
        "Inputs": [_content(each) | (_now(call, each, account) if checks else {}) for each in record.inputs],
        "Code": _code(call, record, account, checks=checks),
        "Commit": record.commit or None,
        "Repository": record.repository or None,
        "Packages": list(packages_in(call.yard.records, account, record.environment)),
        "Metrics": [{"MetricName": name, "Value": value} for name, value in record.metrics.items()],
        "Outputs": [_content(each) for each in record.outputs],
        "Request": json.dumps(record.request),
    }


OPERATIONS: Operations = {"DescribeJobRecord": describe_job_record}


def _content(each: SourceContent) -> Shape:
    return {
        "Name": each.name,
        "Uri": each.uri,
        "Digest": each.digest or None,
        "Objects": each.objects,
        "SizeInBytes": each.size_bytes,
    }


def _code(call: Call, record: JobRecord, account: str, *, checks: bool) -> Shape | None:
    if record.code is None:
        return None
    if not checks:
        return _content(record.code)
    now = SourceContents(call.yard.objects).read_object(record.code.name, record.code.uri, account)
    return _content(record.code) | {"State": _state(record.code, now)}


def _now(call: Call, each: SourceContent, account: str) -> Shape:
    """Return whether an input is still what the job read."""
    return {"State": _state(each, SourceContents(call.yard.objects).read_prefix(each.name, each.uri, account))}


def _state(then: SourceContent, now: SourceContent) -> str:
    if not then.digest:
        return "Unknown"
    if not now.digest:
        return "Gone"
    return "Same" if then.digest == now.digest else "Changed"
