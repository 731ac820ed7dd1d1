"""The files of the rules, in the form of AWS: one JSON object each."""

import json
import re
from collections.abc import Mapping, Sequence

from trainyard.insight.profiling.report.contract import RULES_FOLDER, ReportedRule
from trainyard.insight.profiling.report.json_values import to_json_value

# The name of a configuration comes from a request.
_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]+")


def write_rule_files(rules: Sequence[ReportedRule]) -> Mapping[str, bytes]:
    """Return the files by name. A rule that is configured twice has the second under its configuration's name."""
    files: dict[str, bytes] = {}
    for rule in rules:
        name = _file_name(rule.rule)
        if name in files:
            name = _file_name(rule.name)
        files[name] = json.dumps(rule_report(rule), indent=2).encode()
    return files


def rule_report(rule: ReportedRule) -> dict[str, object]:
    """Return the members that AWS's files have. The findings are among the details."""
    details = dict(to_json_value(rule.check.details))
    if rule.check.findings:
        details["findings"] = to_json_value(rule.check.findings)
    if rule.check.undecided:
        details["undecided"] = rule.check.undecided
    return {
        "RuleTriggered": len(rule.check.findings),
        "Violations": rule.check.violations,
        "Datapoints": rule.check.datapoints,
        "RuleParameters": "\n".join(f"{name}:{value}" for name, value in rule.parameters.items()),
        "Details": details,
    }


def _file_name(name: str) -> str:
    return f"{RULES_FOLDER}/{_FOREIGN.sub('-', name).strip('.-') or 'rule'}.json"
