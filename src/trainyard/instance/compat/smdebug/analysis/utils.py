"""Controls the refreshing of trials, and parses arguments that come as strings."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class RefreshingTrial(Protocol):
    """A trial that looks for new steps on every access while `dynamic_refresh` is set."""

    dynamic_refresh: bool


Trials = TypeVar("Trials", bound="RefreshingTrial | list[RefreshingTrial]")


@contextmanager
def no_refresh(trials: Trials) -> Iterator[Trials]:
    """Keep a trial, or each of a list, from looking for new steps."""
    with _refreshing(trials, is_on=False):
        yield trials


@contextmanager
def refresh(trials: Trials) -> Iterator[Trials]:
    """Let a trial, or each of a list, look for new steps even inside `no_refresh`."""
    with _refreshing(trials, is_on=True):
        yield trials


def parse_list_from_str(arg: str | list[str] | None, delimiter: str = ",") -> list[str]:
    """Split a string into words. A list is returned as it is, and None gives an empty list."""
    if isinstance(arg, list):
        return arg
    return arg.split(delimiter) if arg else []


def parse_bool(arg: object, default: bool) -> bool:
    """Parse a word such as "True" or "false"; None gives the default."""
    if arg is None:
        return default
    if arg in (True, "True", "true"):
        return True
    if arg in (False, "False", "false"):
        return False
    raise ValueError(f'"{arg}" is neither true nor false; use one of True, False, "true", "false".')


@contextmanager
def _refreshing(trials: "RefreshingTrial | Iterable[RefreshingTrial]", *, is_on: bool) -> Iterator[None]:
    several: list[RefreshingTrial] = list(trials) if isinstance(trials, Iterable) else [trials]
    before = [trial.dynamic_refresh for trial in several]
    for trial in several:
        trial.dynamic_refresh = is_on
    try:
        yield
    finally:
        for trial, was_on in zip(several, before, strict=True):
            trial.dynamic_refresh = was_on
