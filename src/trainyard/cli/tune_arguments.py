"""What is tuned, as one types it: ranges, choices, metrics, and files that say the same."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from trainyard.cli.run_arguments import RunCommand
from trainyard.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter, ParameterRange

_SCALINGS = {"auto": "Auto", "linear": "Linear", "log": "Logarithmic", "reverse-log": "ReverseLogarithmic"}
_RANGE = re.compile(r"(?:(?P<scaling>[a-z-]+):)?(?P<low>[^:]+?)\.\.(?P<high>[^:.].*)")
_WHOLE = re.compile(r"[-+]?\d+")
_NUMBER = r"[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|nan|inf)"
_GATHERED = ("range", "choice", "metric")  # options that a file may have as a table


@dataclass(frozen=True, slots=True)
class Resource:
    """From how many to how many reports of the objective a trial of Hyperband may have."""

    least: int
    most: int


class TuneCommand(RunCommand):
    """A command of which a TOML file may give any option that the command line does not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for word, following in zip(args, [*args, ""][1:], strict=True):
            option, _, given = word.partition("=")
            if option == "--spec" and (path := given or following):
                ctx.default_map = defaults_of(Path(path), known=[each.name or "" for each in self.params])
        return super().parse_args(ctx, args)


def defaults_of(path: Path, *, known: Sequence[str]) -> dict[str, Any]:
    """The options in a file by the names of the parameters; tables hold those that name a hyperparameter or metric."""
    try:
        told = tomllib.loads(path.read_text())
    except OSError as error:
        raise click.UsageError(f"--spec {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--spec {path} is no TOML: {error}.") from error
    found = {name.replace("-", "_"): value for name, value in told.items()}
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise click.UsageError(f"--spec {path} has {', '.join(unknown)}, which is no option of this command.")
    for name in _GATHERED:
        if isinstance(found.get(name), Mapping):
            found[name] = [f"{key}={_joined(value)}" for key, value in found[name].items()]
    return found


def ranges_of(ranges: Sequence[str], choices: Sequence[str]) -> dict[str, ParameterRange]:
    """What `--range` and `--choice` say."""
    found: dict[str, ParameterRange] = {}
    for text in (*ranges, *choices):
        name, value = named(text, "--choice" if text in choices else "--range")
        if name in found:
            raise click.UsageError(f'"{name}" has two ranges; leave one of them out.')
        found[name] = CategoricalParameter(value.split(",")) if text in choices else _range(name, value)
    return found


def metrics_of(metrics: Sequence[str], pairs: Sequence[tuple[str, str]], *, objective: str) -> list[dict[str, str]]:
    """What `--metric` and `--md` say; where they say nothing of the objective, it is read as it is usually written."""
    regexes = dict(named(text, "--metric") for text in metrics) | dict(pairs)
    regexes.setdefault(objective, usual_regex(objective))
    return [{"Name": name, "Regex": regex} for name, regex in regexes.items()]


def usual_regex(metric: str) -> str:
    """What finds `loss: 0.5`, `loss=0.5` and `"loss": 0.5`, but not the loss in `val_loss: 0.5`."""
    return rf"(?:^|[^\w:.-]){re.escape(metric)}[\"']?\s*[:=]\s*({_NUMBER})"


def resource_of(text: str) -> Resource:
    """What `--resource LEAST..MOST` says."""
    least, separator, most = text.partition("..")
    if not separator or not least.isdecimal() or not most.isdecimal():
        raise click.UsageError(f"--resource {text}: write LEAST..MOST, such as 1..27.")
    return Resource(int(least), int(most))


def named(text: str, option: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE."""
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise click.UsageError(f"{option} {text}: write NAME=VALUE.")
    return name, value


def _range(name: str, text: str) -> ParameterRange:
    """A range of whole numbers if both ends are written as such."""
    parts = _RANGE.fullmatch(text)
    scaling = _SCALINGS.get((parts and parts["scaling"]) or "auto")
    if not parts and "," in text:
        raise click.UsageError(f"--range {name}={text}: one of several values is written --choice {name}={text}.")
    if not parts or not scaling:
        raise click.UsageError(
            f"--range {name}={text}: write LOW..HIGH, such as 1..8 or log:1e-5..1e-1; before it may be "
            f"{', '.join(_SCALINGS)}."
        )
    low, high = parts["low"], parts["high"]
    if _WHOLE.fullmatch(low) and _WHOLE.fullmatch(high):
        return IntegerParameter(int(low), int(high), scaling)
    try:
        return ContinuousParameter(float(low), float(high), scaling)
    except ValueError as error:
        raise click.UsageError(f"--range {name}={text}: {low} and {high} are not both numbers.") from error


def _joined(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
