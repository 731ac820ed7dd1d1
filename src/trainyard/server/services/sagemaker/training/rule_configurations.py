"""What the configurations of rules have in common, whether a rule reads tensors or profiles."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest

# AWS's image of built-in rules, which the SDK looks up by the region.
BUILT_IN_IMAGE = "sagemaker-debugger-rules"
MAX_RULES = 20

RULE, SOURCE, ACTIONS, DRY = "rule_to_invoke", "source_s3_uri", "action_json", "dry_run"
# Parameters that are not those of the rule itself.
RESERVED = (RULE, SOURCE, ACTIONS, DRY, "base_trial")

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def require_rule_names(given: Sequence[Mapping[str, Any]], member: str) -> None:
    """Raise InvalidRequest if a job has too many rules, or two of the same name."""
    if len(given) > MAX_RULES:
        raise InvalidRequest(f"{member} has {len(given)} rules; a job can have at most {MAX_RULES}.")
    names = [rule["RuleConfigurationName"] for rule in given]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f'{member} has the RuleConfigurationName "{name}" twice; give each rule its own name.')


def rule_member(name: str) -> str:
    """Return how messages name a rule."""
    return f'The rule "{name}"'


def has_built_in_image(given: Mapping[str, Any]) -> bool:
    """Whether a rule is one of the built-in ones: the last part of its image's name, without the tag, is theirs."""
    repository: str = given["RuleEvaluatorImage"].rpartition("/")[2].partition(":")[0].partition("@")[0]
    return repository == BUILT_IN_IMAGE


def is_true(value: str) -> bool:
    """Whether a parameter is a boolean that is true; False for any other text."""
    return _BOOLEANS.get(value.lower(), False)


def parse_boolean(value: str, member: str) -> bool:
    if value.lower() not in _BOOLEANS:
        raise InvalidRequest(f'{member} is "{value}"; it must be "true" or "false".')
    return _BOOLEANS[value.lower()]


def has_own_resources(rules: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a rule asks for an instance of its own. Descriptions have a VolumeSizeInGB of 0 for rules without one."""
    return any(rule.get("InstanceType") or rule.get("VolumeSizeInGB") for rule in rules)
