"""The agent's side of the debugger: the state of each rule, the reports about it, and the stop that a rule asks for.

Every rank evaluates rules by itself, and rule processes evaluate what no rank can. Their events make up one state per
rule: an issue that one of them finds counts for all. The agent carries out a stop itself, whether the yard is running
or not, and stops the other instances of the job through their mailboxes.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.reports import now_us
from trainyard.instance.agent.siblings import Siblings
from trainyard.instance.agent.watch.event_server import EventServer
from trainyard.link.contract import CommandKind, DebuggerSpec, RuleSpec
from trainyard.link.event_protocol import WANTED, AgentEvent, AgentEventKind
from trainyard.link.folders import host_path
from trainyard.link.mailbox import Mailbox
from trainyard.link.spec_queries import stops_training, wants_checkpoint

# Between two reports of the same rule, except for its first issue.
_REPORT_INTERVAL_S = 1.0
# Between two reports of how many steps a rule has evaluated: this at first, and ever more in a long training, because
# each of them stays in the spool.
_COUNT_INTERVAL_S, _MAX_COUNT_INTERVAL_S = 2.0, 60.0
_COUNT_INTERVAL_GROWTH = 1.5
# How long a stop waits for the checkpoint that the rule asks for.
_CHECKPOINT_S = 30.0
# How long a stop waits for other ranks, which may have found the cause of the issue.
_SETTLE_S = 0.5
# How long the yard has to stop all instances at once, when agents cannot reach each other's mailboxes.
_YARD_STOP_S = 2.0
_GRADIENT = "gradient/"
_MAX_NOTES = 20
# Findings of one rule that wait to be reported.
_MAX_PENDING = 20
# Of one instance; a program could name any number.
_MAX_WORKERS = 1024
_TEXT_LIMIT = 1024
# Must equal the name in formats/tensors/recordings/layout.py, which would import numpy.
_ENDED = "ended.json"
_MAX_FINDING_BYTES = 64 * 1024
# Of the states that workers report for a rule, the last in this order counts for all. Others are ignored.
_SEVERITY = (
    RuleStatus.NO_ISSUES_FOUND,
    RuleStatus.STOPPED,
    RuleStatus.IN_PROGRESS,
    RuleStatus.ERROR,
    RuleStatus.ISSUES_FOUND,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RuleStop:
    """Why the program must be stopped, by which rule, and when.

    `order` is smaller the nearer the finding is to the cause. `is_reported` means that the yard was asked to stop.
    """

    reason: str
    rule: str
    at: float
    order: tuple[int, bool] = (0, False)
    is_reported: bool = False


@dataclass(slots=True)
class _WorkerRuleState:
    status: RuleStatus = RuleStatus.IN_PROGRESS
    details: str = ""
    judged: int = 0
    dropped: int = 0


@dataclass(slots=True)
class _AgentRuleState:
    """The state of one rule over all workers that evaluate it."""

    workers: dict[str, _WorkerRuleState] = field(default_factory=dict)
    pending: list[Mapping[str, Any]] = field(default_factory=list)
    reported: Mapping[str, Any] = field(default_factory=dict)
    next_at: float = 0.0
    next_count_at: float = 0.0
    count_interval_s: float = _COUNT_INTERVAL_S

    @property
    def worst(self) -> _WorkerRuleState:
        return max(self.workers.values(), key=lambda each: _SEVERITY.index(each.status))

    @property
    def payload(self) -> dict[str, Any]:
        worst = self.worst
        return {
            "status": worst.status.value,
            "details": worst.details,
            "judged": max(each.judged for each in self.workers.values()),
            "dropped": sum(each.dropped for each in self.workers.values()),
        }


class Debugger:
    """Handles the events of the hook and the rule processes while the program runs. Used by one thread.

    `stop_reason` is why a rule stops the program, or None.
    """

    def __init__(self, context: InstanceContext, debugger: DebuggerSpec) -> None:
        folder, spec = context.folder, context.spec
        self.spec = debugger
        self.stop_reason: str | None = None
        self._folder = folder
        self._job = spec.job_name
        self._reports = context.reports
        self._siblings = Siblings(folder, spec)
        self._asks_yard = bool(spec.node) and len(spec.hosts) > 1
        self._settle_s = _SETTLE_S if sum(spec.launch.processes.values()) > 1 else 0.0
        self._tensors = host_path(folder, spec, debugger.tensors.path)
        self._rules = {rule.name: rule for rule in debugger.rules}
        self._states: dict[str, _AgentRuleState] = {}
        self._dropped: dict[str, int] = {}
        self._notes: set[str] = set()
        self._stop: RuleStop | None = None
        self._poll_callback: Callable[[], None] = lambda: None
        self._events = EventServer(folder, context.owner)

    @property
    def rules(self) -> Sequence[RuleSpec]:
        return list(self._rules.values())

    def on_poll(self, callback: Callable[[], None]) -> None:
        """Call `callback` with every poll from now on."""
        self._poll_callback = callback

    def fileno(self) -> int:
        """A descriptor that is readable when events are waiting."""
        return self._events.fileno()

    def poll(self, now: float) -> str | None:
        """Handle waiting events. Return why the program must be stopped, once that is due."""
        for event in self._events.read_events():
            self._handle_event(event, now)
        self._poll_callback()
        self._report(now)
        if self._stop is not None and now >= self._stop.at and self.stop_reason is None:
            self._stop_all(self._stop, now)
        return self.stop_reason

    def drain_events(self, now: float) -> None:
        """Handle the last events, after all senders have ended."""
        for event in self._events.drain():
            self._handle_event(event, now)

    def fail(self, rules: Sequence[str], why: str) -> None:
        """Mark rules as failed: nothing can evaluate them any more."""
        for name in rules:
            state = self._states.setdefault(name, _AgentRuleState())
            own = state.workers.setdefault("", _WorkerRuleState())
            own.status, own.details = RuleStatus.ERROR, why[:_TEXT_LIMIT]

    def conclude(self, status: RuleStatus) -> None:
        """Report the final state of all rules; those still in progress get `status`.

        If the training was stopped, a rule that found nothing has not seen all of it, so it gets `status` too. A rule
        that nothing has evaluated is not reported; what that means depends on the whole job.
        """
        undecided = {RuleStatus.IN_PROGRESS, *([RuleStatus.NO_ISSUES_FOUND] if status is RuleStatus.STOPPED else [])}
        for state in self._states.values():
            for worker in state.workers.values():
                if worker.status in undecided:
                    worker.status = status
        for _ in range(_MAX_PENDING + 1):
            self._report(0.0, is_last=True)

    def mark_end(self) -> None:
        """Tell readers of the tensors that no more will come, whether or not the program did."""
        root, path = self._tensors
        # If this fails, readers notice by themselves that nothing comes.
        with suppress(OSError), ConfinedFolder.open(root, path) as folder:
            folder.replace_file(_ENDED, json.dumps({"at_us": now_us()}).encode())

    def note(self, text: str) -> None:
        """Report a note from the program, once, up to a limit."""
        if len(self._notes) < _MAX_NOTES and text not in self._notes:
            self._notes.add(text)
            self._reports.note(text)

    def close(self) -> None:
        self._events.close()

    def _handle_event(self, event: AgentEvent, now: float) -> None:
        payload = event.payload
        if event.kind is AgentEventKind.RULE:
            self._handle_rule(payload, now)
        elif event.kind is AgentEventKind.PROGRESS:
            if (worker := _worker_name(payload, self._dropped)) is not None:
                self._dropped[worker] = _count(payload.get("dropped"))
        elif event.kind is AgentEventKind.SAVED:
            self._handle_saved_checkpoint(payload, now)
        else:
            self.note(_text(payload.get("text")))

    def _handle_rule(self, payload: Mapping[str, Any], now: float) -> None:
        rule = self._rules.get(_text(payload.get("rule")))
        status = payload.get("status")
        if rule is None or status not in _SEVERITY:
            return
        state = self._states.setdefault(rule.name, _AgentRuleState())
        name = _worker_name(payload, state.workers)
        if name is None:
            return
        worker = state.workers.setdefault(name, _WorkerRuleState())
        # An issue that was found stays found.
        if worker.status is not RuleStatus.ISSUES_FOUND:
            worker.status = RuleStatus(status)
        worker.details = _text(payload.get("details"))
        worker.judged = _count(payload.get("judged"))
        worker.dropped = _count(payload.get("dropped"))
        finding = payload.get("finding")
        if isinstance(finding, dict) and len(state.pending) < _MAX_PENDING:
            state.pending.append(_limit_size(finding))
        if worker.status is RuleStatus.ISSUES_FOUND and self.stop_reason is None:
            self._schedule_stop(rule, finding if isinstance(finding, dict) else {}, details=worker.details, now=now)

    def _schedule_stop(self, rule: RuleSpec, finding: Mapping[str, Any], *, details: str, now: float) -> None:
        if not stops_training(rule, self._job):
            return
        reason, order = _reason(rule, finding, details), _order(finding)
        if self._stop is not None:
            # When several ranks find the same, the event of the one where it began may arrive later.
            if finding and order < self._stop.order:
                self._stop = replace(self._stop, reason=reason, rule=rule.name, order=order)
            return
        if not wants_checkpoint(rule, self._job):
            self._stop = RuleStop(reason, rule.name, now + self._settle_s, order)
            return
        self._stop = RuleStop(reason, rule.name, now + _CHECKPOINT_S, order)
        request = {"checkpoint": _count(finding.get("step")), "rule": rule.name}
        # If this fails, the stop comes without a checkpoint.
        with suppress(OSError), ConfinedFolder.open(self._folder.ml) as ml:
            ml.replace_file(WANTED, json.dumps(request).encode())

    def _handle_saved_checkpoint(self, payload: Mapping[str, Any], now: float) -> None:
        if self._stop is None or self._stop.is_reported or self.stop_reason is not None:
            return
        why, path = _text(payload.get("why")), _text(payload.get("path"))
        self._reports.note(
            f"No checkpoint was saved before the stop: {why}" if why else f"{path} was saved before the stop."
        )
        self._stop = replace(self._stop, at=now)

    def _report(self, now: float, *, is_last: bool = False) -> None:
        """Report what changed: the status of a rule, its findings, and from time to time how much it evaluated."""
        for name, state in self._states.items():
            payload = state.payload
            payload["dropped"] = max(payload["dropped"], sum(self._dropped.values()))
            changed = {member for member, value in payload.items() if state.reported.get(member) != value}
            is_first_issue = "status" in changed and payload["status"] == RuleStatus.ISSUES_FOUND
            # Another report would replace the one that asks the yard to stop all instances.
            counts = is_last or (now >= state.next_count_at and self._stop is None)
            has_news = bool(state.pending) or bool(changed if counts else changed & {"status", "details"})
            if not has_news or (now < state.next_at and not is_first_issue and not is_last):
                continue
            finding = state.pending.pop(0) if state.pending else None
            self._reports.report_rule({"rule": name, **payload, "finding": finding})
            state.reported, state.next_at = payload, now + _REPORT_INTERVAL_S
            state.next_count_at = now + state.count_interval_s
            state.count_interval_s = min(_MAX_COUNT_INTERVAL_S, state.count_interval_s * _COUNT_INTERVAL_GROWTH)

    def _stop_all(self, stop: RuleStop, now: float) -> None:
        """Stop the program here and on the siblings. On several nodes, ask the yard to send the commands."""
        if self._asks_yard and not stop.is_reported:
            payload = self._states[stop.rule].payload
            self._reports.report_rule({"rule": stop.rule, **payload, "finding": None, "stops": True})
            self._stop = replace(stop, at=now + _YARD_STOP_S, is_reported=True)
            return
        self.stop_reason = stop.reason
        if not self._asks_yard:
            self._stop_siblings(stop.reason)

    def _stop_siblings(self, reason: str) -> None:
        for name in self._siblings.running_hosts():
            try:
                Mailbox(self._siblings[name].mailbox).put(CommandKind.STOP, {"reason": reason})
            except OSError as error:
                # The yard stops it when it reads the report of this instance.
                log.warning("a sibling cannot be stopped", extra={"sibling": name, "why": error.strerror})


def _reason(rule: RuleSpec, finding: Mapping[str, Any], details: str) -> str:
    """Say which rule stopped the training, and where it found the issue."""
    step, tensor = finding.get("step"), _text(finding.get("tensor"))
    where = f" at step {step}" if isinstance(step, int) else ""
    what = f" in {tensor}" if tensor else ""
    message = _text(finding.get("message")) or details
    return f'The rule "{rule.name}" found an issue{where}{what} and stopped the training: {message}'[:_TEXT_LIMIT]


def _order(finding: Mapping[str, Any]) -> tuple[int, bool]:
    """Order findings by step, and within a step gradients last, because they spread from rank to rank."""
    return _count(finding.get("step")), _text(finding.get("tensor")).startswith(_GRADIENT)


def _worker_name(payload: Mapping[str, Any], workers: Mapping[str, object]) -> str | None:
    """The worker that sent an event; None for a new one beyond the limit of workers."""
    name = _text(payload.get("worker"))
    return name if name in workers or len(workers) < _MAX_WORKERS else None


def _text(value: object) -> str:
    return value[:_TEXT_LIMIT] if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**53 else 0


def _limit_size(finding: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(json.dumps(finding)) <= _MAX_FINDING_BYTES:
        return finding
    return {
        name: value for name, value in finding.items() if name != "evidence" and not isinstance(value, (dict, list))
    }
