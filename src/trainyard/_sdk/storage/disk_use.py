"""What uses the disk of a yard, by user and job."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainyard._sdk.connection import Api

_PAGE = 200


@dataclass(frozen=True, slots=True)
class JobUse:
    """The files of one job in the home folder, and its artifacts, which are also objects of a bucket."""

    name: str
    user: str
    status: str
    ended_at: datetime | None
    files_bytes: int
    artifacts_bytes: int


@dataclass(slots=True)
class UserUse:
    """What one user's data uses."""

    objects_bytes: int = 0
    jobs_bytes: int = 0
    jobs: int = 0
    environments_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.objects_bytes + self.jobs_bytes + self.environments_bytes


@dataclass(slots=True)
class DiskUse:
    """What uses the disk: by user, by bucket, and the jobs with the largest files. `free_bytes` may be unknown."""

    buckets: Sequence[Mapping[str, Any]]
    users: Mapping[str, UserUse] = field(default_factory=lambda: defaultdict(UserUse))
    largest_jobs: list[JobUse] = field(default_factory=list)
    free_bytes: int | None = None


def measure_disk_use(api: Api, *, jobs: int) -> DiskUse:
    """Measure what the caller can see, page by page. Of the jobs, the `jobs` with the largest files are returned."""
    answer = api.call("trainyard", "DescribeStorage")
    users: Mapping[str, UserUse] = defaultdict(UserUse)
    for bucket in answer["Buckets"]:
        users[bucket["UserName"]].objects_bytes += bucket["Bytes"]
    for environments in answer["Environments"]:
        users[environments["UserName"]].environments_bytes += environments["Bytes"]
    use = DiskUse(answer["Buckets"], users, free_bytes=answer.get("FreeBytes"))
    request: dict[str, Any] = {"MaxResults": _PAGE}
    while True:
        page = api.call("trainyard", "ListJobStorage", **request)
        found = [_job(each) for each in page["Jobs"]]
        for job in found:
            users[job.user].jobs_bytes += job.files_bytes
            users[job.user].jobs += 1
        ordered = sorted([*use.largest_jobs, *found], key=lambda job: job.files_bytes, reverse=True)
        use.largest_jobs = ordered[:jobs]
        if not page.get("NextToken"):
            return use
        request["NextToken"] = page["NextToken"]


def _job(use: Mapping[str, Any]) -> JobUse:
    return JobUse(
        use["TrainingJobName"],
        use["UserName"],
        use["Status"],
        use.get("EndTime"),
        use["FilesBytes"],
        use["ArtifactsBytes"],
    )
