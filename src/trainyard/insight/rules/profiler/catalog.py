"""The rules on profiles by name, and functions that make them from the strings of a request.

Names of rules and parameters are compared without case. Without the parameter `defaults`, the advised defaults apply:
AWS's documentation and its code give different ones.
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, cast

from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.parameters import DEFAULTS, Defaults, parse_parameters
from trainyard.insight.rules.profiler.contract import ProfilerRule
from trainyard.insight.rules.profiler.profiler_report import REPORTED, ProfilerReport

_ALL: Sequence[type[ProfilerRule]] = sorted((*REPORTED, ProfilerReport), key=lambda rule: rule.name)

PROFILER_RULES: Final[Mapping[str, type[ProfilerRule]]] = MappingProxyType({rule.name: rule for rule in _ALL})

# AWS's client library sends its defaults of these as if the user had set them, and they count datapoints.
_COUNTS = ("patience", "window")


def make_profiler_rule(name: str, parameters: Mapping[str, str]) -> ProfilerRule:
    """Make a rule. InvalidRequest names an unknown rule, or a parameter that is unknown or invalid."""
    rule = _rule_named(name)
    values = profiler_rule_values(name, parameters)
    if rule is ProfilerReport:
        return ProfilerReport(_report_rules(values))
    return cast(Callable[..., ProfilerRule], rule)(**values)


def report_rules(parameters: Mapping[str, str]) -> Sequence[tuple[str, ProfilerRule]]:
    """Return the rules that a ProfilerReport with these parameters evaluates, by name. InvalidRequest as above."""
    return _report_rules(profiler_rule_values(ProfilerReport.name, parameters))


def profiler_rule_values(name: str, parameters: Mapping[str, str]) -> dict[str, object]:
    """Return the value of each parameter of a rule: the given ones, and the defaults of the others."""
    rule = _rule_named(name)
    known = {each.name.lower(): each for each in rule.parameters}
    given = {DEFAULTS: str(Defaults.ADVISED)}
    for key, text in parameters.items():
        parameter = known.get(key.lower())
        spelled = parameter.name if parameter else DEFAULTS if key.lower() == DEFAULTS else key
        given[spelled] = text
    if given[DEFAULTS].strip().lower() != Defaults.AWS:
        given = {key: text for key, text in given.items() if not _is_default_count(known.get(key.lower()), text)}
    return parse_parameters(rule.name, rule.parameters, given)


def _report_rules(values: Mapping[str, object]) -> Sequence[tuple[str, ProfilerRule]]:
    return [
        (
            rule.name,
            cast(Callable[..., ProfilerRule], rule)(
                **{each.name: values[f"{rule.name}_{each.name}"] for each in rule.parameters}
            ),
        )
        for rule in REPORTED
    ]


def _rule_named(name: str) -> type[ProfilerRule]:
    by_name = {each.lower(): rule for each, rule in PROFILER_RULES.items()}
    rule = by_name.get(name.lower())
    if rule is None:
        near = get_close_matches(name.lower(), by_name, n=1)
        meant = f"; did you mean {by_name[near[0]].name}?" if near else "."
        raise InvalidRequest(f'There is no profiler rule "{name}"{meant} There are: {", ".join(PROFILER_RULES)}.')
    return rule


def _is_default_count(parameter: Parameter | None, text: str) -> bool:
    """Whether a parameter counts datapoints and has AWS's default, so that nobody may have asked for it."""
    if parameter is None or parameter.name.rpartition("_")[2] not in _COUNTS:
        return False
    return parameter.advised is not None and text.strip() == str(parameter.aws)
