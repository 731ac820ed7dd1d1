"""The trials of recently viewed tuning jobs, in memory. A later look reads only the trials that changed since."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trainyard.foundation.clock import EPOCH
from trainyard.foundation.jobs.tuning import TrialStatus, TuningTrial
from trainyard.server.jobs.tuning import TRIAL, job_of, trial_of
from trainyard.server.records.contract import Query, Records, Resource, ResourceId, SortBy

MAX_TUNING_JOBS = 16
# Records that were written at the same moment as the newest known one may appear a little later.
_OVERLAP = timedelta(seconds=2)
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class ListedTrial:
    """A trial, when its record changed, and the number of that change among those of the table."""

    trial: TuningTrial
    modified_at: datetime
    change: int


@dataclass(frozen=True, slots=True)
class TrialTable:
    """The trials of a tuning job that have started, by number, and the one that was chosen but has not, if any.

    The numbers of changes mean something only together with the id of the table, which another process does not know.
    """

    id: str
    trials: Sequence[ListedTrial]
    planned: TuningTrial | None = None


@dataclass(slots=True)
class _TrialTable:
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    rows: dict[int, ListedTrial] = field(default_factory=dict)
    planned: Resource | None = None
    changes: int = 0
    read_until: datetime = EPOCH
    lock: threading.Lock = field(default_factory=threading.Lock)


class TrialTables:
    """Lists the trials of tuning jobs. Safe to share between threads."""

    def __init__(self) -> None:
        self._tables: OrderedDict[ResourceId, _TrialTable] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, records: Records, tuning_job: Resource) -> TrialTable:
        """Return the trials of a tuning job as they are now."""
        table = self._table(tuning_job.id)
        with table.lock:
            _refresh(table, records, tuning_job)
            rows = [table.rows[number] for number in sorted(table.rows)]
            return TrialTable(table.id, rows, trial_of(table.planned) if table.planned is not None else None)

    def _table(self, tuning_id: ResourceId) -> _TrialTable:
        with self._lock:
            table = self._tables.setdefault(tuning_id, _TrialTable())
            self._tables.move_to_end(tuning_id)
            while len(self._tables) > MAX_TUNING_JOBS:
                self._tables.popitem(last=False)
            return table


def _refresh(table: _TrialTable, records: Records, tuning_job: Resource) -> None:
    query = Query(TRIAL, parent=tuning_job.id, sort_by=SortBy.NAME, limit=_PAGE)
    if table.rows:
        query = replace(query, modified_after=table.read_until - _OVERLAP)
    while True:
        page = records.find(query)
        for row in page.resources:
            _put(table, row)
        if page.next_after is None:
            break
        query = replace(query, after=page.next_after)
    if table.planned is not None and job_of(tuning_job).is_final:
        # A trial that was planned but never started is deleted at the end.
        table.planned = None


def _put(table: _TrialTable, row: Resource) -> None:
    table.read_until = max(table.read_until, row.modified_at)
    number: int = row.body["number"]
    if row.status == TrialStatus.PLANNED:
        table.planned = row
        return
    if table.planned is not None and table.planned.id == row.id:
        table.planned = None
    known = table.rows.get(number)
    if known is None or known.modified_at != row.modified_at:
        table.changes += 1
        table.rows[number] = ListedTrial(trial_of(row), row.modified_at, table.changes)
