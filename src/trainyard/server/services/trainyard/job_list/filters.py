"""The filter of a list of jobs, as a person types it.

    status:failed loss<0.5 lr>=0.01 tag:team=vision user:ann created>7d bert sort:-created

A filter is words and conditions; a job must meet all of them. A word is part of the name. A condition is a column, an
operator and a value, or several with commas between them. There are no regular expressions. A minus sign in front
negates. What is in double quotes may have spaces, commas and operators; \\" is a quote inside quotes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import ge, gt, le, lt

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.status import PRIMARY, SecondaryStatus
from trainyard.server.jobs.summaries import JobSummary, SummaryKind
from trainyard.server.records.contract import Query, TagFilter
from trainyard.server.services.trainyard.job_list.columns import (
    FIELDS,
    ColumnKind,
    JobColumn,
    ListedJobs,
    Value,
    ValueType,
    parse_column,
)
from trainyard.server.services.trainyard.job_list.quoting import mask, split_parts, split_values, unquote

MAX_LENGTH = 2000
MAX_PARTS = 50

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_OPERATORS = (">=", "<=", "!=", ">", "<", "=")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_STATES = ("waiting", "running", "stopping", "completed", "failed", "stopped")
# The words for the states of jobs as AWS writes them, and the primary status of each state.
_STATUS_OF = {"waiting": "InProgress", "running": "InProgress"} | {
    each: each.capitalize() for each in ("stopping", "completed", "failed", "stopped")
}
_PHASES = {str(each).lower(): PRIMARY[each] for each in SecondaryStatus}
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")


@dataclass(frozen=True, slots=True)
class Sort:
    """The order of a list."""

    column: JobColumn
    is_descending: bool


@dataclass(frozen=True, slots=True)
class Condition:
    """One part of a filter. `values` are those it compares with, any of which may hold."""

    column: JobColumn
    operator: str
    values: tuple[Value, ...] = ()
    is_negated: bool = False

    def holds(self, job: JobSummary, listed: ListedJobs) -> bool:
        value = self.column.value(job, listed)
        return self._fits(value) != self.is_negated

    def _fits(self, value: Value) -> bool:
        if self.operator == "has":
            return value is not None
        if value is None:
            return False
        if self.operator in _COMPARISONS:
            compare = _COMPARISONS[self.operator]
            return isinstance(value, float) and all(isinstance(v, float) and compare(value, v) for v in self.values)
        if self.operator == "~":
            text = str(value).lower()
            return any(str(each).lower() in text for each in self.values)
        return any(_equals(value, each) for each in self.values)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A parsed filter."""

    words: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    sort: Sort | None = None

    @property
    def kinds(self) -> Sequence[SummaryKind]:
        """The kinds of jobs that can match."""
        asked = [each for each in self._require_fields("kind") if each.operator == "="]
        return [kind for kind in SummaryKind if all(str(kind) in each.values for each in asked)]

    @property
    def needs_tags(self) -> bool:
        return any(each.column.kind is ColumnKind.TAG for each in self.conditions)

    @property
    def rest(self) -> tuple[Condition, ...]:
        """The conditions that `narrow` does not put into the query."""
        return tuple(each for each in self.conditions if not _is_indexed(each))

    def narrow(self, query: Query, *, accounts: Mapping[str, str]) -> Query:
        """Restrict a query to what can match. `accounts` are those of the known users by name."""
        query = replace(query, name_words=self.words)
        for each in self._require_fields("status", "phase"):
            statuses = {_primary(each.column.name, value) for value in each.values}
            if each.operator == "=" and len(statuses) == 1:
                query = replace(query, status=statuses.pop())
        for each in self._require_fields("user"):
            if query.account is None and len(each.values) == 1 and str(each.values[0]) in accounts:
                query = replace(query, account=accounts[str(each.values[0])])
        for each in self._require_fields("created", "modified"):
            query = _with_time(query, each)
        tags = (each for each in self.conditions if each.column.kind is ColumnKind.TAG and not each.is_negated)
        indexed = (each for each in tags if _is_indexed(each))
        found = tuple(TagFilter(each.column.name, tuple(map(str, each.values))) for each in indexed)
        return replace(query, tags=found)

    def matches(self, job: JobSummary, listed: ListedJobs, conditions: Sequence[Condition]) -> bool:
        return all(each.holds(job, listed) for each in conditions)

    def _require_fields(self, *names: str) -> Iterator[Condition]:
        """Yield the conditions on these fields that must hold."""
        for each in self.conditions:
            if each.column.kind is ColumnKind.FIELD and each.column.name in names and not each.is_negated:
                yield each


def parse_filter(text: str, *, now: datetime) -> JobFilter:
    """Parse what a person typed. InvalidRequest says which part is wrong and what would be right."""
    if len(text) > MAX_LENGTH:
        raise InvalidRequest(f"The filter has {len(text)} characters; at most {MAX_LENGTH} are allowed.")
    try:
        parts = list(split_parts(text))
    except ValueError as error:
        raise _wrong(str(error), "begins with a quote that has no end", 'write "two words"') from error
    if len(parts) > MAX_PARTS:
        raise InvalidRequest(f"The filter has {len(parts)} parts; at most {MAX_PARTS} are allowed.")
    found = JobFilter()
    for part in parts:
        found = _with_part(found, part, now)
    return found


def parse_sort(text: str) -> Sort:
    """Parse `loss`, which sorts upwards, or `-loss`."""
    name = text.removeprefix("-")
    if not name:
        raise _wrong(f"sort:{text}", "names no column", "write sort:created or sort:-loss.min")
    return Sort(parse_column(name), text.startswith("-"))


def _with_part(found: JobFilter, part: str, now: datetime) -> JobFilter:
    is_negated = len(part) > 1 and part[0] == "-"
    body = part[1:] if is_negated else part
    if body.startswith("sort:"):
        return replace(found, sort=parse_sort(unquote(body.removeprefix("sort:"))))
    condition = _condition(body, part, now)
    if condition is not None:
        condition = replace(condition, is_negated=condition.is_negated != is_negated)
        return replace(found, conditions=(*found.conditions, condition))
    word = unquote(body)
    if is_negated:
        by_name = Condition(JobColumn(ColumnKind.FIELD, "name"), "~", (word,), is_negated=True)
        return replace(found, conditions=(*found.conditions, by_name))
    return replace(found, words=(*found.words, word.lower())) if word else found


def _condition(body: str, part: str, now: datetime) -> Condition | None:
    """Return the condition that a part is; None if it is a word."""
    prefix, colon, rest = body.partition(":")
    if colon and prefix == "tag":
        return _tag_condition(rest, part)
    if colon and prefix == "has":
        if not rest:
            raise _wrong(part, "names no column", "write has:loss or has:lr")
        return Condition(parse_column(unquote(rest)), "has")
    if colon and prefix in FIELDS:
        operator = next((each for each in _OPERATORS if rest.startswith(each)), "")
        return _compare(parse_column(prefix), operator or ":", rest.removeprefix(operator), part, now)
    unquoted = mask(body)
    at = min((position for each in _OPERATORS if (position := unquoted.find(each)) >= 0), default=-1)
    if at < 0:
        if ":" in unquoted and prefix and rest and prefix not in ("metric", "param"):
            raise _wrong(
                part, f'asks for "{prefix}", which is no field', f"the fields are {', '.join((*FIELDS, 'tag', 'has'))}"
            )
        return None
    operator = next(each for each in _OPERATORS if body.startswith(each, at))
    if at == 0:
        raise _wrong(part, f"has nothing in front of {operator}", "write the name of a column, as in loss<0.5")
    return _compare(parse_column(unquote(body[:at])), operator, body[at + len(operator) :], part, now)


def _tag_condition(rest: str, part: str) -> Condition:
    at = mask(rest).find("=")
    key, value = (rest, None) if at < 0 else (rest[:at], rest[at + 1 :])
    column = JobColumn(ColumnKind.TAG, unquote(key.removesuffix("!")))
    if not column.name:
        raise _wrong(part, "names no tag", "write tag:team or tag:team=vision")
    if value is None:
        return Condition(column, "has")
    values: tuple[Value, ...] = tuple(split_values(value))
    return _not_equal(column, values) if key.endswith("!") else Condition(column, "=", values)


def _not_equal(column: JobColumn, values: tuple[Value, ...]) -> Condition:
    return Condition(column, "=", values, is_negated=True)


def _compare(column: JobColumn, operator: str, text: str, part: str, now: datetime) -> Condition:
    if not text:
        raise _wrong(part, "has no value", f"write one after {operator}")
    if operator in _COMPARISONS:
        return Condition(column, operator, (_ordered_value(column, unquote(text), part, now),))
    if operator == "!=":
        return _not_equal(column, tuple(_values(column, text, part, now)))
    if operator == ":" and column.type is ValueType.TEXT:
        return Condition(column, "~", tuple(split_values(text)))
    if operator == ":" and column.type in (ValueType.TIME, ValueType.DURATION):
        raise _wrong(part, f"needs a comparison, because {column.name} is a {column.type}", f"write {column.name}>7d")
    return Condition(column, "=", tuple(_values(column, text, part, now)))


def _values(column: JobColumn, text: str, part: str, now: datetime) -> Iterator[Value]:
    for each in split_values(text):
        match column.type:
            case ValueType.TIME | ValueType.DURATION:
                yield _ordered_value(column, each, part, now)
            case ValueType.NUMBER:
                yield _number_or_text(column, each, part)
            case _:
                yield _word(column, each, part)


def _word(column: JobColumn, text: str, part: str) -> str:
    if column.kind is not ColumnKind.FIELD:
        return text
    word = text.lower()
    allowed: Sequence[str]
    match column.name:
        case "status":
            # AWS writes InProgress for both.
            if word == "inprogress":
                raise _wrong(part, "is a status of AWS that stands for two here", "write status:running,waiting")
            if word not in _STATES and word in _PHASES:
                raise _wrong(part, "is a phase and no status", f"write phase:{word}")
            allowed = _STATES
        case "phase":
            allowed = tuple(_PHASES)
        case "kind":
            allowed = tuple(SummaryKind)
        case "spot":
            if word in _YES:
                return "yes"
            if word in _NO:
                return "no"
            allowed = ("yes", "no")
        case _:
            return text
    if word not in allowed:
        raise _wrong(part, f'has "{text}", which is no {column.name}', f"write one of {', '.join(allowed)}")
    return word


def _number_or_text(column: JobColumn, text: str, part: str) -> Value:
    number = _number(text)
    # A hyperparameter may be a word, as in optimizer=adam.
    if number is None and column.kind not in (ColumnKind.NAMED, ColumnKind.PARAMETER):
        raise _wrong(part, f'has "{text}", which is no number', f"write a number, as in {column.name}=2")
    return text if number is None else number


def _ordered_value(column: JobColumn, text: str, part: str, now: datetime) -> float:
    match column.type:
        case ValueType.TIME:
            return _parse_moment(text, part, now)
        case ValueType.DURATION:
            duration_s = _duration_s(text)
            if duration_s is None:
                raise _wrong(part, f'has "{text}", which is no duration', "write 30s, 5m, 2h or 7d")
            return duration_s
        case ValueType.NUMBER:
            number = _number(text)
            if number is None:
                raise _wrong(part, f'compares with "{text}", which is no number', "write a number, as in loss<0.5")
            return number
    raise _wrong(part, f"compares {column.name}, which is a {column.type}, by size", f"write {column.name}:{text}")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _duration_s(text: str) -> float | None:
    unit = _UNITS.get(text[-1:])
    number = _number(text[:-1]) if unit else _number(text)
    return None if number is None or number < 0 or number > 1e9 else number * (unit or 1)


def _parse_moment(text: str, part: str, now: datetime) -> float:
    """Return a moment: an ISO date or time, today, yesterday, or how long ago, as in 7d."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("today", "yesterday"):
        return (midnight if text == "today" else midnight - timedelta(days=1)).timestamp()
    ago_s = _duration_s(text) if text[-1:] in _UNITS else None
    if ago_s is not None:
        return now.timestamp() - ago_s
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _wrong(part, f'has "{text}", which is no time', "write 7d for seven days ago, or 2026-01-31") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _equals(value: Value, wanted: Value) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return value.lower() == wanted.lower()
    return value == wanted


def _primary(column: str, value: Value) -> str:
    return str(_PHASES[str(value)]) if column == "phase" else _STATUS_OF[str(value)]


def _is_indexed(condition: Condition) -> bool:
    """Whether the query that the records answer already has the whole condition."""
    if condition.is_negated:
        return False
    if condition.column.kind is ColumnKind.TAG:
        return condition.operator in ("=", "has")
    if condition.column.kind is not ColumnKind.FIELD:
        return False
    match condition.column.name:
        case "kind":
            return condition.operator == "="
        case "status":
            return condition.operator == "=" and condition.values in (
                ("stopping",),
                ("completed",),
                ("failed",),
                ("stopped",),
            )
    return False


def _with_time(query: Query, condition: Condition) -> Query:
    """Restrict a time of the query. Its bounds are exclusive, so they are a microsecond wider."""
    instant, name = timedelta(microseconds=1), condition.column.name
    if condition.operator not in _COMPARISONS:
        return query
    (value,) = condition.values
    at = datetime.fromtimestamp(float(value or 0.0), UTC)
    if condition.operator in (">", ">="):
        known = query.created_after if name == "created" else query.modified_after
        after = max(at - instant, known) if known else at - instant
        return replace(query, created_after=after) if name == "created" else replace(query, modified_after=after)
    known = query.created_before if name == "created" else query.modified_before
    before = min(at + instant, known) if known else at + instant
    return replace(query, created_before=before) if name == "created" else replace(query, modified_before=before)


def _wrong(part: str, what: str, right: str) -> InvalidRequest:
    return InvalidRequest(f'In the filter, "{part[:100]}" {what}; {right}.')
