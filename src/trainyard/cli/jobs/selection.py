"""Select many jobs: by names, by patterns such as `mnist-*`, by status and by age."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from trainyard._sdk.connection import Api
from trainyard.cli.jobs.kinds import KINDS, JobKind, kind_of, name_of, status_of
from trainyard.cli.jobs.lookup import find_job

# How many calls are made at the same time.
_THREADS = 8
_PAGE = 100
_WILDCARDS = re.compile(r"[*?[\]]")
_AGE = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SHOWN = 5

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
R = TypeVar("R")


class AgeParameter(click.ParamType[timedelta]):
    """A time such as 90m, 12h, 7d or 2w."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = _AGE.fullmatch(value.strip().lower())
        if match is None:
            self.fail(f'"{value}" is not an age; write 90m, 12h, 7d or 2w.', param, ctx)
        return timedelta(**{_UNITS[match[2]]: int(match[1])})


@dataclass(frozen=True, slots=True)
class JobSelection:
    """Which jobs a command is for, if they are not named one by one. Both statuses are matched, in any case."""

    patterns: Sequence[str] = ()
    status: str | None = None
    created_before: datetime | None = None

    def matches(self, summary: "Summary") -> bool:
        """Return whether a job fits every part of the filter."""
        statuses = (status_of(summary).lower(), summary.get("SecondaryStatus", "").lower())
        if self.status and self.status.lower() not in statuses:
            return False
        if self.created_before and summary["CreationTime"] >= self.created_before:
            return False
        return not self.patterns or any(fnmatchcase(name_of(summary), each) for each in self.patterns)


Summary = dict[str, Any]


def is_pattern(name: str) -> bool:
    """Return whether a name has wildcards, as patterns of file names have them."""
    return bool(_WILDCARDS.search(name))


def select_jobs(api: Api, wanted: JobSelection, *, statuses: Sequence[str]) -> Iterator[Summary]:
    """Yield the summaries of the jobs that fit a filter and have one of the primary statuses.

    Those of each kind and status come together, the newest first.
    """
    request: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": _PAGE}
    # The yard narrows the list as far as its filters can.
    if wanted.created_before:
        request["CreationTimeBefore"] = wanted.created_before
    if len(wanted.patterns) == 1 and (literal := longest_literal(wanted.patterns[0])):
        request["NameContains"] = literal
    for kind in KINDS:
        for status in statuses:
            found = _summaries(api, kind, {**request, "StatusEquals": status})
            yield from (each for each in found if wanted.matches(each))


def find_jobs(api: Api, names: Sequence[str]) -> list[Summary]:
    """Return the descriptions of jobs given by name, by prefix or as @last."""
    return list(map_in_parallel(lambda name: find_job(api, name, kinds=KINDS), names))


def map_in_parallel(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Yield the results of the work for each item, in order. If one fails, those that have not begun are left out."""
    executor = ThreadPoolExecutor(min(_THREADS, max(len(items), 1)))
    try:
        yield from executor.map(work, items)
    finally:
        executor.shutdown(cancel_futures=True)


def names_text(jobs: Sequence[Summary]) -> str:
    """Return the number of jobs with a few of their names, for a question."""
    names = [name_of(job) for job in jobs]
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    nouns = {kind_of(job).noun for job in jobs}
    noun = nouns.pop() if len(nouns) == 1 else "job"
    return f"{len(names):,} {noun}{'' if len(names) == 1 else 's'}: {', '.join(names[:_SHOWN])}{more}"


def _summaries(api: Api, kind: JobKind, request: dict[str, Any]) -> Iterator[Summary]:
    while True:
        page = api.call("sagemaker", f"List{kind.shape}s", **request)
        yield from page[kind.summaries_member]
        if not page.get("NextToken"):
            return
        request["NextToken"] = page["NextToken"]


def longest_literal(pattern: str) -> str:
    """Return the longest part of a pattern that stands for itself. A set of characters ends one, and is none."""
    return max(re.split(r"\*|\?|\[[^\]]*\]?", pattern), key=len)
