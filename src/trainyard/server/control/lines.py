"""Who of the jobs that wait starts next, and where.

Each engine has a line of its own; those on the yard's own machine share one. In a line jobs that are not spot come
before those that are, and accounts take turns: an account's jobs start in the order they came, and of several accounts
the one is next whose turn came first. A turn comes when the job was created or the account had its last one, whichever
was later, and a minute later for each instance that the account has running, up to an hour. So an account that sends a
thousand jobs does not keep out another's single one, and as a moment that has passed is passed by nobody who comes
later, every job is first at some time.

Where the first has no room, places are kept for it where least is in its way, and those behind it may start beside
these. They cannot delay it: on a node of its own it would find the same room without them. Others behind it they could
delay for as long as the first waits, say large ones that want GPUs where the first wants cores: so places are also kept
for the oldest of those that have waited long. On a machine whose cores and memory instances share, nobody overtakes.

A look costs little where nothing has changed: the room is kept in step with the seats node by node, and who found none
is not tried again before a seat is given back or a node has changed. Who waits is read from the records each time,
since other processes may write there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
LATEST_TURN = timedelta(hours=1)  # by which it is later at most
LOOKED_AT = 50  # behind a job that has no room, for such as have
LONG = timedelta(hours=1)  # after which a job is not overtaken by others that take the places it could have
KEPT_FOR = 5  # of those that have waited so long, beside the first

_REMEMBERED = 20_000  # jobs whose demands need not be read again
_BELIEVED = timedelta(minutes=1)  # for which a line is taken to be blocked by those that it was, unless a seat changes


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
    """A job that can start now, with the share of each instance; or one that never can, for the reason given.

    `shortfalls` are sentences that say what is less than its types promise.
    """

    id: ResourceId
    shares: tuple[Share, ...] = ()
    shortfalls: Sequence[str] = ()
    refusal: str = ""
    overtakes: bool = False  # whether another one is before it in line


@dataclass(frozen=True, slots=True)
class Asking:
    """What a job that waits asks of which engine."""

    id: ResourceId
    engine: str
    demand: Demand


class Floor:
    """The room that the seats of a line leave, kept in step with them node by node. It is not to be taken from."""

    def __init__(self) -> None:
        self.room = Room(Capacity(()))
        self.changes = 0
        self.newcomer: tuple[ResourceId, Seat] | None = None  # by whom alone the last change came about
        self._seats: Seats = {}
        self._on: dict[str, dict[ResourceId, list[Share]]] = {}  # the shares on each node, by whose they are

    def follow(self, machine: Capacity, seats: Seats) -> None:
        """Bring it in step with what there is now."""
        gone, come = _not_in(seats, self._seats), _not_in(self._seats, seats)
        touched = self._reseat(seats, gone=gone, come=come)
        is_same = machine == self.room.machine
        if not is_same:
            running = (share for on_node in self._on.values() for shares in on_node.values() for share in shares)
            self.room = Room(machine, running)
        elif touched:
            for node in touched:
                self.room.refill(node, (share for shares in self._on.get(node, {}).values() for share in shares))
        else:
            return
        self.changes += 1
        is_one = is_same and not gone and len(come) == 1
        self.newcomer = (come[0], seats[come[0]]) if is_one else None

    def _reseat(self, seats: Seats, *, gone: Sequence[ResourceId], come: Sequence[ResourceId]) -> set[str]:
        """The nodes on which something has changed."""
        touched: set[str] = set()
        before, self._seats = self._seats, seats
        for key in gone:
            for share in before[key].shares:
                touched.add(share.node)
                self._on.get(share.node, {}).pop(key, None)
        for key in come:
            for share in seats[key].shares:
                touched.add(share.node)
                self._on.setdefault(share.node, {}).setdefault(key, []).append(share)
        return touched


def _not_in(others: Seats, seats: Seats) -> list[ResourceId]:
    """Those whose seats the others do not have so. Nearly all are the very same, which is seen sooner than equality."""
    return [key for key, seat in seats.items() if (other := others.get(key)) is not seat and other != seat]


@dataclass(slots=True)
class Blockade:
    """A first in line that has no room, with the others for which places are kept, and what is left beside those.

    As long as no seat is given back, whoever was refused here will be again.
    """

    first: ResourceId
    elders: Sequence[Waiting]
    changes: int  # of the floor until then
    until: datetime
    room: Room
    refused: set[Demand] = field(default_factory=set)
    offer: Offer | None = None  # the last that was made of what is left

    def follow(self, floor: Floor) -> None:
        """Stay in force where all that has changed is that who got the last offer has taken it."""
        if self.offer is None or floor.newcomer is None or floor.changes != self.changes + 1:
            return
        newcomer, seat = floor.newcomer
        if newcomer == self.offer.id and tuple(seat.shares) == self.offer.shares:
            self.room.take(seat.shares)
            self.changes, self.offer = floor.changes, None


@dataclass(slots=True)
class Memory:
    """What a yard need not find out again, and may forget."""

    askings: dict[ResourceId, Asking] = field(default_factory=dict)
    turns: dict[tuple[str, str], datetime] = field(default_factory=dict)  # the last of a line and an account
    floors: dict[tuple[str, bool], Floor] = field(default_factory=dict)  # of a line, with its spot jobs or without
    blockades: dict[str, Blockade] = field(default_factory=dict)  # of lines


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a yard, with the seats of those that were placed from it."""

    records: Records
    catalog: Catalog
    memory: Memory
    name: str
    keys: Sequence[str]  # by which the records know it
    seats: Seats
    now: datetime

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

    def floor(self, machine: Capacity) -> Floor:
        """What is free beside all that run."""
        return self._floor(machine, self.seats, is_whole=True)

    def lasting_floor(self, machine: Capacity) -> Floor:
        """What would be free without the spot jobs."""
        return self._floor(machine, {key: seat for key, seat in self.seats.items() if not seat.is_spot}, is_whole=False)

    def behind(self, ranked: Sequence[Waiting]) -> Sequence[Waiting]:
        """Those behind the first, as many as are looked at: the heads of other accounts, and then those behind them."""
        found = list(ranked[1:LOOKED_AT])
        each = (LOOKED_AT - len(ranked)) // len(ranked)
        if each <= 0:
            return found
        heads, lines = {head.id for head in ranked}, dict[str, list[str]]()
        for head in ranked:
            lines.setdefault(head.line, []).append(head.account)
        for line, accounts in lines.items():
            others = self.records.waiting(KIND, line, accounts=accounts, after=EPOCH, limit=each + 1)
            found += (waiting for waiting in others if waiting.id not in heads)
        return found

    def elders(self, first: Waiting, behind: Sequence[Waiting]) -> Sequence[Waiting]:
        """Those who have waited so long that places are kept for them too, the oldest first.

        None of them is spot unless the first is.
        """
        is_spot = is_of_spot(first.due_at)
        alike = (each for each in behind if is_of_spot(each.due_at) == is_spot)
        old = (each for each in alike if self.now - waits_since(each.due_at) > LONG)
        return sorted(old, key=lambda each: (each.due_at, each.id))[:KEPT_FOR]

    def is_blocked_by(self, first: Asking, floor: Floor) -> bool:
        """Whether it is known that the first has no room."""
        known = self.memory.blockades.get(self.name)
        if known is None or known.first != first.id:
            return False
        known.follow(floor)
        return known.changes == floor.changes

    def blockade(self, first: Asking, elders: Sequence[Waiting], floor: Floor) -> Blockade | None:
        """What is known to be left beside what is kept for these, if nothing has changed since."""
        known = self.memory.blockades.get(self.name)
        if known is None or not self.is_blocked_by(first, floor):
            return None
        return known if known.elders == elders and self.now < known.until else None

    def block(self, first: Asking, elders: Sequence[Waiting], floor: Floor, *, left: Room) -> Blockade:
        """Remember what is left."""
        made = Blockade(first.id, elders, floor.changes, self.now + _BELIEVED, left)
        self.memory.blockades[self.name] = made
        return made

    def elder(self, elders: Sequence[Waiting], floor: Floor, *, left: Room, kept: Sequence[Share]) -> Offer | None:
        """One of the elders that can start; for those before it, or for all, places are taken from what is left."""
        wanted = left.emptied()
        wanted.take(kept)
        for waiting in elders:
            asking = self._asked(waiting)
            if asking is None:
                continue
            shares = left.place(asking.demand)
            if shares is not None:
                return Offer(waiting.id, shares, left.fitted(asking.demand).shortfalls, overtakes=True)
            shares = wanted.place(asking.demand, beside=floor.room) or ()
            left.take(shares)
            wanted.take(shares)
        return None

    def overtaker(self, blockade: Blockade, behind: Sequence[Waiting]) -> Offer | None:
        """One behind the first that can start beside what is kept."""
        for waiting in behind:
            asking = self._asked(waiting)
            if asking is None or asking.demand in blockade.refused:
                continue
            shares = blockade.room.place(asking.demand)
            if shares is not None:
                blockade.offer = Offer(
                    waiting.id, shares, blockade.room.fitted(asking.demand).shortfalls, overtakes=True
                )
                return blockade.offer
            blockade.refused.add(asking.demand)
        return None

    def _asked(self, waiting: Waiting) -> Asking | None:
        """What one behind the first asks for; of one that cannot be asked is seen to when it is first."""
        try:
            return self.asking(waiting)
        except (NotFound, InvalidRequest):
            return None

    def _floor(self, machine: Capacity, seats: Seats, *, is_whole: bool) -> Floor:
        found = self.memory.floors.setdefault((self.name, is_whole), Floor())
        found.follow(machine, seats)
        return found

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
        later = min(LATEST_TURN, TURN * self.running.get(head.account, 0))
        return max(since, self.last.get(head.account, since)) + later


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
