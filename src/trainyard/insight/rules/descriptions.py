"""What the built-in rules are and which parameters they have, in words."""

from dataclasses import dataclass

from trainyard.insight.rules.catalog import RULES
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.parameters import Defaults, default_value


@dataclass(frozen=True, slots=True)
class ParameterHelp:
    """A parameter of a built-in rule. `default` is that of AWS, `advised` is ours."""

    name: str
    default: str
    advised: str
    help: str


@dataclass(frozen=True, slots=True)
class RuleHelp:
    """A built-in rule and its parameters."""

    name: str
    about: str
    parameters: tuple[ParameterHelp, ...]


def built_in_rules() -> list[RuleHelp]:
    """Return the built-in rules, sorted by name."""
    return [
        RuleHelp(name, _first_line(rule.__doc__), tuple(map(_parameter_help, rule.parameters)))
        for name, rule in sorted(RULES.items())
    ]


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _parameter_help(parameter: Parameter) -> ParameterHelp:
    aws = "required" if parameter.is_required else _value_text(default_value(parameter, Defaults.AWS))
    return ParameterHelp(parameter.name, aws, _value_text(default_value(parameter, Defaults.ADVISED)), parameter.help)


def _value_text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
