"""Judges the steps of a training by several rules, and keeps how each stands.

The hook's writer thread does so for a run as it runs, `instance/judge` beside it, and a replay for an old one. A rule
that raises is Error and hurts no other. A rule's first finding makes it IssuesFound, which it stays; it goes on
judging, so that the other tensors that it finds are known and counted.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import thread_time

from trainyard.formats.tensors.contract import Step, StepSubscriber
from trainyard.insight.rules.contract import DebuggerRule, Evaluation, Finding, RuleStatus
from trainyard.insight.rules.readings import Reader

log = logging.getLogger(__name__)

OnChange = Callable[[Evaluation, Finding | None], None]

COOL_DOWN_S = 60.0
FINDINGS_KEPT = 64  # of one rule; what else it finds is counted
DETAILS_LIMIT = 1024  # AWS's
TIMED_STEPS = 16  # over which the time of a rule is averaged, and before which nothing follows from it


class Judge(StepSubscriber):
    """Has every rule look at every step. Not shared between threads.

    `on_change` is told an evaluation whose status changed, with the finding that changed it. Once a rule has found
    something, what it finds in other tensors is told at most once in `cool_down_s` of the training's time, with the
    first of those, and at the end. With a `budget_s`, a rule that takes more of this thread's time for a step than
    that, on average, looks only at so many steps as it may; the others count as dropped, and its details say so. Where
    every step should come, as from a hook, `counts_gaps` counts those of a worker that did not as dropped too.
    """

    def __init__(
        self,
        rules: Mapping[str, DebuggerRule],
        *,
        on_change: OnChange = lambda _evaluation, _finding: None,
        cool_down_s: float = COOL_DOWN_S,
        budget_s: float | None = None,
        counts_gaps: bool = False,
    ) -> None:
        self._standings = [_Standing(name, rule, budget_s=budget_s) for name, rule in rules.items()]
        self._on_change, self._cool_down_us = on_change, cool_down_s * 1e6
        self._counts_gaps = counts_gaps
        self._numbers: dict[str, int] = {}  # of the last step of each worker
        self._now_us = 0
        self._is_over = False

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """How each rule stands, in the order in which they were given."""
        return tuple(standing.evaluation() for standing in self._standings)

    def take(self, step: Step) -> None:
        self._now_us = max(self._now_us, step.at_us)
        if self._counts_gaps:
            self.drop(max(0, step.number - self._numbers.get(step.worker, step.number) - 1))
            self._numbers[step.worker] = step.number
        for standing in self._standings:
            standing.judge(step)
        for standing in self._standings:  # when all have judged: what one finds may end the training at once
            self._tell_change(standing)

    def idle(self, seconds: float) -> None:
        """No step has come for so long."""
        for standing in self._standings:
            standing.look(partial(standing.rule.idle, seconds), at=f"after {seconds:.0f} s without a step")
            self._tell_change(standing)

    def drop(self, steps: int) -> None:
        """So many steps of the training could not be brought here."""
        for standing in self._standings:
            standing.dropped += steps

    def end(self) -> None:
        self._finish(RuleStatus.NO_ISSUES_FOUND)

    def stop(self) -> None:
        """The training was stopped: whether a rule that has found nothing by now would have is not known."""
        self._finish(RuleStatus.STOPPED)

    def _finish(self, status: RuleStatus) -> None:
        if self._is_over:
            return
        self._is_over = True
        for standing in self._standings:
            if status is RuleStatus.NO_ISSUES_FOUND:
                standing.look(standing.rule.end, at="at the end")
            standing.finish(status)
            if standing.has_news:
                self._tell(standing)

    def _tell_change(self, standing: "_Standing") -> None:
        has_cooled = self._now_us - standing.told_us >= self._cool_down_us
        if standing.has_new_status or (standing.has_news and has_cooled):
            self._tell(standing)

    def _tell(self, standing: "_Standing") -> None:
        finding = standing.take_news(self._now_us)
        self._on_change(standing.evaluation(), finding)


class _Standing:
    """How one rule stands before the judge."""

    def __init__(self, name: str, rule: DebuggerRule, *, budget_s: float | None) -> None:
        self.name, self.rule = name, rule
        self.status = RuleStatus.IN_PROGRESS
        self.dropped = 0
        self.told_us = 0
        self.has_new_status = self.has_news = False
        self._judged = 0
        self._findings: list[Finding] = []
        self._counts: dict[str, int] = {}
        self._newest: Finding | None = None
        self._failure = ""
        self._pace = _Pace(budget_s)
        self._readers = [Reader(need) for need in rule.needs.parts if need.collections or need.regexes]
        self._has_tensors = not self._readers  # a rule that looks at none misses none

    def judge(self, step: Step) -> None:
        if self._failure:
            return
        if not self._pace.is_due():
            self.dropped += 1
            return
        self._judged += 1
        self._has_tensors = self._has_tensors or any(len(reader.choose(step.table)) for reader in self._readers)
        with self._pace:
            self.look(partial(self.rule.check, step), at=f"at step {step.number}")

    def look(self, looking: Callable[[], Iterable[Finding]], *, at: str) -> None:
        if self._failure:
            return
        try:
            for finding in looking():
                self._keep(finding)
        except Exception as error:  # a broken rule must not hurt the training, nor the other rules
            log.warning("rule failed", extra={"rule": self.name}, exc_info=True)
            self._failure = f"The rule failed {at} and judges no more: {type(error).__name__}: {error}"
            self._become(RuleStatus.ERROR)

    def finish(self, status: RuleStatus) -> None:
        self._become(status)

    def take_news(self, now_us: int) -> Finding | None:
        """The newest finding of a tensor that was not told yet, if there is one; from now on it is."""
        newest, self._newest = self._newest, None
        self.has_new_status = self.has_news = False
        self.told_us = now_us
        return newest

    def evaluation(self) -> Evaluation:
        return Evaluation(
            self.name,
            self.status,
            details=self._details(),
            findings=tuple(self._findings),
            steps_judged=self._judged,
            steps_dropped=self.dropped,
            counts=dict(self._counts),
        )

    def _keep(self, finding: Finding) -> None:
        count = self._counts[finding.tensor] = self._counts.get(finding.tensor, 0) + 1
        if count > 1:
            return
        if len(self._findings) < FINDINGS_KEPT:
            self._findings.append(finding)
        self._newest = self._newest or finding
        self.has_news = True
        self._become(RuleStatus.ISSUES_FOUND)

    def _become(self, status: RuleStatus) -> None:
        """What has found something, or failed, stays so."""
        if self.status is RuleStatus.IN_PROGRESS:
            self.status = status
            self.has_new_status = self.has_news = True

    def _details(self) -> str:
        sentences = [self._findings[0].message] if self._findings else []
        if len(self._counts) > 1:
            sentences.append(f"It found {len(self._counts)} tensors in all.")
        if self.status is RuleStatus.NO_ISSUES_FOUND and not self._has_tensors:
            sentences.append("The training has no tensor that this rule looks at, so that nothing was judged.")
        if self.dropped:
            sentences.append(f"{self.dropped} of {self.dropped + self._judged} steps were dropped and not judged.")
        sentences += [self._failure, self._pace.note]
        return " ".join(sentence for sentence in sentences if sentence)[:DETAILS_LIMIT]


class _Pace:
    """Times a rule, in seconds of this thread alone, since a machine under load would make any rule look slow."""

    def __init__(self, budget_s: float | None) -> None:
        self._budget_s = budget_s
        self._average_s = 0.0
        self._timed = 0
        self._waiting = 0
        self._started_s = 0.0
        self.note = ""

    def is_due(self) -> bool:
        self._waiting = max(self._waiting - 1, 0)
        return not self._waiting

    def __enter__(self) -> None:
        if self._budget_s is not None:
            self._started_s = thread_time()

    def __exit__(self, *_exception: object) -> None:
        if self._budget_s is None:
            return
        took_s = thread_time() - self._started_s
        self._timed += 1
        self._average_s += (took_s - self._average_s) / min(self._timed, TIMED_STEPS)
        if self._timed < TIMED_STEPS or self._average_s <= self._budget_s:
            return
        self._waiting = math.ceil(self._average_s / self._budget_s)
        self.note = (
            f"It takes {self._average_s * 1e3:.1f} ms for a step, over its budget of {self._budget_s * 1e3:.1f} ms, "
            f"and so judges one step in {self._waiting}."
        )
