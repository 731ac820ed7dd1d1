"""The built-in debugger rules; and the rules of a job in the form of the wire: their state, findings and actions."""

import json
from collections.abc import Mapping, Sequence

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.jobs.attempts import RuleState
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import RulePlan
from trainyard.foundation.jobs.training.rules import rule_states
from trainyard.server.jobs.rule_actions import KIND, action_of
from trainyard.server.records.contract import Query, Resource
from trainyard.server.services.contract import Call, Operations, Shape

# More than the rules of a job can have.
_MAX_ACTIONS = 1000
_TEXTS = ("Mode", "Worker", "Tensor", "Module", "Value", "Threshold", "Severity")


def list_debugger_rules(call: Call, shape: Shape) -> Shape:  # noqa: ARG001 - the rules are the same for everyone
    """List the built-in debugger rules with their parameters."""
    try:
        # Rules bring numpy, which not every yard has.
        from trainyard.insight.rules.descriptions import built_in_rules
    except ModuleNotFoundError as error:
        raise Unavailable("This yard has no rules: pip install 'trainyard[debugger]' adds them.") from error
    return {
        "Rules": [
            {
                "Name": rule.name,
                "About": rule.about,
                "Parameters": [
                    {"Name": each.name, "Default": each.default, "Advised": each.advised, "Help": each.help}
                    for each in rule.parameters
                ],
            }
            for rule in built_in_rules()
        ]
    }


OPERATIONS: Operations = {"ListDebuggerRules": list_debugger_rules}


def rules_of(call: Call, resource: Resource, job: TrainingJob) -> list[Shape]:
    """Return the rules in the order of the request."""
    if job.plan.debugger is None:
        return []
    query = Query(KIND, account=resource.key.account, parent=resource.id, limit=_MAX_ACTIONS)
    actions = call.yard.records.find(query).resources if any(rule.actions for rule in job.plan.debugger.rules) else ()
    states = rule_states(job)
    return [_rule(rule, state, actions) for rule, state in zip(job.plan.debugger.rules, states, strict=True)]


def _rule(rule: RulePlan, state: RuleState, actions: Sequence[Resource]) -> Shape:
    return {
        "Name": rule.name,
        "Rule": rule.rule,
        "Parameters": [{"Name": name, "Value": value} for name, value in _parameters(rule).items()],
        "Status": state.status,
        "Details": state.details or None,
        "LastModifiedTime": state.at,
        "StepsJudged": state.judged,
        "StepsDropped": state.dropped,
        "Findings": [_finding(finding) for finding in state.findings],
        "Actions": [_action(each) for each in actions if action_of(each).rule == rule.name],
    }


def _finding(finding: Mapping[str, object]) -> Shape:
    step, evidence = finding.get("step"), finding.get("evidence")
    texts = {name: finding.get(name.lower()) for name in _TEXTS}
    return {
        "Message": str(finding.get("message", "")),
        "Step": step if isinstance(step, int) else None,
        "Evidence": json.dumps(evidence) if evidence else None,
        **{name: str(value) for name, value in texts.items() if value not in (None, "")},
    }


def _action(resource: Resource) -> Shape:
    action = action_of(resource)
    return {
        "Name": action.name,
        "Endpoint": action.endpoint or None,
        "Status": resource.status,
        "Tries": action.tries,
        "Told": action.told or None,
        "LastTried": action.at,
    }


def _parameters(rule: RulePlan) -> Mapping[str, str]:
    """Return the parameters of a rule as they are used; of a custom rule, those of the request."""
    try:
        # Rules bring numpy, which only jobs with rules need.
        from trainyard.insight.rules.catalog import rule_values

        values = rule_values(rule.rule, rule.parameters)
    except (ModuleNotFoundError, InvalidRequest):
        return rule.parameters
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
