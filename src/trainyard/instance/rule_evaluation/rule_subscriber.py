"""Connects rules and the flight recorder to the hook, in the process that trains.

This is the only place where hook and rules know each other. Each rank evaluates the rules that need only its own steps.
For rules that run in a separate process, the hook only learns which numbers they need.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainyard.formats.tensors.contract import Step, StepSubscriber
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import DebuggerRule, Evaluation, Finding
from trainyard.insight.rules.evaluation import RuleEvaluator
from trainyard.instance.hook.contract import HookContext, TensorRequest
from trainyard.instance.rule_evaluation.event_client import EventClient
from trainyard.instance.rule_evaluation.rules_config import read_rules
from trainyard.link.contract import RuleSpec

# Time on the hook's own thread per rule and step.
_RULE_BUDGET_S = 0.002
# Between two reports of how many steps were evaluated.
_PROGRESS_INTERVAL_US = 1_000_000

OnFinding = Callable[[int, str], None]


def make_hook_context(ml: Path, framework: str, *, environment: Mapping[str, str], client: EventClient) -> HookContext:
    """Return everything that follows the steps of a framework: rules and the flight recorder, or a replay."""
    rules = read_rules(str(ml))
    if framework != "torch":
        return _make_context(rules, client)
    # Imported here, because it imports torch.
    from trainyard.instance.recorder.observers import make_observers

    recorder = make_observers(ml, rules, environment=environment, send_event=client.send)
    context = _make_context([] if recorder.is_replay else rules, client, recorder.fire)
    subscribers = (*context.subscribers, *recorder.subscribers)
    return replace(context, subscribers=subscribers, observers=recorder.observers)


class RuleSubscriber(StepSubscriber):
    """Evaluates rules on the steps of this process and reports to the agent; before that, `fire` gets each finding.

    The agent may stop the program after the first finding, before it reaches `end`. So the findings of all rules in a
    step are sent together, and before them how many steps the other rules have evaluated.
    """

    def __init__(self, rules: Mapping[str, DebuggerRule], *, client: EventClient, fire: OnFinding) -> None:
        self._evaluator = RuleEvaluator(
            rules, on_change=self._collect_change, budget_s=_RULE_BUDGET_S, counts_gaps=True
        )
        self._client = client
        self._fire = fire
        self._worker = ""
        self._reported_us = 0
        self._changes: list[tuple[Evaluation, Finding | None]] = []
        self._has_finding = False

    def needs_flush(self) -> bool:
        """Whether the last step had a finding, which may stop the program within milliseconds."""
        return self._has_finding

    def take(self, step: Step) -> None:
        self._worker = step.worker
        self._evaluator.take(step)
        if self._changes or step.at_us - self._reported_us >= _PROGRESS_INTERVAL_US:
            self._reported_us = step.at_us
            self._report_progress()
        self._report_changes()

    def end(self) -> None:
        self._evaluator.end()
        self._report_changes()
        # Once more, with the final numbers of steps.
        self._report_progress()
        self._client.flush(1.0)

    def _collect_change(self, evaluation: Evaluation, finding: Finding | None) -> None:
        self._changes.append((evaluation, finding))

    def _report_progress(self) -> None:
        """Send the states of the rules that have not changed in this step."""
        changed = {evaluation.rule for evaluation, _ in self._changes}
        for evaluation in self._evaluator.evaluations:
            if evaluation.rule not in changed:
                self._client.send_rule(evaluation, None, worker=self._worker)

    def _report_changes(self) -> None:
        changes, self._changes = self._changes, []
        findings = [(finding.step, evaluation.rule) for evaluation, finding in changes if finding is not None]
        self._has_finding = bool(findings)
        for step, rule in findings:
            self._fire(step, rule)
        for evaluation, finding in changes:
            self._client.send_rule(evaluation, finding, worker=self._worker)


def _make_context(
    specs: Sequence[RuleSpec], client: EventClient, fire: OnFinding = lambda _step, _rule: None
) -> HookContext:
    rules = _make_rules(specs, client)
    local = {spec.name: rules[spec.name] for spec in specs if spec.name in rules and not spec.is_beside}
    parts = [need for rule in rules.values() for need in rule.needs.parts]
    return HookContext(
        [RuleSubscriber(local, client=client, fire=fire)] if local else [],
        [TensorRequest(need.collections, need.regexes, need.probes) for need in parts],
        send_event=client.send,
        needs_all_workers=any(need.is_of_all_workers for need in parts),
    )


def _make_rules(rules: Sequence[RuleSpec], client: EventClient) -> dict[str, DebuggerRule]:
    """Make the built-in rules. One that cannot be made gets the status Error; the yard should have refused it."""
    made = {}
    for rule in rules:
        if rule.source:
            continue
        try:
            made[rule.name] = make_rule(rule.rule, rule.parameters)
        except TrainyardError as error:
            client.send_rule(Evaluation(rule.name, RuleStatus.ERROR, error.message), None, worker="")
    return made
