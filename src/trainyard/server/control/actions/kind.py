"""Carries out the actions that rules asked for, and retries those that failed."""

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.jobs.status import Status
from trainyard.foundation.jobs.training.transitions import ask_to_stop
from trainyard.foundation.plain import to_plain
from trainyard.server.control.actions.delivery import DeliveryFailed, deliver, is_message
from trainyard.server.control.actions.triggers import STOPPED_BY_RULE
from trainyard.server.control.contract import OneStepKind
from trainyard.server.gateways import Gateways
from trainyard.server.jobs.rule_actions import KIND, ActionStatus, RuleAction, action_of, event_of
from trainyard.server.jobs.training import KIND as JOBS
from trainyard.server.jobs.training import change_to, events_of, job_of
from trainyard.server.records.contract import Change, Claim, Query, Records, Resource, ResourceKey

log = logging.getLogger(__name__)

POLL_INTERVAL = timedelta(seconds=0.5)
MAX_CONCURRENT = 8  # so that one gateway that does not answer does not delay all other actions
FIRST_RETRY, LONGEST_RETRY = timedelta(seconds=1), timedelta(minutes=5)

_LEASE_MARGIN = timedelta(seconds=10)  # beyond the timeout of one try


@dataclass(frozen=True)
class RuleActionKind(OneStepKind):
    """The rule actions of all jobs. Each step is one try. Several yards on one database may share them."""

    records: Records
    gateways: Gateways
    clock: Clock
    worker: str
    wake: Callable[[str], None]

    @property
    def record_kind(self) -> str:
        return KIND

    @property
    def lease(self) -> timedelta:
        return self.gateways.timeout + _LEASE_MARGIN

    @property
    def poll_interval(self) -> timedelta:
        return POLL_INTERVAL

    @property
    def max_concurrent(self) -> int | None:
        return MAX_CONCURRENT

    def claim_due(self) -> Iterator[Claim]:
        while (claim := self.claim()) is not None:
            yield claim

    def step(self, job: Claim, _changed: Collection[str], /) -> None:
        """Try an action once. A try that fails is repeated under a later claim, so this raises nothing."""
        try:
            self.act(job)
        except TrainyardError:
            # The records failed. The claim expires, and the action is tried again.
            log.warning("the result of an action could not be stored", exc_info=True, extra={"id": job.resource.id})
        except Exception as error:
            log.exception("an action failed", extra={"id": job.resource.id})
            action = action_of(job.resource)
            tried = replace(action, tries=action.tries + 1, at=self.clock(), told=f"It failed: {error!r}")
            self._retry_or_fail(job, tried, is_final=False)

    def claim(self) -> Claim | None:
        """Claim an action that is due."""
        return self.records.claim_next(KIND, worker=self.worker, lease=self.lease, now=self.clock())

    def act(self, claim: Claim) -> ActionStatus:
        """Try an action once, and store the result."""
        action, now = action_of(claim.resource), self.clock()
        tried = replace(action, tries=action.tries + 1, at=now)
        try:
            result = self._perform(claim.resource, action, now=now)
        except DeliveryFailed as error:
            return self._retry_or_fail(claim, replace(tried, told=error.message), is_final=error.is_final)
        return self._apply(claim, replace(tried, told=result), ActionStatus.DONE)

    def _perform(self, resource: Resource, action: RuleAction, *, now: datetime) -> str:
        if is_message(action.name):
            return deliver(action, self.gateways, now=now)
        return self._stop_by_prefix(resource.key.account, action, now=now)

    def _retry_or_fail(self, claim: Claim, action: RuleAction, *, is_final: bool) -> ActionStatus:
        now = self.clock()
        if is_final or now - action.asked_at > self.gateways.patience:
            return self._apply(claim, action, ActionStatus.FAILED)
        pause = min(FIRST_RETRY * 2 ** min(action.tries - 1, 16), LONGEST_RETRY)
        return self._apply(claim, action, ActionStatus.DUE, due_at=now + pause)

    def _apply(
        self, claim: Claim, action: RuleAction, status: ActionStatus, *, due_at: datetime | None = None
    ) -> ActionStatus:
        is_news = action != action_of(claim.resource)
        events = [event_of(action, status)] if is_news else []
        change = Change(status=status, body=to_plain(action), due_at=due_at)
        self.records.apply_claimed(claim, change, now=self.clock(), events=events, release=True)
        if is_news:
            seen = {"job": action.job, "rule": action.rule, "action": action.name, "status": status}
            log.info("rule action", extra={**seen, "tries": action.tries})
        return status

    def _stop_by_prefix(self, account: str, action: RuleAction, *, now: datetime) -> str:
        prefix = action.action.get("training_job_prefix", "")
        query = Query(JOBS, account=account, status=Status.IN_PROGRESS, name_prefix=prefix, limit=2)
        found = [each.key.name for each in self.records.find(query).resources]
        if len(found) != 1:
            number = "No" if not found else "More than one"
            raise DeliveryFailed(
                f'{number} job that is InProgress has a name that begins with "{prefix}"; none was stopped.',
                is_final=True,
            )
        return self._stop(account, found[0], why=action, now=now)

    def _stop(self, account: str, name: str, *, why: RuleAction, now: datetime) -> str:
        key = ResourceKey(account, JOBS, name)
        while True:
            try:
                resource = self.records.load(key)
            except NotFound:
                return f"{name} was gone."
            job = job_of(resource)
            if job.status is not Status.IN_PROGRESS:
                return f"{name} was {job.status} already."
            message = f"Rule {why.rule} of {why.job} stops the training job: {why.details}"
            after = ask_to_stop(job, STOPPED_BY_RULE, at=now, message=message[:500])
            if self.records.apply(resource, change_to(resource, after), now=now, events=events_of(job, after)):
                self.wake(resource.id)
                return f"{name} was asked to stop."
