"""The columns of a list of jobs: fields that every job has, and the metrics, hyperparameters and tags of some."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs.attempts import MetricSummary
from trainyard.server.jobs.summaries import JobSummary
from trainyard.server.records.contract import SortBy
from trainyard.server.services.contract import Call

# Times are seconds since 1970, durations are seconds. None if a job has no value.
Value = float | str | None

SECONDS_PER_HOUR = 3600

# A metric whose name has one of these words is better when it is lower.
_LOWER_IS_BETTER = frozenset(
    {"loss", "error", "err", "rmse", "mse", "mae", "mape", "logloss", "perplexity", "ppl", "wer", "cer", "fid"}
    | {"latency", "seconds", "time", "gap"}
)
_SEPARATORS = str.maketrans(dict.fromkeys("-_:/. ", " "))


class ValueType(StrEnum):
    """How the values of a column are written in a filter."""

    TEXT = "text"
    WORD = "word"
    NUMBER = "number"
    TIME = "time"
    DURATION = "duration"


class ColumnKind(StrEnum):
    """Where a column gets its values. NAMED is a metric of that name or, if the job has none, a hyperparameter."""

    FIELD = "field"
    METRIC = "metric"
    PARAMETER = "param"
    TAG = "tag"
    NAMED = "named"


class Aggregate(StrEnum):
    """Which value of a metric."""

    LAST = "last"
    MIN = "min"
    MAX = "max"
    # The lowest or the highest, whichever is better.
    BEST = "best"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class ListedJobs:
    """What values depend on besides the jobs themselves: the time, the prices, the names of users, and tags."""

    call: Call
    _users: dict[str, str] = field(default_factory=dict)
    _tags: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)

    @property
    def now(self) -> datetime:
        return self.call.now

    def user(self, job: JobSummary) -> str:
        if job.account not in self._users:
            try:
                self._users[job.account] = self.call.yard.records.user(job.account).name
            except NotFound:
                self._users[job.account] = job.account
        return self._users[job.account]

    def price_per_hour(self, job: JobSummary) -> float:
        """Return the price of all instances; that of a type which the catalog no longer has counts as zero."""
        total = 0.0
        for name, count in job.instance_types.items():
            try:
                total += count * self.call.yard.compute.catalog[name].price_usd(is_spot=job.is_spot)
            except InvalidRequest:
                continue
        return total

    def cost(self, job: JobSummary) -> float:
        return self.price_per_hour(job) * job.time_used(self.now).total_seconds() / SECONDS_PER_HOUR

    def load_tags(self, jobs: list[JobSummary]) -> None:
        """Load the tags of these jobs at once, for `tags`."""
        unknown = [job for job in jobs if (job.account, job.arn) not in self._tags]
        self._tags.update({(job.account, job.arn): {} for job in unknown})
        for each in self.call.yard.records.tags_of_arns([job.arn for job in unknown]):
            self._tags[each.account, each.arn] = each.tags

    def tags(self, job: JobSummary) -> Mapping[str, str]:
        return self._tags[job.account, job.arn]


@dataclass(frozen=True, slots=True)
class JobField:
    """A column that jobs of every kind have."""

    type: ValueType
    value: Callable[[JobSummary, ListedJobs], Value]
    about: str
    # The order that the records have an index for.
    index: SortBy | None = None


def state_of(job: JobSummary) -> str:
    """Return what a person calls the state of a job: waiting, running, stopping, completed, failed or stopped."""
    if job.status == "InProgress":
        return "waiting" if job.is_queued else "running"
    return job.status.lower()


def duration_of(job: JobSummary, now: datetime) -> timedelta | None:
    """Return how long a job has taken since its instances began to work; None if they have not."""
    return (job.ended_at or now) - job.started_at if job.started_at else None


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _duration(job: JobSummary, listed: ListedJobs) -> Value:
    found = duration_of(job, listed.now)
    return None if found is None else found.total_seconds()


_T = ValueType

FIELDS: Mapping[str, JobField] = {
    "name": JobField(_T.TEXT, lambda job, _: job.name, "the name", SortBy.NAME),
    "status": JobField(
        _T.WORD, lambda job, _: state_of(job), "waiting, running, stopping, completed, failed or stopped", SortBy.STATUS
    ),
    "phase": JobField(_T.WORD, lambda job, _: job.secondary.lower(), "the secondary status, such as training"),
    "kind": JobField(_T.WORD, lambda job, _: str(job.kind), "training or tuning"),
    "user": JobField(_T.WORD, lambda job, listed: listed.user(job), "who owns it"),
    "image": JobField(_T.TEXT, lambda job, _: job.image or None, "the image"),
    "type": JobField(_T.TEXT, lambda job, _: " ".join(job.instance_types) or None, "the instance type"),
    "instances": JobField(_T.NUMBER, lambda job, _: float(job.instance_count) or None, "the number of instances"),
    "spot": JobField(_T.WORD, lambda job, _: "yes" if job.is_spot else "no", "yes or no"),
    "engine": JobField(
        _T.WORD, lambda job, listed: job.engine or listed.call.yard.compute.engines.default.name, "the engine"
    ),
    "created": JobField(_T.TIME, lambda job, _: _seconds(job.created_at), "when it was created", SortBy.CREATED),
    "modified": JobField(_T.TIME, lambda job, _: _seconds(job.modified_at), "when it last changed", SortBy.MODIFIED),
    "started": JobField(_T.TIME, lambda job, _: _seconds(job.started_at), "when its instances began to work"),
    "ended": JobField(_T.TIME, lambda job, _: _seconds(job.ended_at), "when it ended"),
    "duration": JobField(_T.DURATION, _duration, "from its start to its end or until now"),
    "cost": JobField(_T.NUMBER, lambda job, listed: listed.cost(job), "in USD, until now"),
    "price": JobField(_T.NUMBER, lambda job, listed: listed.price_per_hour(job), "in USD per hour, of all instances"),
    "interruptions": JobField(
        _T.NUMBER, lambda job, _: float(job.interruptions), "how often a spot job was interrupted"
    ),
    "tuning": JobField(_T.TEXT, lambda job, _: job.tuning_job or None, "the tuning job that it is a trial of"),
    "failure": JobField(_T.TEXT, lambda job, _: job.failure or None, "why it failed"),
}


@dataclass(frozen=True, slots=True)
class JobColumn:
    """One column of a list."""

    kind: ColumnKind
    name: str
    aggregate: Aggregate = Aggregate.LAST

    @property
    def type(self) -> ValueType:
        if self.kind is ColumnKind.FIELD:
            return FIELDS[self.name].type
        return ValueType.WORD if self.kind is ColumnKind.TAG else ValueType.NUMBER

    @property
    def index(self) -> SortBy | None:
        return FIELDS[self.name].index if self.kind is ColumnKind.FIELD else None

    def value(self, job: JobSummary, listed: ListedJobs) -> Value:
        match self.kind:
            case ColumnKind.FIELD:
                return FIELDS[self.name].value(job, listed)
            case ColumnKind.TAG:
                return listed.tags(job).get(self.name)
            case ColumnKind.METRIC:
                return metric_value(self.name, job.metrics.get(self.name), self.aggregate)
            case ColumnKind.PARAMETER:
                return _parameter_value(job.hyperparameters.get(self.name))
        found = metric_value(self.name, job.metrics.get(self.name), self.aggregate)
        return _parameter_value(job.hyperparameters.get(self.name)) if found is None else found


def parse_column(text: str) -> JobColumn:
    """Return the column that a person names: a field, `tag:team`, `metric:loss`, `param:lr`, or just `loss.min`."""
    if text in FIELDS:
        return JobColumn(ColumnKind.FIELD, text)
    prefix, _, rest = text.partition(":")
    match prefix:
        case "tag" if rest:
            return JobColumn(ColumnKind.TAG, rest)
        case "param" if rest:
            return JobColumn(ColumnKind.PARAMETER, rest)
        case "metric" if rest:
            return _metric_column(ColumnKind.METRIC, rest)
    return _metric_column(ColumnKind.NAMED, text)


def metric_value(name: str, metric: MetricSummary | None, aggregate: Aggregate) -> float | None:
    """Return a value of a metric; None if the job has no finite one."""
    if metric is None or not metric.count:
        return None
    if aggregate is Aggregate.BEST:
        aggregate = Aggregate.MIN if is_better_low(name) else Aggregate.MAX
    match aggregate:
        case Aggregate.MIN:
            return metric.lowest
        case Aggregate.MAX:
            return metric.highest
        case Aggregate.COUNT:
            return float(metric.count)
    return metric.value


def is_better_low(metric: str) -> bool:
    """Whether a metric is better when it is lower, by the words of its name."""
    return not _LOWER_IS_BETTER.isdisjoint(metric.lower().translate(_SEPARATORS).split())


def _metric_column(kind: ColumnKind, text: str) -> JobColumn:
    name, dot, end = text.rpartition(".")
    if dot and name and end in set(Aggregate):
        return JobColumn(kind, name, Aggregate(end))
    return JobColumn(kind, text)


def _parameter_value(text: str | None) -> Value:
    """Return a number if the text of a hyperparameter is one."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
