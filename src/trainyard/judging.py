"""Judging runs that have ended, by rules that may be others than those that judged them then.

A run is judged from what it left: every step of which statistics are known, and raw values where they were saved.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard.following import Description
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.catalog import RULES, make_rule
from trainyard.insight.rules.contract import Evaluation, Finding, Parameter
from trainyard.insight.rules.judging import Judge
from trainyard.insight.rules.parameters import Defaults, default
from trainyard.trial import Step, Trial

_NOT_OF_THE_RULE = ("rule_to_invoke", "source_s3_uri", "action_json", "dry_run", "base_trial")


@dataclass(frozen=True, slots=True)
class AskedRule:
    """A built-in rule by its word, with its parameters as a request has them."""

    word: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownParameter:
    name: str
    default: str
    advised: str
    help: str


@dataclass(frozen=True, slots=True)
class KnownRule:
    """A built-in rule and what can be set of it."""

    name: str
    about: str
    parameters: tuple[KnownParameter, ...]


def known_rules() -> list[KnownRule]:
    """The built-in rules, by name."""
    return [
        KnownRule(name, _first_line(rule.__doc__), tuple(map(_known, rule.parameters)))
        for name, rule in sorted(RULES.items())
    ]


def asked_rules(description: Description) -> dict[str, AskedRule]:
    """The built-in rules that a described job was made with, by the names of their configurations."""
    found = {}
    for given in description.get("DebugRuleConfigurations", ()):
        parameters: Mapping[str, str] = given.get("RuleParameters", {})
        if "source_s3_uri" not in parameters:
            own = {key: value for key, value in parameters.items() if key not in _NOT_OF_THE_RULE}
            found[given["RuleConfigurationName"]] = AskedRule(parameters.get("rule_to_invoke", ""), own)
    return found


def judge_again(trial: Trial, rules: Mapping[str, AskedRule]) -> tuple[Evaluation, ...]:
    """How each rule would have stood at the end of a run; InvalidRequest for one that there is not."""
    judge = Judge({name: make_rule(asked.word, asked.parameters) for name, asked in rules.items()}, cool_down_s=0)
    for step in _steps(trial):
        judge.take(step)
    judge.end()
    return judge.evaluations


def standing(evaluation: Evaluation) -> dict[str, Any]:
    """How a rule stands and what it found, in the words of DescribeJob."""
    return {
        "Name": evaluation.rule,
        "Status": str(evaluation.status),
        "Details": evaluation.details,
        "StepsJudged": evaluation.steps_judged,
        "StepsDropped": evaluation.steps_dropped,
        "Findings": [_found(finding) for finding in evaluation.findings],
        "Actions": [],
    }


def parsed_parameters(given: tuple[str, ...]) -> dict[str, str]:
    """Parameters as one types them: `name=value`."""
    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InvalidRequest(f'"{text}" is no parameter; write it like threshold=1e-6.')
        found[name] = value
    return found


def _found(finding: Finding) -> dict[str, Any]:
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
    """The steps of all workers, in the order of their numbers."""
    flows = [trial.read_steps(worker=worker) for worker in trial.workers()]
    return heapq.merge(*flows, key=lambda step: (step.number, step.worker))


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _known(parameter: Parameter) -> KnownParameter:
    aws = "required" if parameter.is_required else _written(default(parameter, Defaults.AWS))
    return KnownParameter(parameter.name, aws, _written(default(parameter, Defaults.ADVISED)), parameter.help)


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
