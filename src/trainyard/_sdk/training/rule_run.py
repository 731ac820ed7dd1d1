"""Evaluate rules on the captured tensors of a job, also rules that the job itself did not have.

A rule sees the statistics of every captured step, and the raw values of those that were saved.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard._sdk.training.stream import Description
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import Evaluation, Finding
from trainyard.insight.rules.descriptions import built_in_rules
from trainyard.insight.rules.evaluation import RuleEvaluator
from trainyard.trial import Step, Trial

__all__ = [
    "RequestedRule",
    "built_in_rules",
    "evaluate_rules",
    "parse_parameters",
    "rule_state",
    "rules_of_job",
]

# Parameters of a rule configuration that are not parameters of the rule itself.
_CONFIG_PARAMETERS = ("rule_to_invoke", "source_s3_uri", "action_json", "dry_run", "base_trial")


@dataclass(frozen=True, slots=True)
class RequestedRule:
    """A built-in rule by name, with its parameters as in a request."""

    word: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def rules_of_job(description: Description) -> dict[str, RequestedRule]:
    """Return the built-in rules of a described job, by the names of their configurations."""
    found = {}
    for given in description.get("DebugRuleConfigurations", ()):
        parameters: Mapping[str, str] = given.get("RuleParameters", {})
        if "source_s3_uri" not in parameters:
            own = {key: value for key, value in parameters.items() if key not in _CONFIG_PARAMETERS}
            found[given["RuleConfigurationName"]] = RequestedRule(parameters.get("rule_to_invoke", ""), own)
    return found


def evaluate_rules(trial: Trial, rules: Mapping[str, RequestedRule]) -> tuple[Evaluation, ...]:
    """Return the state of each rule at the end of a run. Raises InvalidRequest for an unknown rule."""
    judge = RuleEvaluator({name: make_rule(rule.word, rule.parameters) for name, rule in rules.items()}, cool_down_s=0)
    for step in _steps(trial):
        judge.take(step)
    judge.end()
    return judge.evaluations


def rule_state(evaluation: Evaluation) -> dict[str, Any]:
    """Return the state of a rule and its findings in the form of DescribeJob."""
    return {
        "Name": evaluation.rule,
        "Status": str(evaluation.status),
        "Details": evaluation.details,
        "StepsJudged": evaluation.steps_judged,
        "StepsDropped": evaluation.steps_dropped,
        "Findings": [_finding_shape(finding) for finding in evaluation.findings],
        "Actions": [],
    }


def parse_parameters(given: tuple[str, ...]) -> dict[str, str]:
    """Parse parameters written as `name=value`."""
    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InvalidRequest(f'"{text}" is not a parameter; write it like threshold=1e-6.')
        found[name] = value
    return found


def _finding_shape(finding: Finding) -> dict[str, Any]:
    numbers = {"Value": finding.value, "Threshold": finding.threshold}
    return {
        "Message": finding.message,
        "Step": finding.step,
        "Mode": str(finding.mode),
        "Worker": finding.worker,
        "Tensor": finding.tensor,
        "Severity": str(finding.severity),
        **{name: str(value) for name, value in numbers.items() if value is not None},
    }


def _steps(trial: Trial) -> Iterator[Step]:
    """Yield the steps of all workers in the order of their numbers."""
    streams = [trial.read_steps(worker=worker) for worker in trial.workers()]
    return heapq.merge(*streams, key=lambda step: (step.number, step.worker))
