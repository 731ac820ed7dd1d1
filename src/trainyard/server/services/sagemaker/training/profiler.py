"""ProfilerConfig and ProfilerRuleConfigurations: how a training job is profiled, and which rules read its profile.

The hardware of every job is sampled unless the job disables its profiler. Everything is checked here, so that no job
trains for hours before a rule turns out to be unknown.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from trainyard.formats.profiles.parameters import DEEP_PROFILER, parse_parameters
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.extras import YARD_PYTHON, install_command, missing_module, require_extra
from trainyard.foundation.jobs.attempts import RuleState
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.foundation.jobs.training.plan import ProfilerPlan, RulePlan
from trainyard.objects.contract import ObjectStore
from trainyard.server.gateways import Gateways
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.training.inputs import require_bucket
from trainyard.server.services.sagemaker.training.local_paths import profiles_of
from trainyard.server.services.sagemaker.training.rule_actions import actions_of
from trainyard.server.services.sagemaker.training.rule_configurations import (
    ACTIONS,
    DRY,
    RESERVED,
    RULE,
    SOURCE,
    has_built_in_image,
    has_own_resources,
    parse_boolean,
    require_rule_names,
    rule_member,
)

# The rule that AWS's SDK adds to jobs by itself.
REPORT = "ProfilerReport"
INTERVALS_MS = (100, 200, 500, 1000, 5000, 60000)
# As on AWS; of a job without a ProfilerConfig, so that it costs next to nothing.
DEFAULT_INTERVAL_MS = 500
UNCONFIGURED_INTERVAL_MS = 1000

_CONFIG, _RULES, _PARAMETERS = "ProfilerConfig", "ProfilerRuleConfigurations", "ProfilingParameters"
_INTERVAL = "ProfilingIntervalInMilliseconds"


def profiler_of(shape: Shape, gateways: Gateways) -> ProfilerPlan:
    """Return the profiler plan of a request; InvalidRequest if a member is invalid."""
    config = shape.get(_CONFIG, {})
    parse_parameters(config.get(_PARAMETERS, {}), member=f"{_CONFIG}.{_PARAMETERS}")
    folder = profiles_of(shape)
    return ProfilerPlan(
        uri=folder.uri,
        path=folder.path,
        interval_ms=_interval_ms(config, has_config=_CONFIG in shape),
        is_exported="S3OutputPath" in config,
        parameters=config.get(_PARAMETERS, {}),
        rules=_rules(shape.get(_RULES, ()), gateways),
        is_enabled=not config.get("DisableProfiler", False),
    )


def require_enabled(plan: ProfilerPlan) -> None:
    """Raise InvalidRequest for rules that would have no profile to read."""
    if plan.rules and not plan.is_enabled:
        raise InvalidRequest(
            f"{_RULES} read the profile of the job, and its {_CONFIG} has DisableProfiler; set that to false, or leave "
            "the rules out."
        )


def require_profiler_locations(shape: Shape, objects: ObjectStore, *, account: str) -> None:
    """Raise InvalidRequest if a bucket for profiles, or for the results of a rule, does not exist."""
    if "S3OutputPath" in shape.get(_CONFIG, {}):
        require_bucket(objects, shape[_CONFIG]["S3OutputPath"], account=account, member=f"{_CONFIG}.S3OutputPath")
    for rule in shape.get(_RULES, ()):
        if "S3OutputPath" in rule:
            member = f"{rule_member(rule['RuleConfigurationName'])}.S3OutputPath"
            require_bucket(objects, rule["S3OutputPath"], account=account, member=member)


def notes_on_profiler(shape: Shape) -> Iterator[str]:
    """Yield notes on settings that have no effect."""
    given = shape.get(_CONFIG, {}).get(_PARAMETERS, {})
    unused = [name for name in DEEP_PROFILER if name.lower() in {each.lower() for each in given}]
    if unused:
        yield f"{_PARAMETERS} have {' and '.join(unused)}, which only SageMaker Profiler, a tool of AWS, would use."
    if has_own_resources(shape.get(_RULES, ())):
        yield "InstanceType and VolumeSizeInGB of a profiler rule are not used: the yard evaluates it."


def unavailable_rules(plan: ProfilerPlan, *, now: datetime) -> tuple[RuleState, ...]:
    """Return the states of rules that this yard accepts but cannot evaluate, because its Python lacks a package."""
    if missing_module("profiler") is None:
        return ()
    details = f"The rule is not evaluated: a package is missing in {YARD_PYTHON}. {install_command('profiler')}"
    return tuple(RuleState(rule.name, RuleStatus.ERROR, now, details=details) for rule in plan.rules)


def _interval_ms(config: Mapping[str, Any], *, has_config: bool) -> int:
    given: int = config.get(_INTERVAL, DEFAULT_INTERVAL_MS if has_config else UNCONFIGURED_INTERVAL_MS)
    if given not in INTERVALS_MS:
        raise InvalidRequest(
            f"{_CONFIG}.{_INTERVAL} is {given}; it must be one of {', '.join(map(str, INTERVALS_MS))}."
        )
    return given


def _rules(given: Sequence[Mapping[str, Any]], gateways: Gateways) -> tuple[RulePlan, ...]:
    require_rule_names(given, _RULES)
    return tuple(_rule(rule, gateways) for rule in given)


def _rule(given: Mapping[str, Any], gateways: Gateways) -> RulePlan:
    name, parameters = given["RuleConfigurationName"], given.get("RuleParameters", {})
    member = rule_member(name)
    if SOURCE in parameters or not has_built_in_image(given):
        what = f"a {SOURCE}" if SOURCE in parameters else f'the image "{given["RuleEvaluatorImage"]}"'
        raise InvalidRequest(
            f"{member} has {what}; a profiler rule must be one of the built-in ones, with their image. To check a "
            "profile in another way, read it with trainyard.profiler."
        )
    rule = parameters.get(RULE, "")
    if not rule:
        raise InvalidRequest(f"{member} needs the parameter {RULE}: the name of a built-in rule, such as {REPORT}.")
    actions = actions_of(parameters.get(ACTIONS, ""), gateways, member=f"{member}.{ACTIONS}", has_checkpoints=True)
    if any(action["name"] == "checkpointthenstop" for action in actions):
        raise InvalidRequest(
            f"{member}.{ACTIONS} has checkpointthenstop, which only rules of the debugger can have; use stoptraining."
        )
    own = {key: value for key, value in parameters.items() if key not in RESERVED}
    return RulePlan(
        name=name,
        rule=_spelled_rule(rule, own, member),
        parameters=own,
        actions=actions,
        is_dry=parse_boolean(parameters.get(DRY, "false"), f"{member}.{DRY}"),
        output_path=given.get("S3OutputPath", ""),
    )


def _spelled_rule(rule: str, parameters: Mapping[str, str], member: str) -> str:
    """Return the name of a rule as the catalog spells it; InvalidRequest if it or a parameter is invalid."""
    if rule.lower() == REPORT.lower() and (not parameters or missing_module("profiler") is not None):
        # The SDK adds it, so the job is accepted in any case; `unavailable_rules` says what is missing.
        return REPORT
    require_extra("profiler", where=YARD_PYTHON)
    # Imports numpy, which a yard without rules does not need.
    from trainyard.insight.rules.profiler.catalog import make_profiler_rule

    try:
        return make_profiler_rule(rule, parameters).name
    except InvalidRequest as error:
        raise InvalidRequest(f"{member} is invalid: {error.message}") from error
