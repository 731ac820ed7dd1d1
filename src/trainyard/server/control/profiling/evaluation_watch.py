"""Brings evaluations forward when their jobs begin to train, or end.

The records report each change of a job, and most changes are none of these. So a change is only remembered, and looked
at in the next poll. What is missed, because another process made it, is found when the evaluation is due anyway.
"""

from dataclasses import dataclass
from datetime import datetime

from trainyard.foundation.errors import NotFound
from trainyard.foundation.jobs.status import FINAL, PRIMARY, SecondaryStatus
from trainyard.server.jobs.profile_evaluations import evaluation_of, key_of_job
from trainyard.server.records.contract import Change, Records, Resource, ResourceId


@dataclass(frozen=True, slots=True)
class _Watched:
    """The evaluation of a job, whether it was evaluated before, and its status when the evaluation was last due."""

    evaluation: ResourceId
    status: str
    is_begun: bool


class EvaluationWatch:
    """The jobs whose evaluations wait. `handle_change` may be called by any thread, the rest by one at a time."""

    def __init__(self) -> None:
        self._watched: dict[ResourceId, _Watched] = {}
        self._changed: set[ResourceId] = set()
        self._is_loaded = False

    def handle_change(self, changed: ResourceId) -> None:
        """Remember that a job has changed; most changes are of no watched one."""
        if changed in self._watched:
            self._changed.add(changed)

    def add(self, job: Resource, evaluation: ResourceId, *, is_begun: bool) -> None:
        """Watch a job as it was read."""
        self._watched[job.id] = _Watched(evaluation, _secondary(job), is_begun)
        # It may have changed since then.
        self._changed.add(job.id)

    def remove(self, job_id: ResourceId) -> None:
        self._watched.pop(job_id, None)

    def bring_forward(self, records: Records, kind: str, *, now: datetime) -> None:
        """Make the evaluations due whose jobs have begun to train, or ended."""
        if not self._is_loaded:
            self._load(records, kind)
        while self._changed:
            job_id = self._changed.pop()
            watched = self._watched.get(job_id)
            if watched is None:
                continue
            try:
                status = _secondary(records.load_by_id(job_id))
                if _matters(watched, status):
                    self.remove(job_id)
                    evaluation = records.load_by_id(watched.evaluation)
                    records.apply(evaluation, Change(due_at=now, is_quiet=True), now=now)
            except NotFound:
                self.remove(job_id)

    def _load(self, records: Records, kind: str) -> None:
        """Watch the jobs of all evaluations, when the yard has started."""
        for resource in records.in_state(kind):
            try:
                job = records.load(key_of_job(resource))
            except NotFound:
                continue
            self._watched.setdefault(job.id, _Watched(resource.id, "", evaluation_of(resource).count > 0))
            self._changed.add(job.id)
        self._is_loaded = True


def _matters(watched: _Watched, status: str) -> bool:
    if status == watched.status:
        return False
    return PRIMARY[SecondaryStatus(status)] in FINAL or (status == SecondaryStatus.TRAINING and not watched.is_begun)


def _secondary(job: Resource) -> str:
    status: str = job.body["job"]["transitions"][-1]["status"]
    return status
