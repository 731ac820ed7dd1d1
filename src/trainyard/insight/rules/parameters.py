"""Parses the parameters of a rule from strings."""

import math
import re
from collections.abc import Mapping
from enum import StrEnum

from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.contract import Need, Parameter

# The parameter of every rule that chooses between AWS's defaults and ours.
DEFAULTS = "defaults"
NOTHING = ("none", "null", "")
TRUE, FALSE = ("true", "yes", "1"), ("false", "no", "0")


# Shared by rules whose parameters say which tensors to inspect.
COLLECTION_NAMES = Parameter("collection_names", tuple, None, "The collections whose tensors are checked.")
TENSOR_REGEX = Parameter("tensor_regex", tuple, None, "Regexes, searched in names, for further tensors to check.")


class Defaults(StrEnum):
    """Whose defaults apply: AWS's, or ours, which raise no alarm on healthy trainings."""

    AWS = "aws"
    ADVISED = "advised"


def parse_parameters(rule: str, parameters: tuple[Parameter, ...], given: Mapping[str, str]) -> dict[str, object]:
    """Return the value of each parameter; InvalidRequest names the invalid value and what is possible."""
    known = {parameter.name: parameter for parameter in parameters}
    unknown = sorted(set(given) - set(known) - {DEFAULTS})
    if unknown:
        possible = ", ".join([*known, DEFAULTS])
        raise InvalidRequest(f'Rule {rule} has no parameter "{unknown[0]}"; it has: {possible}.')
    chosen = _defaults(rule, given.get(DEFAULTS, Defaults.AWS))
    return {name: _value(rule, known[name], given.get(name), chosen) for name in known}


def tensors_to_inspect(
    rule: str,
    collections: tuple[str, ...] | None,
    *,
    regexes: tuple[str, ...] | None,
    otherwise: tuple[str, ...] = (),
) -> Need:
    """Return the need for tensors that the parameters name, else for the collections `otherwise`.

    InvalidRequest if there are none of either.
    """
    if collections or regexes:
        return Need(collections=collections or (), regexes=regexes or ())
    if otherwise:
        return Need(collections=otherwise)
    raise InvalidRequest(
        f'Rule {rule} does not know which tensors to inspect; set its parameter "collection_names", such as '
        f'"weights", or "tensor_regex".'
    )


def default_value(parameter: Parameter, defaults: Defaults) -> object:
    """Return the value of a parameter that is not set."""
    is_advised = defaults is Defaults.ADVISED and parameter.advised is not None
    return parameter.advised if is_advised else parameter.aws


def possible_values(parameter: Parameter) -> str:
    """Describe what a parameter may be: "a number of at least 0"."""
    words = {
        bool: '"True" or "False"',
        int: "a whole number",
        float: "a number",
        str: "a text",
        tuple: "texts with commas between them",
    }
    if parameter.choices:
        return "one of " + ", ".join(parameter.choices)
    limits = [f"at least {parameter.at_least:g}"] if parameter.at_least is not None else []
    limits += [f"at most {parameter.at_most:g}"] if parameter.at_most is not None else []
    nothing = ' or "None"' if parameter.aws is None and not parameter.is_required else ""
    return words[parameter.kind] + (" of " if limits else "") + " and ".join(limits) + nothing


def split_list(text: str) -> tuple[str, ...]:
    """Split a list at its commas, except for those in brackets, which regexes may have."""
    items, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth <= 0:
            items.append("")
        else:
            items[-1] += letter
    return tuple(item.strip() for item in items if item.strip())


def _defaults(rule: str, word: str) -> Defaults:
    try:
        return Defaults(word.strip().lower())
    except ValueError:
        raise InvalidRequest(f'{_describe_value(rule, DEFAULTS, word)}; it is "aws" or "advised".') from None


def _value(rule: str, parameter: Parameter, text: str | None, defaults: Defaults) -> object:
    if text is None and parameter.is_required:
        raise InvalidRequest(f'Rule {rule} needs the parameter "{parameter.name}": {parameter.help}')
    if text is None:
        return default_value(parameter, defaults)
    if text.strip().lower() in NOTHING:
        if parameter.aws is None and not parameter.is_required:
            return None
        raise InvalidRequest(f"{_describe_value(rule, parameter.name, text)}; it needs {possible_values(parameter)}.")
    try:
        value = _parse(parameter, text.strip())
    except ValueError:
        raise InvalidRequest(
            f"{_describe_value(rule, parameter.name, text)}; it needs {possible_values(parameter)}."
        ) from None
    _check_regexes(rule, parameter, value)
    return value


def _parse(parameter: Parameter, text: str) -> object:
    if parameter.kind is bool:
        return _truth(text)
    if parameter.kind is tuple:
        return split_list(text)
    value = parameter.kind(text)
    if not _is_within(parameter, value):
        raise ValueError(text)
    return value


def _truth(text: str) -> bool:
    word = text.lower()
    if word not in (*TRUE, *FALSE):
        raise ValueError(text)
    return word in TRUE


def _is_within(parameter: Parameter, value: int | float | str) -> bool:
    if isinstance(value, str):
        return not parameter.choices or value in parameter.choices
    is_low = parameter.at_least is not None and value < parameter.at_least
    is_high = parameter.at_most is not None and value > parameter.at_most
    return not (math.isnan(value) or is_low or is_high)


def _check_regexes(rule: str, parameter: Parameter, value: object) -> None:
    if not parameter.name.endswith("regex") or not isinstance(value, str | tuple):
        return
    for regex in (value,) if isinstance(value, str) else value:
        try:
            re.compile(regex)
        except re.error as error:
            raise InvalidRequest(
                f"{_describe_value(rule, parameter.name, regex)}; it is not a valid regular expression: {error}."
            ) from error


def _describe_value(rule: str, name: str, text: str) -> str:
    return f'Parameter "{name}" of rule {rule} is "{text}"'
