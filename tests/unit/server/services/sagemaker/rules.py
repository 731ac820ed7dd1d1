"""Rules and hooks for requests."""

import json
from typing import Any

BUILT_IN = "447278800020.dkr.ecr.eu-west-3.amazonaws.com/sagemaker-debugger-rules:latest"
EVALUATOR = "447278800020.dkr.ecr.eu-west-3.amazonaws.com/sagemaker-debugger-rule-evaluator:latest"


def hook(*collections: tuple[str, dict[str, str]], **changed: Any) -> dict[str, Any]:
    """Return a DebugHookConfig with these collections."""
    named = [{"CollectionName": name, "CollectionParameters": given} for name, given in collections]
    return {"S3OutputPath": "s3://data/debug/", "CollectionConfigurations": named, **changed}


def rule(name: str = "VanishingGradient", *, image: str = BUILT_IN, **parameters: str) -> dict[str, Any]:
    """Return the configuration of a built-in rule; empty parameters are not sent."""
    given = {"rule_to_invoke": name, **parameters}
    return {
        "RuleConfigurationName": name,
        "RuleEvaluatorImage": image,
        "RuleParameters": {key: value for key, value in given.items() if value},
    }


def actions(*given: dict[str, str]) -> str:
    """Return actions as the SDK writes them: JSON with escaped quotes."""
    return json.dumps(list(given)).replace('"', '\\"')


def judged(*rules: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Return the members of a request with rules."""
    return {"DebugHookConfig": hook(), "DebugRuleConfigurations": list(rules), **changed}
