"""Trials that hold still, and arguments that come as strings."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class Refreshing(Protocol):
    """What looks for new steps with every question, while `dynamic_refresh` is set."""

    dynamic_refresh: bool


Trials = TypeVar("Trials", bound="Refreshing | list[Refreshing]")


@contextmanager
def no_refresh(trials: Trials) -> Iterator[Trials]:
    """Let a trial, or each of a list, show the steps that it knows and no newer ones."""
    with _refreshing(trials, is_on=False):
        yield trials


@contextmanager
def refresh(trials: Trials) -> Iterator[Trials]:
    """Let a trial, or each of a list, look for new steps even inside of `no_refresh`."""
    with _refreshing(trials, is_on=True):
        yield trials


def parse_list_from_str(arg: str | list[str] | None, delimiter: str = ",") -> list[str]:
    """The words of a string; a list is one already, and None an empty one."""
    if isinstance(arg, list):
        return arg
    return arg.split(delimiter) if arg else []


def parse_bool(arg: object, default: bool) -> bool:
    """What a word such as "True" or "false" means; None is the default."""
    if arg is None:
        return default
    if arg in (True, "True", "true"):
        return True
    if arg in (False, "False", "false"):
        return False
    raise ValueError(f'"{arg}" is neither true nor false; use one of True, False, "true", "false".')


@contextmanager
def _refreshing(trials: "Refreshing | Iterable[Refreshing]", *, is_on: bool) -> Iterator[None]:
    several: list[Refreshing] = list(trials) if isinstance(trials, Iterable) else [trials]
    before = [trial.dynamic_refresh for trial in several]
    for trial in several:
        trial.dynamic_refresh = is_on
    try:
        yield
    finally:
        for trial, was_on in zip(several, before, strict=True):
            trial.dynamic_refresh = was_on
