"""The arguments of `trainyard run`: flags of `ssm`, some of which take several words, and hyperparameters after `--`.

What takes several words is gathered into one before the rest is parsed.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import click

from trainyard.cli.console import Command
from trainyard.inputs import DISTRIBUTIONS, MODES
from trainyard.instance_group import InstanceGroup

# How many words each takes before the mode, the distribution and the subfolder, which may follow.
_INPUTS = {"-i": 1, "--input_path": 1, "--iis": 2, "--input_s3": 2}
_LISTS = ("-d", "--dependencies")


@dataclass(frozen=True, slots=True)
class InputArgument:
    """One input: a channel, where its data is, how it is dealt out, and how it comes if not as others of the job."""

    channel: str
    location: str
    distribution: str = DISTRIBUTIONS[0]
    mode: str | None = None


class RunCommand(Command):
    """A command whose words after `--` are hyperparameters, and some of whose options take several words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        cut = args.index("--") if "--" in args else len(args)
        ctx.meta[HYPERPARAMETERS] = hyperparameters(args[cut + 1 :])
        return super().parse_args(ctx, list(_gathered(args[:cut])))


HYPERPARAMETERS = "trainyard.hyperparameters"


def hyperparameters(words: Sequence[str]) -> dict[str, Any]:
    """The hyperparameters in `--epochs 3 --lr=0.1`. Each has a value, since a script gets it as `--NAME VALUE`."""
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, separator, value = word.removeprefix("--").partition("=")
        value = value if separator else next(rest, "--")
        if not word.startswith("--") or not name or (not separator and value.startswith("--")):
            raise click.UsageError(f'After --, "{word}" is no hyperparameter; write --NAME VALUE or --NAME=VALUE.')
        found[name] = _value(value)
    return found


def path_input(words: Sequence[str]) -> InputArgument:
    """What `-i PATH [MODE] [DISTRIBUTION] [SUBFOLDER]` means; its channel is "data"."""
    return _input("data", words)


def s3_input(words: Sequence[str]) -> InputArgument:
    """What `--iis NAME S3_URI [MODE] [DISTRIBUTION] [SUBFOLDER]` means."""
    name, *rest = words
    if not rest or not rest[0].startswith("s3://"):
        raise click.UsageError(f"--iis {' '.join(words)}: after the name comes an S3 location, s3://….")
    return _input(name, rest)


def instance_group(text: str) -> InstanceGroup:
    """What `--group NAME=TYPE:COUNT` means."""
    name, _, of = text.partition("=")
    instance_type, _, count = of.partition(":")
    if not (name and instance_type and count.isdecimal()):
        raise click.UsageError(f"--group {text}: write NAME=TYPE:COUNT, such as trainers=ml.p3.2xlarge:2.")
    return InstanceGroup(name, instance_type, int(count))


def words_of(value: str) -> list[str]:
    """The words that were gathered into one."""
    words: list[str] = json.loads(value)
    return words


def _input(channel: str, words: Sequence[str]) -> InputArgument:
    location, *rest = words
    said = list(takewhile(_is_said_of_inputs, rest))
    subfolder = "".join(rest[len(said) :])
    return InputArgument(
        channel,
        f"{location.rstrip('/')}/{subfolder}" if subfolder else location,
        next((word for word in said if word in DISTRIBUTIONS), DISTRIBUTIONS[0]),
        next((word for word in said if word in MODES), None),
    )


def _is_said_of_inputs(word: str) -> bool:
    return word in DISTRIBUTIONS or word in MODES


def _value(word: str) -> Any:
    """A number where writing it back gives the same word, so that a script sees what was typed."""
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        if str(number) == word and word not in ("nan", "inf", "-inf"):
            return number
    return word


def _gathered(args: Sequence[str]) -> Iterator[str]:
    """The arguments with the words of each option that takes several gathered into one."""
    position = 0
    while position < len(args):
        option = args[position]
        position += 1
        yield option
        if option in _INPUTS:
            count = _input_words(args[position:], _INPUTS[option])
        elif option in _LISTS:
            count = _words_before_option(args[position:])
        else:
            continue
        if count:  # else the parser says what is missing
            yield json.dumps(list(args[position : position + count]))
            position += count


def _input_words(following: Sequence[str], needed: int) -> int:
    """How many words belong to an input. A subfolder follows a distribution only, as in ssm: else it is the script."""
    free = following[: _words_before_option(following)]
    said = list(takewhile(_is_said_of_inputs, free[needed:]))
    has_subfolder = any(word in DISTRIBUTIONS for word in said)
    return min(len(free), needed + len(said) + has_subfolder)


def _words_before_option(following: Sequence[str]) -> int:
    return next((count for count, word in enumerate(following) if word.startswith("-")), len(following))
