"""The arguments of `trainyard run`: flags of `ssm`, some of which take several words, and hyperparameters after `--`.

What takes several words is gathered into one before the rest is parsed.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from trainyard.cli.console import Command

DISTRIBUTIONS = ("FullyReplicated", "ShardedByS3Key")

# How many words each takes before the distribution and the subfolder, which may follow.
_INPUTS = {"-i": 1, "--input_path": 1, "--iis": 2, "--input_s3": 2}
_LISTS = ("-d", "--dependencies")


@dataclass(frozen=True, slots=True)
class InputArgument:
    """One input: a channel, where its data is, and how it is dealt out."""

    channel: str
    location: str
    distribution: str = "FullyReplicated"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What was asked of `trainyard run`, by the names of the flags."""

    script: str | None
    entry_point: str | None
    source_dir: str | None
    dependencies: str | None  # gathered words
    project_name: str | None
    task_name: str | None
    bucket_name: str | None
    it: str
    ic: int
    volume_size: int
    spot: bool
    max_run_mins: int
    max_wait_mins: int
    keep_alive: int | None
    framework: str
    fv: str | None
    pv: str | None
    image_uri: str | None
    distribution: str | None
    model_uri: str | None
    input_path: str | None  # gathered words
    iis: tuple[str, ...]  # gathered words
    md: tuple[tuple[str, str], ...]
    tag: tuple[tuple[str, str], ...]
    output_path: Path | None
    download_model: bool
    download_output: bool
    detach: bool
    propagate: bool


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
    """What `-i PATH [DISTRIBUTION] [SUBFOLDER]` means; its channel is "data"."""
    return _input("data", words)


def s3_input(words: Sequence[str]) -> InputArgument:
    """What `--iis NAME S3_URI [DISTRIBUTION] [SUBFOLDER]` means."""
    name, *rest = words
    if not rest or not rest[0].startswith("s3://"):
        raise click.UsageError(f"--iis {' '.join(words)}: after the name comes an S3 location, s3://….")
    return _input(name, rest)


def words_of(value: str) -> list[str]:
    """The words that were gathered into one."""
    words: list[str] = json.loads(value)
    return words


def _input(channel: str, words: Sequence[str]) -> InputArgument:
    location, distribution, subfolder = (*words, "FullyReplicated", "")[:3] if len(words) == 1 else (*words, "")[:3]
    return InputArgument(channel, f"{location.rstrip('/')}/{subfolder}" if subfolder else location, distribution)


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
    free = _words_before_option(following)
    if free <= needed or following[needed] not in DISTRIBUTIONS:
        return min(free, needed)
    return min(free, needed + 2)


def _words_before_option(following: Sequence[str]) -> int:
    return next((count for count, word in enumerate(following) if word.startswith("-")), len(following))
