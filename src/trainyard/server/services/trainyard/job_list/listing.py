"""Find one page of jobs in any order.

In an order that the records have an index for, jobs are read in that order and tested one by one until the page is
full, or until enough were read for one answer, which then has a token. Any other order, and groups, need all jobs that
match at once, so their number is limited.
"""

import base64
import hashlib
import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.jobs.summaries import RECORD_KINDS, JobSummary, SummaryKind
from trainyard.server.records.contract import Query, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.trainyard.job_list.columns import ColumnKind, JobColumn, ListedJobs, Value, parse_column
from trainyard.server.services.trainyard.job_list.filters import JobFilter, Sort, parse_filter, parse_sort
from trainyard.server.services.trainyard.job_list.groups import group_jobs, sum_up
from trainyard.server.services.trainyard.job_list.rows import job_rows

PAGE = 50
# Jobs tested for one answer in an indexed order, and those of them that may have to be read in full.
MAX_SCANNED = 20_000
MAX_READ = 1_500
MAX_SORTED = 20_000

_NEWEST_FIRST = Sort(JobColumn(ColumnKind.FIELD, "created"), is_descending=True)
_FIRST_BATCH, _BATCH = 100, 1000


def list_jobs(call: Call, shape: Shape) -> Shape:
    """Return one page of the jobs that the caller can see."""
    request = _ListRequest.parse(call, shape)
    page = request.find_sorted() if request.needs_all_jobs else request.find_indexed()
    version = _version_of(page, shape)
    if shape.get("KnownVersion") == version:
        return {"Version": version, "Jobs": [], "IsUnchanged": True}
    shown: Shape = {
        "Version": version,
        "Jobs": job_rows(page.jobs, request.listed, shape),
        "NextToken": page.token,
        "Total": request.count(page),
    }
    if shape.get("GroupBy"):
        shown["Groups"] = group_jobs(page.all_jobs or (), parse_column(shape["GroupBy"]), request.listed)
    if shape.get("Summarize"):
        shown["Summary"] = sum_up(page.all_jobs or (), request.listed)
    return shown


OPERATIONS: Operations = {"ListJobs": list_jobs}


@dataclass(frozen=True, slots=True)
class _JobPage:
    """One page, and the token of the next. `all_jobs` are those of all pages, if all were read."""

    jobs: Sequence[JobSummary]
    token: str | None
    all_jobs: Sequence[JobSummary] | None = None


@dataclass(slots=True)
class _Cursor:
    """Reads the jobs of one kind in an indexed order, batch by batch, and knows where the next page starts."""

    query: Query
    # The page token of the batch that is being read, and how many jobs of it were taken.
    after: str
    request: "_ListRequest"
    taken: int = 0
    is_at_end: bool = False
    has_skipped: bool = False

    def __iter__(self) -> Iterator[JobSummary]:
        records, summaries = self.request.call.yard.records, self.request.call.yard.summaries
        limit = min(_FIRST_BATCH, self.request.limit + 1)
        while True:
            page = records.find_revisions(replace(self.query, after=self.after, limit=limit))
            self.request.read += summaries.count_unknown(page.revisions)
            known = {each.id: each for each in summaries.load(records, page.revisions)}
            self.taken = 0
            for number, revision in enumerate(page.revisions, 1):
                # A job that was deleted meanwhile is passed over.
                if revision.id in known:
                    yield known[revision.id]
                self.taken = number
            if page.next_after is None:
                self.is_at_end = True
                return
            self.after, self.taken, limit = page.next_after, 0, _BATCH

    @property
    def token(self) -> str | None:
        """Where to continue after the jobs that were taken; None if there are no more."""
        if self.is_at_end:
            return None
        if not self.taken:
            return self.after
        rest = replace(self.query, after=self.after, limit=self.taken)
        return self.request.call.yard.records.find_revisions(rest).next_after


@dataclass(slots=True)
class _ListRequest:
    """What one call asks for."""

    call: Call
    filter: JobFilter
    sort: Sort
    limit: int
    token: dict[str, Any]
    asked_at: datetime
    needs_all: bool
    needs_count: bool
    fingerprint: str
    listed: ListedJobs = field(init=False)
    # Jobs that were read in full for this answer.
    read: int = 0

    def __post_init__(self) -> None:
        self.listed = ListedJobs(self.call)

    @classmethod
    def parse(cls, call: Call, shape: Shape) -> "_ListRequest":
        given = [shape.get(name, "") for name in ("Filter", "SortBy", "SortOrder", "GroupBy")]
        fingerprint = hashlib.sha256(json.dumps(given).encode()).hexdigest()[:12]
        token = _parse_token(shape["NextToken"], fingerprint) if shape.get("NextToken") else {}
        # Later pages take "7d" in the filter from the time of the first.
        asked_at = from_micros(token["at"]) if token else call.now
        parsed = parse_filter(shape.get("Filter", ""), now=asked_at)
        sort = parsed.sort or _sort_of(shape)
        needs_all = bool(shape.get("GroupBy") or shape.get("Summarize"))
        limit = shape.get("MaxResults", PAGE)
        needs_count = shape.get("CountTotal", True)
        return cls(call, parsed, sort, limit, token, asked_at, needs_all, needs_count, fingerprint)

    @property
    def needs_all_jobs(self) -> bool:
        return self.needs_all or self.sort.column.index is None or "last" in self.token

    def query_of(self, kind: SummaryKind) -> Query:
        """Return the query for the caller's jobs of a kind that can match."""
        accounts = {user.name: user.account for user in self.call.yard.records.users()}
        every = Query(
            RECORD_KINDS[kind],
            account=self.call.caller.scope,
            sort_by=self.sort.column.index or SortBy.CREATED,
            descending=self.sort.is_descending,
        )
        return self.filter.narrow(every, accounts=accounts)

    def matches(self, job: JobSummary) -> bool:
        if self.filter.needs_tags:
            self.listed.load_tags([job])
        return self.filter.matches(job, self.listed, self.filter.rest)

    def find_indexed(self) -> _JobPage:
        """Return one page in an order that the records have."""
        starts = self.token.get("after", {})
        kinds = [kind for kind in self.filter.kinds if not self.token or str(kind) in starts]
        cursors = {kind: _Cursor(self.query_of(kind), starts.get(str(kind), ""), self) for kind in kinds}
        found: list[JobSummary] = []
        streams = (self._positions(kind, cursor) for kind, cursor in cursors.items())
        for scanned, position in enumerate(_merge(streams, is_descending=self.sort.is_descending), 1):
            if self.matches(position.job):
                found.append(position.job)
            if len(found) == self.limit or scanned >= MAX_SCANNED or self.read >= MAX_READ:
                # The generator has not resumed, so its cursor does not know yet that this job was taken.
                cursors[position.kind].taken += 1
                break
        after = {str(kind): token for kind, cursor in cursors.items() if (token := cursor.token) is not None}
        token = self._token({"after": after}) if after else None
        return _JobPage(found, token)

    def _positions(self, kind: SummaryKind, cursor: _Cursor) -> Iterator["_Position"]:
        index = self.sort.column.index
        assert index is not None, "find_sorted serves other orders"
        for job in cursor:
            keys = {
                SortBy.NAME: job.record_name,
                SortBy.CREATED: to_micros(job.created_at),
                SortBy.MODIFIED: to_micros(job.modified_at),
                SortBy.STATUS: (job.status, to_micros(job.created_at)),
            }
            yield _Position((keys[index], job.id), job, kind)

    def count(self, page: _JobPage) -> int | None:
        """Return how many jobs match, if all were read or an index can count them."""
        if page.all_jobs is not None:
            return len(page.all_jobs)
        if not self.needs_count or self.token or self.filter.rest or self.filter.needs_tags:
            return None
        return sum(self.call.yard.records.count(self.query_of(kind)) for kind in self.filter.kinds)

    def find_sorted(self) -> _JobPage:
        """Return one page of all matches, sorted here. Jobs without a value come last in either direction."""
        jobs = self._all_matches()
        column, is_descending = self.sort.column, self.sort.is_descending
        if column.kind is ColumnKind.TAG:
            self.listed.load_tags(jobs)
        by_key = {_sort_key(column.value(job, self.listed), job): job for job in jobs}
        present = sorted((key for key in by_key if not key.is_missing), reverse=is_descending)
        ordered = [*present, *sorted(key for key in by_key if key.is_missing)]
        if "last" in self.token:
            last = _ListSortKey(*self.token["last"])
            ordered = [key for key in ordered if key.is_after(last, is_descending=is_descending)]
        page, token = ordered[: self.limit], None
        if len(ordered) > self.limit:
            end = page[-1]
            token = self._token({"last": [end.is_missing, end.is_text, end.number, end.text, end.id]})
        return _JobPage([by_key[key] for key in page], token, jobs)

    def _all_matches(self) -> list[JobSummary]:
        records, summaries = self.call.yard.records, self.call.yard.summaries
        found: list[JobSummary] = []
        scanned = 0
        for kind in self.filter.kinds:
            # By creation, which is the order that the index of a scope is most often read in.
            query = replace(self.query_of(kind), sort_by=SortBy.CREATED, descending=True, limit=_BATCH * 5)
            while True:
                page = records.find_revisions(query)
                scanned += len(page.revisions)
                if scanned > MAX_SORTED:
                    raise InvalidRequest(
                        f"More than {MAX_SORTED:,} jobs are too many to sort, group or sum up like this; filter them, "
                        "as in created>30d or user:ann, or sort by name, status, created or modified."
                    )
                jobs = summaries.load(records, page.revisions)
                if self.filter.needs_tags:
                    self.listed.load_tags(jobs)
                conditions = self.filter.rest
                found += [job for job in jobs if self.filter.matches(job, self.listed, conditions)]
                if page.next_after is None:
                    break
                query = replace(query, after=page.next_after)
        return found

    def _token(self, position: Shape) -> str:
        content = {"list": self.fingerprint, "at": to_micros(self.asked_at), **position}
        return base64.urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode()


@dataclass(frozen=True, slots=True)
class _Position:
    """A job in the order of a list of several kinds."""

    key: tuple[Any, str]
    job: JobSummary
    kind: SummaryKind


def _merge(streams: Iterator[Iterator[_Position]], *, is_descending: bool) -> Iterator[_Position]:
    return heapq.merge(*streams, key=lambda position: position.key, reverse=is_descending)


@dataclass(frozen=True, slots=True, order=True)
class _ListSortKey:
    """The sort key of a job: numbers before text, then the id."""

    is_missing: bool
    is_text: bool
    number: float
    text: str
    id: str

    def is_after(self, last: "_ListSortKey", *, is_descending: bool) -> bool:
        if self.is_missing or last.is_missing or not is_descending:
            return self > last
        return self < last


def _sort_key(value: Value, job: JobSummary) -> _ListSortKey:
    if value is None:
        return _ListSortKey(True, False, 0.0, "", job.id)
    if isinstance(value, str):
        return _ListSortKey(False, True, 0.0, value, job.id)
    return _ListSortKey(False, False, value, "", job.id)


def _sort_of(shape: Shape) -> Sort:
    if "SortBy" not in shape:
        return _NEWEST_FIRST
    return replace(parse_sort(shape["SortBy"]), is_descending=shape.get("SortOrder") == "Descending")


def _version_of(page: _JobPage, shape: Shape) -> str:
    """Return a hash that changes whenever the page would show other jobs or other states of them."""
    # Groups and sums are about the jobs of all pages.
    is_about_all = shape.get("GroupBy") or shape.get("Summarize")
    jobs = page.all_jobs if is_about_all and page.all_jobs is not None else page.jobs
    content = [(job.id, job.revision) for job in jobs]
    asked = [shape.get(name) for name in ("Metrics", "HyperParameters", "SparklineMetric", "GroupBy")]
    return hashlib.sha256(json.dumps([content, asked, page.token is None]).encode()).hexdigest()[:16]


def _parse_token(text: str, fingerprint: str) -> dict[str, Any]:
    try:
        match json.loads(base64.b64decode(text, altchars=b"-_", validate=True)):
            case {"list": str(of), "at": int(), "after": dict(after)} as token if all(map(_is_text, after.values())):
                pass
            case {"list": str(of), "at": int(), "last": [bool(), bool(), float(), str(), str()]} as token:
                pass
            case _:
                raise ValueError("not a token of this operation")
        if of != fingerprint:
            raise ValueError("the token of another list")
        return dict(token)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            "The NextToken does not belong to this list; use it with the same filter and order, or start again."
        ) from error


def _is_text(value: object) -> bool:
    return isinstance(value, str)
