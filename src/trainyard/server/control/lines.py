"""Who of the jobs that wait starts next, and where.

Each engine has a line of its own; those on the yard's own machine share one. In a line jobs that are not spot come
before those that are, and accounts take turns: an account's jobs start in the order they came, and of several accounts
the one is next whose turn came first. A turn comes when the job was created or the account had its last one, whichever
was later, and a minute later for each instance that the account has running. So an account that sends a thousand jobs
does not keep out another's single one, and as a moment that has passed is passed by nobody who comes later, every job
is first at some time.

Where the first has no room, places are kept for it where least is in its way, and those behind it may start beside
these. They cannot delay it: on a node of its own it would find the same room without them. On a machine whose cores
and memory instances share, nobody overtakes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain

from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Capacity
from trainyard.engines.placement import Demand, Room
from trainyard.engines.several import Engines
from trainyard.foundation.clock import EPOCH
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs import Share, TrainingJob
from trainyard.server.jobs import KIND, is_of_spot, job_of, line_name, waits_since
from trainyard.server.records.contract import Records, ResourceId, Waiting

TURN = timedelta(minutes=1)  # by which an account's turn is later for each instance that it has running
LOOKED_AT = 50  # behind a job that has no room, for such as have
_REMEMBERED = 20_000  # jobs whose demands need not be read again


@dataclass(frozen=True, slots=True)
class Seat:
    """What a job that has been placed takes of its engine, and since when."""

    shares: Sequence[Share]
    is_spot: bool
    engine: str
    account: str
    since: datetime


Seats = Mapping[ResourceId, Seat]


@dataclass(frozen=True, slots=True)
class Offer:
    """A job that can start now, with the share of each instance; or one that never can, for the reason given."""

    id: ResourceId
    shares: tuple[Share, ...] = ()
    refusal: str = ""
    overtakes: bool = False  # whether another one is before it in line


@dataclass(frozen=True, slots=True)
class Asking:
    """What a job that waits asks of which engine."""

    id: ResourceId
    engine: str
    demand: Demand


@dataclass(slots=True)
class Memory:
    """What a yard need not find out again, and may forget."""

    askings: dict[ResourceId, Asking] = field(default_factory=dict)
    turns: dict[tuple[str, str], datetime] = field(default_factory=dict)  # the last of a line and an account


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a yard, with the seats of those that were placed from it."""

    records: Records
    catalog: Catalog
    memory: Memory
    name: str
    keys: Sequence[str]  # by which the records know it
    seats: Seats

    def ranked(self) -> Sequence[Waiting]:
        """The first of each account, by whose turn it is."""
        heads: dict[str, Waiting] = {}
        for head in self.records.heads(KIND, self.keys, after=EPOCH):
            heads[head.account] = min(head, heads.get(head.account, head), key=lambda each: each.due_at)
        turns = self._turns()
        return sorted(heads.values(), key=lambda head: (is_of_spot(head.due_at), turns.of(head), head.due_at, head.id))

    def asking(self, waiting: Waiting) -> Asking:
        """What a job asks for. NotFound when it is gone, InvalidRequest when the catalog has lost what it names."""
        known = self.memory.askings.get(waiting.id)
        if known is None:
            job = job_of(self.records.load_by_id(waiting.id))
            known = Asking(waiting.id, job.plan.engine, demand_of(job, self.catalog))
            if len(self.memory.askings) >= _REMEMBERED:
                self.memory.askings.clear()
            self.memory.askings[waiting.id] = known
        return known

    def room(self, machine: Capacity) -> Room:
        return Room(machine, chain.from_iterable(seat.shares for seat in self.seats.values()))

    def behind(self, ranked: Sequence[Waiting]) -> Iterator[Waiting]:
        """Those behind the first, as many as are looked at: the heads of other accounts, and then those behind them."""
        yield from ranked[1:LOOKED_AT]
        each = (LOOKED_AT - len(ranked)) // len(ranked)
        for head in ranked:
            if each > 0:
                found = self.records.waiting(KIND, head.line, account=head.account, after=EPOCH, limit=each + 1)
                yield from (waiting for waiting in found if waiting.id != head.id)

    def overtaker(self, room: Room, ranked: Sequence[Waiting]) -> Offer | None:
        """One behind the first that can start in a room without what is kept for the first."""
        refused: set[Demand] = set()
        for waiting in self.behind(ranked):
            try:
                asking = self.asking(waiting)
            except (NotFound, InvalidRequest):  # which is seen to when it is first
                continue
            if asking.demand in refused:
                continue
            shares = room.place(asking.demand)
            if shares is not None:
                return Offer(waiting.id, shares, overtakes=True)
            refused.add(asking.demand)
        return None

    def _turns(self) -> "_Turns":
        running: dict[str, int] = {}
        last = {account: at for (line, account), at in self.memory.turns.items() if line == self.name}
        for seat in self.seats.values():
            running[seat.account] = running.get(seat.account, 0) + len(seat.shares)
            if (self.name, seat.account) not in self.memory.turns:  # of a yard that was killed
                last[seat.account] = max(seat.since, last.get(seat.account, seat.since))
        return _Turns(running, last)


@dataclass(frozen=True, slots=True)
class _Turns:
    running: Mapping[str, int]
    last: Mapping[str, datetime]

    def of(self, head: Waiting) -> datetime:
        since = waits_since(head.due_at)
        return max(since, self.last.get(head.account, since)) + TURN * self.running.get(head.account, 0)


def lines_of(engines: Engines) -> Mapping[str, Sequence[str]]:
    """The engines of each line of a yard."""
    found: dict[str, list[str]] = {}
    for name in engines.names:
        found.setdefault(engines.line_of(name), []).append(name)
    return found


def keys_of(line: str, engines: Engines, *, site: str) -> Sequence[str]:
    """By which the records know the jobs of a line whose data is here."""
    names = list(lines_of(engines).get(line, [line]))
    if engines.first.name in names:
        names.append("")
    return [line_name(name, site=each) for name in names for each in dict.fromkeys(("", site))]


def demand_of(job: TrainingJob, catalog: Catalog) -> Demand:
    """InvalidRequest when the catalog does not know a type."""
    types = tuple(catalog[name] for name in job.plan.instance_types)
    return Demand(types, job.plan.is_spot, job.plan.is_spread)


def is_shared(machine: Capacity) -> bool:
    """Whether it is one machine whose cores and memory instances share."""
    return len(machine.nodes) == 1 and not machine.nodes[0].reserves
