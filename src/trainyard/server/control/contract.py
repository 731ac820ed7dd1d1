"""The contract for a kind of job. Training jobs, processing jobs and tuning jobs are its implementations.

A kind consists of six parts. Each part has one place, with one folder or module per kind:

1. *Request to plan.* `server/services/sagemaker/<kind>/creation.py` checks a create call and turns it into a job value
   with a frozen plan, from `foundation/jobs`. Nothing behind this border knows the words of the wire.
2. *States and transitions.* The job value (`JobValue`) has the status. Pure functions beside it return the job in its
   next status, and raise Conflict for a transition that is not legal.
3. *Storage.* `server/jobs/<kind>.py` (`JobStorage`) turns a job into a record and back. It says what to write when the
   job changes, and which events that makes.
4. *Scheduling demand.* A kind whose instances need capacity implements `SchedulableJobs` of `scheduling/contract.py`. A
   tuning job needs no capacity itself: its trials are training jobs.
5. *What its instances run.* A kind with instances makes one `InstanceSpec` for each (`InstanceSpecMaker`).
6. *Steps and the end.* A `JobKind` takes a job from step to step until it is final. After the last step nothing of the
   job runs, its credentials are revoked, its quotas are free again, and its result is stored.

`instances/` has parts 4 and 6 for every kind with instances. One `JobKind` there takes the steps with all of them,
because they share the queues. `Controller` drives every `JobKind` the same way. Reminders and rule actions are kinds
too, with only parts 3 and 6. `docs/contributing/adding-a-job-kind.md` walks through a whole kind.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from trainyard.engines.contract import Engine
from trainyard.foundation.jobs.attempts import Attempt
from trainyard.link.contract import InstanceSpec
from trainyard.server.records.contract import AccessKey, Change, Claim, Draft, NewEvent, Resource, ResourceId

Job = TypeVar("Job")
Value = TypeVar("Value")
SpecValue = TypeVar("SpecValue", contravariant=True)

# Wakes the controller for one job. The second argument is the id of the record that changed, or "" if none did, as when
# an agent has only reported something. Any thread may call it.
Wake = Callable[[ResourceId, str], None]


class JobValue(Protocol):
    """A job of some kind as a frozen value: what was asked for, its state, and its result.

    It is stored as a whole, so its fields keep their names from release to release. A final status stays.
    """

    @property
    def name(self) -> str: ...

    @property
    def arn(self) -> str: ...

    @property
    def account(self) -> str: ...

    @property
    def region(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...

    @property
    def site(self) -> str:
        """The yard that has its data, if several share one database. Only that yard drives it."""
        ...

    @property
    def status(self) -> str:
        """The primary status, in the words of AWS. It never goes backwards."""
        ...

    @property
    def is_final(self) -> bool: ...

    @property
    def stop_reason(self) -> str:
        """Why the job was asked to stop; empty if it was not."""
        ...

    @property
    def failure(self) -> str: ...


class JobStorage(Protocol[Value]):
    """How the jobs of one kind are stored. A module implements it, such as `server/jobs/training.py`. All are pure."""

    KIND: str

    def draft_of(self, job: Value, request: Mapping[str, Any], /, *, tags: Mapping[str, str]) -> Draft:
        """Return the record of a new job, due at once, with the request as it was sent."""
        ...

    def job_of(self, resource: Resource, /) -> Value:
        """Return the job of a record."""
        ...

    def change_to(self, resource: Resource, job: Value, /) -> Change:
        """Return what to write to store a job: its status, its queue state, and the quotas that its end frees."""
        ...

    def events_of(self, before: Value, after: Value, /) -> list[NewEvent]:
        """Return what happened between two states of a job, for everyone who follows it."""
        ...


class InstanceSpecMaker(Protocol[SpecValue]):
    """Makes what the instances of a job run. As long as the data stays the same, so do the specs."""

    def make_specs(
        self, job_id: str, job: SpecValue, attempt: Attempt, *, key: AccessKey, uid: int | None, engine: Engine
    ) -> Sequence[InstanceSpec]:
        """Make a spec for each instance. InvalidRequest if something that the job needs was deleted."""
        ...


class JobKind(Protocol[Job]):
    """The steps of one kind of job. `Job` is what the kind holds while it works on a job, at least a claim.

    The controller calls `open` and `close` on its event loop, so they must not block. It calls all other methods in
    threads: `claim_due` in one thread at a time, the others at once for different jobs, and for one job one after the
    other, except `extend_lease`, which is called while `step` runs.

    Any call may be the last one before the process is killed. So a step loads, works with nothing locked, and applies
    the result under the claim. Whoever claims the job after the lease has expired takes the same step again, so every
    effect outside the records must be safe to repeat.
    """

    @property
    def record_kind(self) -> str:
        """What logs call these jobs: the kind of their records, if they have only one."""
        ...

    @property
    def lease(self) -> timedelta:
        """How long a job stays claimed if its yard is killed. A step that takes longer has its lease extended."""
        ...

    @property
    def poll_interval(self) -> timedelta:
        """How long to wait between two looks for due jobs if nothing wakes the controller."""
        ...

    @property
    def max_concurrent(self) -> int | None:
        """How many jobs may be driven at once; None means no limit."""
        ...

    def open(self, wake: Wake) -> None:
        """Start to listen for changes that the wake signal does not report, and call `wake` for each."""

    def close(self) -> None:
        """Stop listening. Called once, after the last job was released."""

    def job_id(self, job: Job) -> ResourceId:
        """Return the id of the record of a job."""
        ...

    def claim_due(self) -> Iterator[Job]:
        """Claim the jobs that are due and that nobody works on, one after the other.

        The controller starts to drive each job before it asks for the next one. It stops asking at `max_concurrent`.
        """
        ...

    def step(self, job: Job, changed: Collection[str], /) -> Job | None:
        """Take one step with a job; return it as it is now, or None when it has ended or the lease is lost.

        `changed` has the ids of the records that others changed since the last step. If the step raises an error, the
        controller takes it again after a pause, with the same ids and those that changed since.
        """
        ...

    def pause_s(self, job: Job, /) -> float:
        """Return how many seconds to wait before the next step if nothing wakes the controller."""
        ...

    def extend_lease(self, job: Job) -> None:
        """Renew the lease of a job whose step takes long. A kind whose steps are always short does nothing."""

    def release(self, job: Job, *, is_held: bool) -> None:
        """Give a job up for now.

        `is_held` is true when the controller is closing and the job is still claimed; the claim is then given back, so
        that the next controller need not wait for the lease to expire. Otherwise `job` is as the last step found it.
        """


class OneStepKind:
    """A base for kinds whose jobs need one short step: nothing to listen to, and no lease to extend or give back.

    A job whose step was not taken is claimed again when its lease has expired.
    """

    def open(self, wake: Wake) -> None:
        """Do nothing: there are no other changes to listen for."""

    def close(self) -> None:
        """Do nothing."""

    def job_id(self, job: Claim) -> ResourceId:
        return job.resource.id

    def pause_s(self, _job: Claim, /) -> float:
        return 0.0

    def extend_lease(self, job: Claim) -> None:
        """Do nothing: the lease is longer than any step."""

    def release(self, job: Claim, *, is_held: bool) -> None:
        """Do nothing: the step has deleted or released the record."""
