"""Joins rules and the flight recorder to the hook, in the process that trains.

This is the one place where hook and rules know of each other. Each rank judges its own steps by the rules that can be
judged there; of those that are judged beside the program, the hook is only told which numbers they need.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainyard.formats.tensors.contract import Step, StepSubscriber
from trainyard.foundation.errors import TrainyardError
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import DebuggerRule, Evaluation, Finding, RuleStatus
from trainyard.insight.rules.judging import Judge
from trainyard.instance.hook.contract import Audience, Want
from trainyard.instance.judge.rules_config import read_rules
from trainyard.instance.judge.telling import Teller
from trainyard.link.contract import RuleSpec

_RULE_BUDGET_S = 0.002  # of the hook's own thread, for a rule and a step
_NEWS_US = 5_000_000  # between two words of how many steps were judged

Fire = Callable[[int, str], None]


def joined(ml: Path, framework: str, *, teller: Teller) -> Audience:
    """All who follow the steps of a framework: rules, the flight recorder, or a replay of what that recorded."""
    rules = read_rules(str(ml))
    if framework != "torch":
        return _audience(rules, teller)
    from trainyard.instance.recorder.observers import observers_of  # which takes torch

    recorder = observers_of(ml, rules, tell=teller.tell)
    audience = _audience([] if recorder.is_replay else rules, teller, recorder.fire)
    subscribers = (*audience.subscribers, *recorder.subscribers)
    return replace(audience, subscribers=subscribers, observers=recorder.observers)


class RuleSubscriber(StepSubscriber):
    """Has the steps of this process judged, and tells the agent. `fire` is called first with each step found.

    What all rules found in a step is told together: the agent may end the program as soon as it hears of one.
    """

    def __init__(self, rules: Mapping[str, DebuggerRule], *, teller: Teller, fire: Fire) -> None:
        self._judge = Judge(rules, on_change=self._keep, budget_s=_RULE_BUDGET_S, counts_gaps=True)
        self._teller = teller
        self._fire = fire
        self._worker = ""
        self._told_us = 0
        self._news: list[tuple[Evaluation, Finding | None]] = []
        self._has_found = False

    def takes_leave(self) -> bool:
        """Whether the last step had a finding, which may stop the program within milliseconds."""
        return self._has_found

    def take(self, step: Step) -> None:
        self._worker = step.worker
        self._judge.take(step)
        self._tell_news()
        if step.at_us - self._told_us >= _NEWS_US:
            self._told_us = step.at_us
            for evaluation in self._judge.evaluations:
                self._teller.tell_rule(evaluation, None, worker=self._worker)

    def end(self) -> None:
        self._judge.end()
        self._tell_news()
        for evaluation in self._judge.evaluations:  # with the numbers of steps as they are in the end
            self._teller.tell_rule(evaluation, None, worker=self._worker)
        self._teller.flush(1.0)

    def _keep(self, evaluation: Evaluation, finding: Finding | None) -> None:
        self._news.append((evaluation, finding))

    def _tell_news(self) -> None:
        news, self._news = self._news, []
        found = [(finding.step, evaluation.rule) for evaluation, finding in news if finding is not None]
        self._has_found = bool(found)
        for step, rule in found:
            self._fire(step, rule)
        for evaluation, finding in news:
            self._teller.tell_rule(evaluation, finding, worker=self._worker)


def _audience(rules: Sequence[RuleSpec], teller: Teller, fire: Fire = lambda _step, _rule: None) -> Audience:
    made = _made(rules, teller)
    here = {rule.name: made[rule.name] for rule in rules if rule.name in made and not rule.is_beside}
    parts = [need for rule in made.values() for need in rule.needs.parts]
    return Audience(
        [RuleSubscriber(here, teller=teller, fire=fire)] if here else [],
        [Want(need.collections, need.regexes, need.probes) for need in parts],
        tell=teller.tell,
        needs_all_workers=any(need.is_of_all_workers for need in parts),
    )


def _made(rules: Sequence[RuleSpec], teller: Teller) -> dict[str, DebuggerRule]:
    """The rules of ours; one that cannot be made is Error, and the yard should have refused it."""
    made = {}
    for rule in rules:
        if rule.source:
            continue
        try:
            made[rule.name] = make_rule(rule.rule, rule.parameters)
        except TrainyardError as error:
            teller.tell_rule(Evaluation(rule.name, RuleStatus.ERROR, error.message), None, worker="")
    return made
