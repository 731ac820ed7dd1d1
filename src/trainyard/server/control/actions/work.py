"""Carries out the actions that rules asked for, one claim each, and tries again what was not taken."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.jobs import Status
from trainyard.foundation.plain import to_plain
from trainyard.foundation.transitions import ask_to_stop
from trainyard.server.actions import KIND, ActionStatus, RuleAction, action_of, event_of
from trainyard.server.control.actions.asking import BY_RULE
from trainyard.server.control.actions.delivery import NotTaken, deliver, is_delivered
from trainyard.server.gateways import Gateways
from trainyard.server.jobs import KIND as JOBS
from trainyard.server.jobs import change_to, events_of, job_of
from trainyard.server.records.contract import Change, Claim, Query, Records, Resource, ResourceKey

log = logging.getLogger(__name__)

INTERVAL = timedelta(seconds=0.5)
AT_ONCE = 8  # so that one gateway that does not answer keeps no others waiting
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=5)  # between two tries

_LEASE = timedelta(seconds=10)  # beyond the limit of a try


@dataclass(frozen=True, slots=True)
class ActionWork:
    """The actions of all jobs. Several yards on one database may share them; each is done under a claim."""

    records: Records
    gateways: Gateways
    clock: Clock
    worker: str
    wake: Callable[[str], None]

    async def watch(self) -> None:
        """Carry out what is due, until this is cancelled."""
        going: set[asyncio.Task[None]] = set()
        while True:
            try:
                while len(going) < AT_ONCE and (claim := await asyncio.to_thread(self.claim)) is not None:
                    task = asyncio.create_task(asyncio.to_thread(self._safely_act, claim))
                    going.add(task)
                    task.add_done_callback(going.discard)
            except TrainyardError:
                log.warning("actions cannot be seen to; it is tried again", exc_info=True)
            await asyncio.sleep(INTERVAL.total_seconds())

    def claim(self) -> Claim | None:
        lease = self.gateways.timeout + _LEASE
        return self.records.claim_next(KIND, worker=self.worker, lease=lease, now=self.clock())

    def act(self, claim: Claim) -> ActionStatus:
        """Try an action once, and remember what came of it."""
        action, now = action_of(claim.resource), self.clock()
        tried = replace(action, tries=action.tries + 1, at=now)
        try:
            told = self._done(claim.resource, action, now=now)
        except NotTaken as error:
            return self._not_taken(claim, replace(tried, told=error.message), is_final=error.is_final)
        return self._apply(claim, replace(tried, told=told), ActionStatus.DONE)

    def _safely_act(self, claim: Claim) -> None:
        try:
            self.act(claim)
        except TrainyardError:  # of the records; the claim runs out, and the action is tried again
            log.warning("an action could not be remembered", exc_info=True, extra={"id": claim.resource.id})
        except Exception as error:  # the edge of the task
            log.exception("an action failed", extra={"id": claim.resource.id})
            action = action_of(claim.resource)
            tried = replace(action, tries=action.tries + 1, at=self.clock(), told=f"It failed: {error!r}")
            self._not_taken(claim, tried, is_final=False)

    def _done(self, resource: Resource, action: RuleAction, *, now: datetime) -> str:
        if is_delivered(action.name):
            return deliver(action, self.gateways, now=now)
        return self._stop_by_prefix(resource.key.account, action, now=now)

    def _not_taken(self, claim: Claim, action: RuleAction, *, is_final: bool) -> ActionStatus:
        now = self.clock()
        if is_final or now - action.asked_at > self.gateways.patience:
            return self._apply(claim, action, ActionStatus.FAILED)
        pause = min(FIRST_PAUSE * 2 ** min(action.tries - 1, 16), LONGEST_PAUSE)
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
            many = "No job that is" if not found else "More than one job that is"
            raise NotTaken(f'{many} InProgress begins with "{prefix}", so that none was stopped.', is_final=True)
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
            after = ask_to_stop(job, BY_RULE, at=now, message=message[:500])
            if self.records.apply(resource, change_to(resource, after), now=now, events=events_of(job, after)):
                self.wake(resource.id)
                return f"{name} was told to stop."
