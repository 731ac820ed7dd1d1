"""Where a waiting job stands in its queue, and why it waits."""

from dataclasses import dataclass, field
from functools import cached_property

from trainyard.engines.contract import Engine
from trainyard.foundation.errors import NotFound
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.server.jobs.instance_job_kinds import instance_job_of
from trainyard.server.jobs.summaries import JobSummary
from trainyard.server.services.contract import Shape, Yard
from trainyard.server.services.trainyard.queues import QueueSnapshot, current_capacity, load_queues, queue_position


@dataclass
class WaitingJobs:
    """Describes waiting jobs. The queues are read once, when the first is described."""

    yard: Yard
    _capacities: dict[str, tuple[int, str]] = field(default_factory=dict)

    def describe(self, job: JobSummary) -> Shape:
        """Return QueuePosition and WaitReason, or nothing if the job no longer waits."""
        engines = self.yard.compute.engines
        name = job.engine or engines.default.name
        if name not in engines:
            return {
                "WaitReason": f"This yard was started without the engine {name}; the job continues when the yard has "
                "it again."
            }
        try:
            position = queue_position(self.yard, instance_job_of(self.yard.records.load_by_id(job.id)))
        except NotFound:
            return {}
        return {"QueuePosition": position, "WaitReason": self._reason(job, engines[name], position)}

    def _reason(self, job: JobSummary, engine: Engine, position: int) -> str:
        slots, obstacle = self._capacity(engine)
        if obstacle:
            return f"The engine {engine.name} is not available: {obstacle}"
        begin = "It was interrupted and continues" if job.secondary == SecondaryStatus.INTERRUPTED else "It starts"
        if position > 1:
            ahead = "1 job is" if position == 2 else f"{position - 1} jobs are"
            return f"{ahead} ahead of it in the queue of {engine.name}."
        used = self._queue(engine.name).instances
        wanted = " and ".join(f"{count} of {name}" for name, count in job.instance_types.items())
        if used >= slots:
            return f"{begin} when {wanted} fits; all {slots} slots of {engine.name} are in use."
        return f"{begin} next, when {wanted} fits; {used} of {slots} slots of {engine.name} are in use."

    def _capacity(self, engine: Engine) -> tuple[int, str]:
        if engine.name not in self._capacities:
            capacity = current_capacity(engine)
            self._capacities[engine.name] = (capacity.slots, capacity.obstacle)
        return self._capacities[engine.name]

    def _queue(self, engine: str) -> QueueSnapshot:
        return next(queue for queue in self._queues if engine in queue.engines)

    @cached_property
    def _queues(self) -> list[QueueSnapshot]:
        return list(load_queues(self.yard))
