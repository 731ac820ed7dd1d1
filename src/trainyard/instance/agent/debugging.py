"""The debugger as the agent has it: how each rule stands, what the yard is told of it, and when the program is stopped.

Every rank judges by itself, and a judge beside the program judges what no rank can. What they tell is one standing for
each rule: an issue that one of them finds is found. A stop is carried out here, whether there is a yard or not; the
other instances of the job are told by their mailboxes.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.rule_status import RuleStatus
from trainyard.instance.agent.hearing import Hearing
from trainyard.instance.agent.layout import Owner
from trainyard.instance.agent.reports import Reports, now_us
from trainyard.instance.agent.siblings import Siblings
from trainyard.link.actions import is_stop, wants_checkpoint
from trainyard.link.contract import CommandKind, DebuggerSpec, InstanceSpec, RuleSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.mailbox import Mailbox
from trainyard.link.places import place_of
from trainyard.link.told import WANTED, Told, ToldKind

_PAUSE_S = 1.0  # between two reports of the same rule, but for the first issue that it finds
_CHECKPOINT_S = 30.0  # in which a checkpoint that is wanted may be saved
_SETTLE_S = 0.5  # in which another rank may tell that it began there, where there are several
_YARD_S = 2.0  # in which the yard stops all instances at once, where the agents cannot tell each other
_GRADIENT = "gradient/"
_MOST_NOTES = 20  # of a program
_MOST_WAITING = 20  # findings of one rule that wait to be reported
_MOST_WORKERS = 1024  # of one instance; a program may tell of any number
_TEXT_LIMIT = 1024
_ENDED = "ended.json"  # formats/tensors/layout.py says so too, which takes numpy
_FINDING_BYTES = 64 * 1024
# Of what several tell of a rule, the last of these holds for all; nothing else can be told.
_RANKS = (
    RuleStatus.NO_ISSUES_FOUND,
    RuleStatus.STOPPED,
    RuleStatus.IN_PROGRESS,
    RuleStatus.ERROR,
    RuleStatus.ISSUES_FOUND,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the program has to be stopped, by which rule, and from when on.

    `order` is less the nearer the finding is to the cause. `is_told` when the yard knows that the time has come.
    """

    reason: str
    rule: str
    at: float
    order: tuple[int, bool] = (0, False)
    is_told: bool = False


@dataclass(slots=True)
class _OfWorker:
    status: RuleStatus = RuleStatus.IN_PROGRESS
    details: str = ""
    judged: int = 0
    dropped: int = 0


@dataclass(slots=True)
class _Standing:
    """How one rule stands, by all who judge it."""

    workers: dict[str, _OfWorker] = field(default_factory=dict)
    waiting: list[Mapping[str, Any]] = field(default_factory=list)
    told: Mapping[str, Any] = field(default_factory=dict)
    next_at: float = 0.0

    @property
    def worst(self) -> _OfWorker:
        return max(self.workers.values(), key=lambda each: _RANKS.index(each.status))

    @property
    def payload(self) -> dict[str, Any]:
        worst = self.worst
        return {
            "status": worst.status.value,
            "details": worst.details,
            "judged": max(each.judged for each in self.workers.values()),
            "dropped": sum(each.dropped for each in self.workers.values()),
        }


class Debugging:
    """Takes in what is told while the program runs. Used by one thread, from before the program starts to its end.

    `stop_reason` is why the program was stopped by a rule, once it has to be.
    """

    def __init__(
        self, folder: InstanceFolder, spec: InstanceSpec, debugger: DebuggerSpec, *, reports: Reports, owner: Owner
    ) -> None:
        self.stop_reason: str | None = None
        self._folder = folder
        self._job = spec.job_name
        self._reports = reports
        self._siblings = Siblings(folder, spec)
        self._asks_yard = bool(spec.node) and len(spec.hosts) > 1
        self._settle_s = _SETTLE_S if sum(spec.launch.processes.values()) > 1 else 0.0
        self._tensors = place_of(folder, spec, debugger.tensors.path)
        self._rules = {rule.name: rule for rule in debugger.rules}
        self._standings: dict[str, _Standing] = {}
        self._dropped: dict[str, int] = {}
        self._notes: set[str] = set()
        self._stop: Stop | None = None
        self._companion: Callable[[], None] = lambda: None
        self._hearing = Hearing(folder, owner)

    @property
    def rules(self) -> Sequence[RuleSpec]:
        return list(self._rules.values())

    def accompany(self, companion: Callable[[], None]) -> None:
        """Call it with each look from now on."""
        self._companion = companion

    def fileno(self) -> int:
        """Readable when something was told."""
        return self._hearing.fileno()

    def look(self, now: float) -> str | None:
        """Take in what was told; why the program has to be stopped, from the moment on at which it has to be."""
        for told in self._hearing.hear():
            self._take(told, now)
        self._companion()
        self._report(now)
        if self._stop is not None and now >= self._stop.at and self.stop_reason is None:
            self._stop_all(self._stop, now)
        return self.stop_reason

    def hear_out(self, now: float) -> None:
        """Take in the last words, when all who could tell anything have ended."""
        for told in self._hearing.hear_out():
            self._take(told, now)

    def fail(self, rules: Sequence[str], why: str) -> None:
        """These rules cannot be judged any more, by anybody."""
        for name in rules:
            standing = self._standings.setdefault(name, _Standing())
            mine = standing.workers.setdefault("", _OfWorker())
            mine.status, mine.details = RuleStatus.ERROR, why[:_TEXT_LIMIT]

    def conclude(self, status: RuleStatus) -> None:
        """Report how all rules stand at the end: those that nothing was said of to the end as `status`.

        In a training that was stopped, one that found nothing has not judged it to its end either. Of a rule that
        nobody has judged nothing is reported; what that means depends on the whole job.
        """
        undecided = {RuleStatus.IN_PROGRESS, *([RuleStatus.NO_ISSUES_FOUND] if status is RuleStatus.STOPPED else [])}
        for standing in self._standings.values():
            for worker in standing.workers.values():
                if worker.status in undecided:
                    worker.status = status
        for _ in range(_MOST_WAITING + 1):
            self._report(0.0, is_last=True)

    def mark_end(self) -> None:
        """Let those who read the tensors know that no more come, whatever the program could still say of that."""
        root, path = self._tensors
        # Where that fails, they see for themselves that nothing comes.
        with suppress(OSError), ConfinedFolder.open(root, path) as folder:
            folder.replace_file(_ENDED, json.dumps({"at_us": now_us()}).encode())

    def note(self, text: str) -> None:
        """Tell the user something, once, and not without end."""
        if len(self._notes) < _MOST_NOTES and text not in self._notes:
            self._notes.add(text)
            self._reports.note(text)

    def close(self) -> None:
        self._hearing.close()

    def _take(self, told: Told, now: float) -> None:
        payload = told.payload
        if told.kind is ToldKind.RULE:
            self._take_rule(payload, now)
        elif told.kind is ToldKind.PROGRESS:
            if (worker := _known(payload, self._dropped)) is not None:
                self._dropped[worker] = _count(payload.get("dropped"))
        elif told.kind is ToldKind.SAVED:
            self._take_saved(payload, now)
        else:
            self.note(_text(payload.get("text")))

    def _take_rule(self, payload: Mapping[str, Any], now: float) -> None:
        rule = self._rules.get(_text(payload.get("rule")))
        status = payload.get("status")
        if rule is None or status not in _RANKS:
            return
        standing = self._standings.setdefault(rule.name, _Standing())
        name = _known(payload, standing.workers)
        if name is None:
            return
        worker = standing.workers.setdefault(name, _OfWorker())
        if worker.status is not RuleStatus.ISSUES_FOUND:  # which is never taken back
            worker.status = RuleStatus(status)
        worker.details = _text(payload.get("details"))
        worker.judged = _count(payload.get("judged"))
        worker.dropped = _count(payload.get("dropped"))
        finding = payload.get("finding")
        if isinstance(finding, dict) and len(standing.waiting) < _MOST_WAITING:
            standing.waiting.append(_bounded(finding))
        if worker.status is RuleStatus.ISSUES_FOUND and self.stop_reason is None:
            self._act(rule, finding if isinstance(finding, dict) else {}, details=worker.details, now=now)

    def _act(self, rule: RuleSpec, finding: Mapping[str, Any], *, details: str, now: float) -> None:
        if not is_stop(rule, self._job):
            return
        reason, order = _reason(rule, finding, details), _order(finding)
        if self._stop is not None:  # of ranks that find the same, the one that it began with may be heard later
            if finding and order < self._stop.order:
                self._stop = replace(self._stop, reason=reason, rule=rule.name, order=order)
            return
        if not wants_checkpoint(rule, self._job):
            self._stop = Stop(reason, rule.name, now + self._settle_s, order)
            return
        self._stop = Stop(reason, rule.name, now + _CHECKPOINT_S, order)
        wanted = {"checkpoint": _count(finding.get("step")), "rule": rule.name}
        with suppress(OSError), ConfinedFolder.open(self._folder.ml) as ml:  # else the stop comes without it
            ml.replace_file(WANTED, json.dumps(wanted).encode())

    def _take_saved(self, payload: Mapping[str, Any], now: float) -> None:
        if self._stop is None or self._stop.is_told or self.stop_reason is not None:
            return
        why, path = _text(payload.get("why")), _text(payload.get("path"))
        self._reports.note(f"No checkpoint was saved before the stop: {why}" if why else f"{path} was saved before it.")
        self._stop = replace(self._stop, at=now)

    def _report(self, now: float, *, is_last: bool = False) -> None:
        """Report what is news: how a rule stands, what it found, and in the end also how much it judged."""
        for name, standing in self._standings.items():
            payload = standing.payload
            payload["dropped"] = max(payload["dropped"], sum(self._dropped.values()))
            news = {member for member, value in payload.items() if standing.told.get(member) != value}
            is_first = "status" in news and payload["status"] == RuleStatus.ISSUES_FOUND
            is_news = bool(standing.waiting) or bool(news if is_last else news & {"status", "details"})
            if not is_news or (now < standing.next_at and not is_first and not is_last):
                continue
            finding = standing.waiting.pop(0) if standing.waiting else None
            self._reports.rule({"rule": name, **payload, "finding": finding})
            standing.told, standing.next_at = payload, now + _PAUSE_S

    def _stop_all(self, stop: Stop, now: float) -> None:
        """Stop the program here, and have the others stopped; on nodes all commands come from the yard."""
        if self._asks_yard and not stop.is_told:
            payload = self._standings[stop.rule].payload
            self._reports.rule({"rule": stop.rule, **payload, "finding": None, "stops": True})
            self._stop = replace(stop, at=now + _YARD_S, is_told=True)
            return
        self.stop_reason = stop.reason
        if not self._asks_yard:
            self._stop_siblings(stop.reason)

    def _stop_siblings(self, reason: str) -> None:
        for name in self._siblings.at_work():
            try:
                Mailbox(self._siblings[name].mailbox).put(CommandKind.STOP, {"reason": reason})
            except OSError as error:  # the yard will stop it, once it knows of this
                log.warning("a sibling was not told to stop", extra={"sibling": name, "why": error.strerror})


def _reason(rule: RuleSpec, finding: Mapping[str, Any], details: str) -> str:
    """Names the rule, and where it found something."""
    step, tensor = finding.get("step"), _text(finding.get("tensor"))
    where = f" at step {step}" if isinstance(step, int) else ""
    what = f" in {tensor}" if tensor else ""
    message = _text(finding.get("message")) or details
    return f'The rule "{rule.name}" found an issue{where}{what} and stopped the training: {message}'[:_TEXT_LIMIT]


def _order(finding: Mapping[str, Any]) -> tuple[int, bool]:
    """What comes first: an earlier step, and in a step what goes forward, for gradients go from rank to rank."""
    return _count(finding.get("step")), _text(finding.get("tensor")).startswith(_GRADIENT)


def _known(payload: Mapping[str, Any], workers: Mapping[str, object]) -> str | None:
    """The worker that tells something; None for another one where there are as many as an instance can have."""
    name = _text(payload.get("worker"))
    return name if name in workers or len(workers) < _MOST_WORKERS else None


def _text(value: object) -> str:
    return value[:_TEXT_LIMIT] if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**53 else 0


def _bounded(finding: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(json.dumps(finding)) <= _FINDING_BYTES:
        return finding
    return {
        name: value for name, value in finding.items() if name != "evidence" and not isinstance(value, (dict, list))
    }
