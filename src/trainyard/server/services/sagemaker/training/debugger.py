"""DebugHookConfig and DebugRuleConfigurations: which tensors a training job captures, and which rules check them.

Everything is checked here, so that no job trains for hours before a rule turns out to be unknown. AWS's image of
built-in rules means our rules of the same names; any other image means a rule in a file of the user.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.extras import YARD_PYTHON, require_extra
from trainyard.foundation.jobs.training.plan import DebuggerPlan, RulePlan
from trainyard.objects.contract import ObjectStore
from trainyard.server.gateways import Gateways
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.training.hook_parameters import (
    BUILT_IN,
    check_collection_parameters,
    check_hook_parameters,
    merge_collections,
)
from trainyard.server.services.sagemaker.training.inputs import require_bucket, require_object
from trainyard.server.services.sagemaker.training.local_paths import tensors_of
from trainyard.server.services.sagemaker.training.rule_actions import actions_of
from trainyard.server.services.sagemaker.training.rule_configurations import (
    ACTIONS,
    DRY,
    RESERVED,
    RULE,
    SOURCE,
    has_built_in_image,
    has_own_resources,
    is_true,
    parse_boolean,
    require_rule_names,
    rule_member,
)

_HOOK, _RULES = "DebugHookConfig", "DebugRuleConfigurations"
_STOP_PARAMETER = "stop_training_on_fire"
_OTHER_TRIAL = re.compile(r"other_trial_\d+")


def debugger_of(shape: Shape, gateways: Gateways) -> DebuggerPlan | None:
    """Return the debugger plan of a request, or None if it captures nothing; InvalidRequest if a member is invalid."""
    rules = shape.get(_RULES, ())
    if _HOOK not in shape:
        if rules:
            raise InvalidRequest(
                f"{_RULES} need tensors, and without a {_HOOK} none are captured; give a {_HOOK} with an S3OutputPath, "
                "or leave the rules out."
            )
        return None
    hook, folder = shape[_HOOK], tensors_of(shape)
    return DebuggerPlan(
        hook=_hook_file(hook, path=folder.path, shows_histograms="TensorBoardOutputConfig" in shape),
        uri=folder.uri,
        path=folder.path,
        rules=_rules(rules, gateways, has_checkpoints="CheckpointConfig" in shape),
    )


def require_debugger_locations(plan: DebuggerPlan, shape: Shape, objects: ObjectStore, *, account: str) -> None:
    """Raise InvalidRequest if a bucket or the file of a rule does not exist."""
    require_bucket(objects, plan.uri, account=account, member=f"{_HOOK}.S3OutputPath")
    for given, rule in zip(shape.get(_RULES, ()), plan.rules, strict=True):
        member = rule_member(rule.name)
        if "S3OutputPath" in given:
            require_bucket(objects, given["S3OutputPath"], account=account, member=f"{member}.S3OutputPath")
        if rule.source:
            require_object(objects, rule.source, account=account, member=f"{member}.{SOURCE}")


def notes_on_debugger(shape: Shape) -> Iterator[str]:
    """Yield notes on settings that have no effect, or an unexpected one."""
    for name, parameters in _collections(shape.get(_HOOK, {})):
        if name not in BUILT_IN and not parameters.get("include_regex"):
            yield f'The collection "{name}" has no include_regex, so it has only the tensors that the script adds.'
    if has_own_resources(shape.get(_RULES, ())):
        yield "InstanceType and VolumeSizeInGB of a rule are not used: the job's own instances evaluate it."


def _hook_file(hook: Mapping[str, Any], *, path: str, shows_histograms: bool) -> dict[str, object]:
    """Return the content of debughookconfig.json, with histograms if TensorBoard is to show them."""
    parameters = hook.get("HookParameters", {})
    check_hook_parameters(parameters, member=f"{_HOOK}.HookParameters")
    for name, given in _collections(hook):
        check_collection_parameters(given, member=f'{_HOOK}.CollectionConfigurations "{name}"')
    collections = merge_collections(_collections(hook), parameters)
    return {
        "LocalPath": path,
        "S3OutputPath": hook["S3OutputPath"],
        "HookParameters": {**parameters, **({"export_tensorboard": "true"} if shows_histograms else {})},
        "CollectionConfigurations": [
            {"CollectionName": name, "CollectionParameters": given} for name, given in collections.items()
        ],
    }


def _collections(hook: Mapping[str, Any]) -> list[tuple[str, Mapping[str, str]]]:
    found = []
    for number, each in enumerate(hook.get("CollectionConfigurations", ()), 1):
        if not each.get("CollectionName"):
            raise InvalidRequest(f"{_HOOK}.CollectionConfigurations number {number} needs a CollectionName.")
        found.append((each["CollectionName"], each.get("CollectionParameters", {})))
    return found


def _rules(given: list[dict[str, Any]], gateways: Gateways, *, has_checkpoints: bool) -> tuple[RulePlan, ...]:
    if given:
        require_extra("debugger", where=YARD_PYTHON)
    require_rule_names(given, _RULES)
    return tuple(_rule(rule, gateways, has_checkpoints=has_checkpoints) for rule in given)


def _rule(given: Mapping[str, Any], gateways: Gateways, *, has_checkpoints: bool) -> RulePlan:
    name, parameters = given["RuleConfigurationName"], given.get("RuleParameters", {})
    member = rule_member(name)
    plan = RulePlan(
        name=name,
        rule=parameters.get(RULE, ""),
        parameters=_rule_parameters(parameters),
        actions=actions_of(
            parameters.get(ACTIONS, ""), gateways, member=f"{member}.{ACTIONS}", has_checkpoints=has_checkpoints
        )
        + _stop_of(parameters),
        source=parameters.get(SOURCE, ""),
        is_dry=parse_boolean(parameters.get(DRY, "false"), f"{member}.{DRY}"),
    )
    if has_built_in_image(given):
        return _built_in(plan, member)
    _require_custom(plan, member, image=given["RuleEvaluatorImage"])
    return plan


def _rule_parameters(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of the rule itself. The SDK numbers other trials; rules take one list of them."""
    own = {key: value for key, value in parameters.items() if key not in RESERVED and not _OTHER_TRIAL.fullmatch(key)}
    others = sorted(key for key in parameters if _OTHER_TRIAL.fullmatch(key))
    return own | ({"other_trials": ",".join(parameters[key] for key in others)} if others else {})


def _stop_of(parameters: Mapping[str, str]) -> tuple[Mapping[str, str], ...]:
    """Return the stop action that StalledTrainingRule takes as a parameter, which is older than actions."""
    return ({"name": "stoptraining"},) if is_true(parameters.get(_STOP_PARAMETER, "")) else ()


def _built_in(plan: RulePlan, member: str) -> RulePlan:
    """Return the plan with where the rule is evaluated. Agents have no numpy to find that out."""
    # Imports numpy, which a yard without rules does not need.
    from trainyard.insight.rules.catalog import make_rule
    from trainyard.insight.rules.contract import needs_own_process

    if plan.source:
        raise InvalidRequest(
            f"{member} has a {SOURCE} and the image of the built-in rules; a custom rule needs another image."
        )
    if not plan.rule:
        raise InvalidRequest(f"{member} needs the parameter {RULE}: the name of a built-in rule.")
    try:
        rule = make_rule(plan.rule, plan.parameters)
    except InvalidRequest as error:
        raise InvalidRequest(f"{member} is invalid: {error.message}") from error
    return replace(plan, is_beside=needs_own_process(rule))


def _require_custom(plan: RulePlan, member: str, *, image: str) -> None:
    if not plan.source or not plan.rule:
        raise InvalidRequest(
            f'{member} has the image "{image}", which is not the image of the built-in rules. A custom rule needs the '
            f"parameters {SOURCE}, a Python file on S3, and {RULE}, a class in it; its image is not run."
        )
    if not plan.rule.isidentifier():
        raise InvalidRequest(f'{member} has the {RULE} "{plan.rule}", which is not a valid class name.')
