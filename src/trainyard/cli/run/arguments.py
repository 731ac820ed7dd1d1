"""The arguments of `trainyard run`: the flags of `ssm`, and hyperparameters after `--`.

Some flags take several words. These are joined into one JSON word before click parses the arguments.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from typing import Any

import click

from trainyard.cli.terminal.console import CommandWithExamples, kebab_case
from trainyard.inputs import DISTRIBUTIONS, MODES
from trainyard.instance_group import InstanceGroup

# The number of words of each flag before the optional mode, distribution and subfolder.
_INPUTS = {"-i": 1, "--input-path": 1, "--iis": 2, "--input-s3": 2}
_LISTS = ("--dependencies",)


@dataclass(frozen=True, slots=True)
class InputArgument:
    """An input: its channel, its location and its distribution. A mode of None means that of the job."""

    channel: str
    location: str
    distribution: str = DISTRIBUTIONS[0]
    mode: str | None = None


class RunCommand(CommandWithExamples):
    """A command with hyperparameters after `--`, and with options that take several words."""

    # Only to refuse them in other words than click's.
    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        cut = args.index("--") if "--" in args else len(args)
        # A shell that completes a command line passes one that is not finished.
        ctx.meta[HYPERPARAMETERS] = {} if ctx.resilient_parsing else hyperparameters(args[cut + 1 :])
        with explain_unknown_option(ctx):
            surplus = super().parse_args(ctx, list(join_words(args[:cut])))
        if surplus and not ctx.resilient_parsing:
            has_input = any(kebab_case(word) in _INPUTS for word in args[:cut])
            raise click.UsageError(_surplus_text(ctx, surplus[0], has_input=has_input), ctx)
        return surplus


@contextmanager
def explain_unknown_option(ctx: click.Context) -> Iterator[None]:
    """Say where the options of a script belong: most unknown options are hyperparameters before the `--`."""
    try:
        yield
    except click.NoSuchOption as error:
        near = get_close_matches(error.option_name, error.possibilities or (), 1, cutoff=0.75)
        meant = f' Did you mean "{near[0]}"?' if near else ""
        raise click.UsageError(
            f'There is no option "{error.option_name}".{meant} Options of the script follow two dashes: '
            f"{ctx.command_path} SCRIPT -- {error.option_name} VALUE",
            ctx,
        ) from error


HYPERPARAMETERS = "trainyard.hyperparameters"


def hyperparameters(words: Sequence[str]) -> dict[str, Any]:
    """Parse `--epochs 3 --lr=0.1`. Every hyperparameter needs a value, because scripts get them as `--NAME VALUE`."""
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, separator, value = word.removeprefix("--").partition("=")
        value = value if separator else next(rest, "--")
        if not word.startswith("--") or not name or (not separator and value.startswith("--")):
            raise click.UsageError(f'After --, "{word}" is not a hyperparameter; write --NAME VALUE or --NAME=VALUE.')
        found[name] = _value(value)
    return found


def path_input(words: Sequence[str]) -> InputArgument:
    """Parse `-i PATH [MODE] [DISTRIBUTION] [SUBFOLDER]`, whose channel is "data"."""
    return _input("data", words)


def s3_input(words: Sequence[str]) -> InputArgument:
    """Parse `--iis NAME S3_URI [MODE] [DISTRIBUTION] [SUBFOLDER]`."""
    name, *rest = words
    if not rest or not rest[0].startswith("s3://"):
        raise click.UsageError(f"--iis {' '.join(words)}: give an S3 location, s3://…, after the name.")
    return _input(name, rest)


def instance_group(text: str) -> InstanceGroup:
    """Parse `--group NAME=TYPE:COUNT`."""
    name, _, of = text.partition("=")
    instance_type, _, count = of.partition(":")
    if not (name and instance_type and count.isdecimal()):
        raise click.UsageError(f"--group {text}: write NAME=TYPE:COUNT, such as trainers=ml.p3.2xlarge:2.")
    return InstanceGroup(name, instance_type, int(count))


def words_of(value: str) -> list[str]:
    """Return the words that were joined into one."""
    words: list[str] = json.loads(value)
    return words


def _surplus_text(ctx: click.Context, word: str, *, has_input: bool) -> str:
    modes, distributions = ", ".join(MODES), " and ".join(DISTRIBUTIONS)
    about_inputs = f" The modes of inputs are {modes}, their distributions {distributions}." if has_input else ""
    return (
        f'"{word}" is one argument too many: the script is "{ctx.params.get("script")}".{about_inputs} Arguments of '
        "the script follow two dashes, as --NAME VALUE."
    )


def _input(channel: str, words: Sequence[str]) -> InputArgument:
    location, *rest = words
    options = list(takewhile(_is_input_option, rest))
    subfolder = "".join(rest[len(options) :])
    return InputArgument(
        channel,
        f"{location.rstrip('/')}/{subfolder}" if subfolder else location,
        next((word for word in options if word in DISTRIBUTIONS), DISTRIBUTIONS[0]),
        next((word for word in options if word in MODES), None),
    )


def _is_input_option(word: str) -> bool:
    return word in DISTRIBUTIONS or word in MODES


def _value(word: str) -> Any:
    """Return a number if it prints as the same word, so that the script gets exactly what was typed."""
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        if str(number) == word and word not in ("nan", "inf", "-inf"):
            return number
    return word


def join_words(args: Sequence[str]) -> Iterator[str]:
    """Yield the arguments, with the words of each option that takes several joined into one."""
    position = 0
    while position < len(args):
        option = kebab_case(args[position])
        yield args[position]
        position += 1
        if option in _INPUTS:
            count = _input_words(args[position:], _INPUTS[option])
        elif option in _LISTS:
            count = _words_before_option(args[position:])
        else:
            continue
        # Without words, the parser reports what is missing.
        if count:
            yield json.dumps(list(args[position : position + count]))
            position += count


def _input_words(following: Sequence[str], needed: int) -> int:
    """Return how many words belong to an input.

    As in ssm, a subfolder can only follow a distribution; another word is the script.
    """
    words = following[: _words_before_option(following)]
    options = list(takewhile(_is_input_option, words[needed:]))
    has_subfolder = any(word in DISTRIBUTIONS for word in options)
    return min(len(words), needed + len(options) + has_subfolder)


def _words_before_option(following: Sequence[str]) -> int:
    return next((count for count, word in enumerate(following) if word.startswith("-")), len(following))
