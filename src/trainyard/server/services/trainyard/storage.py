"""DescribeStorage and ListJobStorage: what uses the disk, by user, bucket and job."""

from collections.abc import Iterator

from trainyard.foundation.confined import tree_size
from trainyard.link.environments import EnvironmentCache
from trainyard.link.package_downloads import PackageDownloads
from trainyard.objects.contract import CountsStorage
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Query, Resource
from trainyard.server.services.contract import Call, Operations, Shape

_PAGE = 100


def describe_storage(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - the request has no members
    """Describe the objects of each bucket, and the packages that jobs installed or downloaded."""
    objects, names = call.yard.objects, _user_names(call)
    uses = objects.bucket_uses(call.caller.scope) if isinstance(objects, CountsStorage) else ()
    return {
        "Buckets": [
            {
                "UserName": names.get(use.bucket.account, use.bucket.account),
                "BucketName": use.bucket.name,
                "Objects": use.objects,
                "Bytes": use.bytes,
            }
            for use in uses
        ],
        "Environments": list(_environments(call, names)),
        "FreeBytes": objects.reserve.free_bytes if isinstance(objects, CountsStorage) else None,
    }


def list_job_storage(call: Call, shape: Shape) -> Shape:
    """List the disk space that the files of each job use. The files are measured now."""
    names = _user_names(call)
    query = Query(
        KIND,
        account=call.caller.scope,
        descending=True,
        limit=shape.get("MaxResults", _PAGE),
        after=shape.get("NextToken", ""),
    )
    page = call.yard.records.find(query)
    return {"Jobs": [_job(call, resource, names) for resource in page.resources], "NextToken": page.next_after}


OPERATIONS: Operations = {"DescribeStorage": describe_storage, "ListJobStorage": list_job_storage}


def _user_names(call: Call) -> dict[str, str]:
    if not call.caller.is_admin:
        return {call.account: call.caller.user}
    return {each.account: each.name for each in call.yard.records.users()}


def _environments(call: Call, names: dict[str, str]) -> Iterator[Shape]:
    root = call.yard.compute.environments
    if root is None:
        return
    for account, user in sorted(names.items(), key=lambda each: each[1]):
        if (root / account).is_dir():
            cache = EnvironmentCache(root / account)
            entries = cache.entries()
            downloads = PackageDownloads(root / account).size_bytes()
            size = sum(each.size_bytes for each in entries) + cache.cache_size() + downloads
            yield {"UserName": user, "Environments": len(entries), "Bytes": size}


def _job(call: Call, resource: Resource, names: dict[str, str]) -> Shape:
    job = job_of(resource)
    return {
        "TrainingJobName": job.name,
        "UserName": names.get(job.account, job.account),
        "Status": str(job.status),
        "EndTime": job.ended_at,
        "FilesBytes": tree_size(call.yard.compute.jobs / resource.id),
        "ArtifactsBytes": sum(artifact.size for artifact in job.artifacts.values()),
    }
