"""The arguments of `trainyard tune`: ranges, choices and metrics, and TOML files with the same options."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from trainyard.cli.run.arguments import RunCommand
from trainyard.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter, ParameterRange

_SCALINGS = {"auto": "Auto", "linear": "Linear", "log": "Logarithmic", "reverse-log": "ReverseLogarithmic"}
_RANGE = re.compile(r"(?:(?P<scaling>[a-z-]+):)?(?P<low>[^:]+?)\.\.(?P<high>[^:.].*)")
_WHOLE = re.compile(r"[-+]?\d+")
_NUMBER = r"[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|nan|inf)"
# Options that can be tables in a TOML file.
_TABLES = ("range", "choice", "metric")


@dataclass(frozen=True, slots=True)
class ResourceRange:
    """The fewest and the most reports of the objective that a trial of Hyperband can have."""

    least: int
    most: int


class TuneCommand(RunCommand):
    """A command that reads options from a TOML file. Options on the command line take precedence."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for word, following in zip(args, [*args, ""][1:], strict=True):
            option, _, given = word.partition("=")
            if option == "--spec" and (path := given or following):
                ctx.default_map = read_spec(Path(path), known=[each.name or "" for each in self.params])
        return super().parse_args(ctx, args)


def read_spec(path: Path, *, known: Sequence[str]) -> dict[str, Any]:
    """Read the options of a TOML file, by parameter name. A table becomes a list of NAME=VALUE."""
    try:
        options = tomllib.loads(path.read_text())
    except OSError as error:
        raise click.UsageError(f"--spec {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--spec {path} is not valid TOML: {error}.") from error
    found = {name.replace("-", "_"): value for name, value in options.items()}
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise click.UsageError(f"--spec {path} has unknown options: {', '.join(unknown)}.")
    for name in _TABLES:
        if isinstance(found.get(name), Mapping):
            found[name] = [f"{key}={_value_text(value)}" for key, value in found[name].items()]
    return found


def ranges_of(ranges: Sequence[str], choices: Sequence[str]) -> dict[str, ParameterRange]:
    """Parse the values of `--range` and `--choice`."""
    found: dict[str, ParameterRange] = {}
    for text in (*ranges, *choices):
        name, value = split_assignment(text, "--choice" if text in choices else "--range")
        if name in found:
            raise click.UsageError(f'"{name}" has two ranges; leave one of them out.')
        found[name] = CategoricalParameter(value.split(",")) if text in choices else _range(name, value)
    return found


def metrics_of(metrics: Sequence[str], pairs: Sequence[tuple[str, str]], *, objective: str) -> list[dict[str, str]]:
    """Parse the values of `--metric` and `--md`. If they do not define the objective, add its usual expression."""
    regexes = dict(split_assignment(text, "--metric") for text in metrics) | dict(pairs)
    regexes.setdefault(objective, usual_regex(objective))
    return [{"Name": name, "Regex": regex} for name, regex in regexes.items()]


def usual_regex(metric: str) -> str:
    """Return an expression that matches `loss: 0.5`, `loss=0.5` and `"loss": 0.5`, but not `val_loss: 0.5`."""
    return rf"(?:^|[^\w:.-]){re.escape(metric)}[\"']?\s*[:=]\s*({_NUMBER})"


def resource_of(text: str) -> ResourceRange:
    """Parse `--resource LEAST..MOST`."""
    least, separator, most = text.partition("..")
    if not separator or not least.isdecimal() or not most.isdecimal():
        raise click.UsageError(f"--resource {text}: write LEAST..MOST, such as 1..27.")
    return ResourceRange(int(least), int(most))


def split_assignment(text: str, option: str) -> tuple[str, str]:
    """Split NAME=VALUE into its two sides."""
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise click.UsageError(f"{option} {text}: write NAME=VALUE.")
    return name, value


def _range(name: str, text: str) -> ParameterRange:
    """Parse LOW..HIGH: an integer range if both bounds are integers."""
    parts = _RANGE.fullmatch(text)
    scaling = _SCALINGS.get((parts and parts["scaling"]) or "auto")
    if not parts and "," in text:
        raise click.UsageError(f"--range {name}={text}: write several values as --choice {name}={text}.")
    if not parts or not scaling:
        raise click.UsageError(
            f"--range {name}={text}: write LOW..HIGH, such as 1..8 or log:1e-5..1e-1; the scales are "
            f"{', '.join(_SCALINGS)}."
        )
    low, high = parts["low"], parts["high"]
    if _WHOLE.fullmatch(low) and _WHOLE.fullmatch(high):
        return IntegerParameter(int(low), int(high), scaling)
    try:
        return ContinuousParameter(float(low), float(high), scaling)
    except ValueError as error:
        raise click.UsageError(f"--range {name}={text}: {low} and {high} are not both numbers.") from error


def _value_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
