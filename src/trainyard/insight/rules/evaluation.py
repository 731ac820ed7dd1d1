"""Evaluates several rules on the steps of a training, and keeps the state of each.

It runs on the hook's writer thread for a running training, in a separate process (`instance/rule_evaluation`), and in a
replay of an old run. A rule that raises gets the status Error and does not affect the others. The first finding of a
rule sets its status to IssuesFound for good; the rule keeps running, so that other tensors are found and counted.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import thread_time

from trainyard.formats.tensors.contract import Step, StepSubscriber
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.rules.contract import DebuggerRule, Evaluation, Finding
from trainyard.insight.rules.readings import Reader

log = logging.getLogger(__name__)

OnChange = Callable[[Evaluation, Finding | None], None]

COOL_DOWN_S = 60.0
# Per rule; further findings are only counted.
MAX_FINDINGS = 64
# AWS's limit.
MAX_DETAILS_CHARS = 1024
# The time of a rule is averaged over this many steps, and ignored before that.
TIMED_STEPS = 16


class RuleEvaluator(StepSubscriber):
    """Runs every rule on every step. Not thread-safe.

    `on_change` gets an evaluation whose status changed, with the finding that changed it. After that, findings in other
    tensors are reported at most once per `cool_down_s` of the training's time, with the first of them, and at the end.
    With a `budget_s`, a rule that on average takes more CPU time per step checks only as many steps as the budget
    allows; the others count as dropped, and its details say so. If every step should arrive, as from a hook,
    `counts_gaps` also counts missing steps of a worker as dropped.
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
        self._states = [_EvaluationState(name, rule, budget_s=budget_s) for name, rule in rules.items()]
        self._on_change, self._cool_down_us = on_change, cool_down_s * 1e6
        self._counts_gaps = counts_gaps
        # The last step of each worker.
        self._numbers: dict[str, int] = {}
        self._now_us = 0
        self._is_over = False

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """The state of each rule, in the order in which they were passed."""
        return tuple(state.evaluation() for state in self._states)

    def take(self, step: Step) -> None:
        self._now_us = max(self._now_us, step.at_us)
        if self._counts_gaps:
            self.drop(max(0, step.number - self._numbers.get(step.worker, step.number) - 1))
            self._numbers[step.worker] = step.number
        for state in self._states:
            state.evaluate(step)
        # Only after all rules have run, since a report may end the training at once.
        for state in self._states:
            self._report_change(state)

    def idle(self, seconds: float) -> None:
        """Tell the rules that no step has arrived for so long."""
        for state in self._states:
            state.run(partial(state.rule.idle, seconds), at=f"after {seconds:.0f} s without a step")
            self._report_change(state)

    def drop(self, steps: int) -> None:
        """Count steps of the training that did not arrive here."""
        for state in self._states:
            state.dropped += steps

    def end(self) -> None:
        self._finish(RuleStatus.NO_ISSUES_FOUND)

    def stop(self) -> None:
        """Finish a stopped training. A rule without findings is Stopped, since it might still have found something."""
        self._finish(RuleStatus.STOPPED)

    def _finish(self, status: RuleStatus) -> None:
        if self._is_over:
            return
        self._is_over = True
        for state in self._states:
            if status is RuleStatus.NO_ISSUES_FOUND:
                state.run(state.rule.end, at="at the end")
            state.finish(status)
            if state.has_unreported:
                self._report(state)

    def _report_change(self, state: "_EvaluationState") -> None:
        has_cooled = self._now_us - state.reported_us >= self._cool_down_us
        if state.has_new_status or (state.has_unreported and has_cooled):
            self._report(state)

    def _report(self, state: "_EvaluationState") -> None:
        finding = state.take_unreported(self._now_us)
        self._on_change(state.evaluation(), finding)


class _EvaluationState:
    """The state of one rule."""

    def __init__(self, name: str, rule: DebuggerRule, *, budget_s: float | None) -> None:
        self.name, self.rule = name, rule
        self.status = RuleStatus.IN_PROGRESS
        self.dropped = 0
        self.reported_us = 0
        self.has_new_status = self.has_unreported = False
        self._evaluated = 0
        self._findings: list[Finding] = []
        self._counts: dict[str, int] = {}
        self._newest: Finding | None = None
        self._failure = ""
        self._budget = _TimeBudget(budget_s)
        self._readers = [Reader(need) for need in rule.needs.parts if need.collections or need.regexes]
        # A rule that needs no tensors misses none.
        self._has_tensors = not self._readers

    def evaluate(self, step: Step) -> None:
        if self._failure:
            return
        if not self._budget.is_due():
            self.dropped += 1
            return
        self._evaluated += 1
        self._has_tensors = self._has_tensors or any(len(reader.choose(step.table)) for reader in self._readers)
        with self._budget:
            self.run(partial(self.rule.check, step), at=f"at step {step.number}")

    def run(self, call: Callable[[], Iterable[Finding]], *, at: str) -> None:
        if self._failure:
            return
        try:
            for finding in call():
                self._add_finding(finding)
        except Exception as error:
            # A broken rule must not affect the training or the other rules.
            log.warning("rule failed", extra={"rule": self.name}, exc_info=True)
            self._failure = f"The rule failed {at} and was turned off: {type(error).__name__}: {error}"
            self._set_status(RuleStatus.ERROR)

    def finish(self, status: RuleStatus) -> None:
        self._set_status(status)

    def take_unreported(self, now_us: int) -> Finding | None:
        """Return the first unreported finding, if any, and mark everything as reported."""
        newest, self._newest = self._newest, None
        self.has_new_status = self.has_unreported = False
        self.reported_us = now_us
        return newest

    def evaluation(self) -> Evaluation:
        return Evaluation(
            self.name,
            self.status,
            details=self._details(),
            findings=tuple(self._findings),
            steps_judged=self._evaluated,
            steps_dropped=self.dropped,
            counts=dict(self._counts),
        )

    def _add_finding(self, finding: Finding) -> None:
        count = self._counts[finding.tensor] = self._counts.get(finding.tensor, 0) + 1
        if count > 1:
            return
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(finding)
        self._newest = self._newest or finding
        self.has_unreported = True
        self._set_status(RuleStatus.ISSUES_FOUND)

    def _set_status(self, status: RuleStatus) -> None:
        """Set the status, unless the rule already has findings or has failed."""
        if self.status is RuleStatus.IN_PROGRESS:
            self.status = status
            self.has_new_status = self.has_unreported = True

    def _details(self) -> str:
        sentences = [self._findings[0].message] if self._findings else []
        if len(self._counts) > 1:
            sentences.append(f"In total, it found {len(self._counts)} tensors.")
        if self.status is RuleStatus.NO_ISSUES_FOUND and not self._has_tensors:
            sentences.append("The training has none of the tensors that this rule checks.")
        if self.dropped:
            sentences.append(
                f"{self.dropped} of {self.dropped + self._evaluated} steps were dropped and not evaluated."
            )
        sentences += [self._failure, self._budget.note]
        return " ".join(sentence for sentence in sentences if sentence)[:MAX_DETAILS_CHARS]


class _TimeBudget:
    """Limits the time of a rule: in CPU seconds of this thread, since any rule looks slow on a busy machine."""

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
            f"It takes {self._average_s * 1e3:.1f} ms per step, over its budget of {self._budget_s * 1e3:.1f} ms, "
            f"so it checks only one step in {self._waiting}."
        )
