"""Goes between a yard and the nodes of its cluster: starts attempts there, keeps their mirrors, ends them.

Everything that it must remember lies in the yard's own files: the register of the attempts that have something on
nodes, their specs, how each instance stands, the mirrors themselves, and an empty file in the folder of an attempt that
was ended. A ferry that is started anew, after it was killed at any moment, goes on from there.
"""

import asyncio
import logging
import os
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from trainyard.engines.cluster.contract import Cluster, ClusterNode, Seat
from trainyard.engines.cluster.register import Entry, Register
from trainyard.engines.cluster.route import Patience, Route, Silences
from trainyard.engines.cluster.standing import Standing
from trainyard.engines.contract import AttemptRef, InstanceRef
from trainyard.foundation.errors import Conflict, TrainyardError, Unavailable
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER, sync_folder
from trainyard.link.contract import InstanceSpec
from trainyard.link.holds import hold
from trainyard.link.specs import read_spec, write_spec

log = logging.getLogger(__name__)

GIVING_UP_S = 10.0  # with an attempt of which not all could be started

_AT_ONCE_S = 0.2
_PAUSE_S = 0.05

T = TypeVar("T")


def ended_file(jobs: Path, attempt: AttemptRef) -> Path:
    """What lies in the folder of an attempt that was ended, and never starts again."""
    return attempt.folder(jobs) / "ended"


@dataclass(frozen=True, slots=True)
class _Voyage:
    """An attempt that has something on nodes."""

    entry: Entry
    routes: Sequence[Route]

    @property
    def has_started(self) -> bool:
        return all(route.standing not in (None, Standing.STARTING) for route in self.routes)


class Ferry:
    """Looks after the attempts of one engine, on one loop; a second ferry waits until the first one is gone.

    `jobs` is where the yard has its mirrors, `folder` where the engine keeps what is its own.
    """

    def __init__(self, cluster: Cluster, *, jobs: Path, folder: Path, patience: Patience | None = None) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._folder = folder
        self._patience = patience or Patience()
        self._register = Register.of(folder)
        self._held: int | None = None
        self._silences = Silences()
        self._voyages: dict[AttemptRef, _Voyage] = {}
        self._endings: dict[AttemptRef, asyncio.Task[None]] = {}
        self._finishing: dict[AttemptRef, asyncio.Task[None]] = {}
        self._locks: WeakValueDictionary[AttemptRef, asyncio.Lock] = WeakValueDictionary()

    async def open(self) -> None:
        """Go on with all that an earlier ferry has started; the hold on it ends with this process."""
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        while (held := hold(self._folder / "lock")) is None:
            await asyncio.sleep(_PAUSE_S)
        self._held = held
        for entry in self._register.entries():
            voyage = self._voyages[entry.attempt] = self._voyage(entry)
            if self._has_ended(entry.attempt):
                self._finish_later(entry.attempt)
            elif voyage.has_started:
                _follow(voyage)

    async def close(self) -> None:
        """Look after nothing any more; the instances run on until their leases end."""
        for task in self._finishing.values():
            task.cancel()
        for voyage in tuple(self._voyages.values()):  # of which an end that goes on may strike one meanwhile
            await asyncio.gather(*(route.leave() for route in voyage.routes))
        await self._cluster.close()
        if self._held is not None:
            os.close(self._held)
            self._held = None

    async def nodes(self) -> Sequence[ClusterNode]:
        """Those that are there, but for those that let a lease run out just now, which the cluster may not know yet."""
        return [each for each in await self._cluster.nodes() if not self._silences.holds(each)]

    def tell(self, instance: InstanceRef) -> None:
        """Take a new command in the mailbox of an instance along at once."""
        voyage = self._voyages.get(instance.attempt)
        for route in voyage.routes if voyage else ():
            if route.seat.instance == instance:
                route.tell()

    async def start(self, attempt: AttemptRef, names: Sequence[str]) -> None:
        """Start the instances whose specs lie in their mirrors: all, or none when an error is raised.

        Conflict when the attempt was ended. After any other error it is ended, or will be when it is asked for.
        """
        async with self._lock(attempt):
            if self._has_ended(attempt):
                raise Conflict("attempt", str(attempt), "was ended and cannot be started again")
            specs = [read_spec(InstanceRef(attempt, name).folder(self._jobs).root) for name in names]
            voyage = self._voyages.get(attempt) or await self._entered(attempt, specs)
            if voyage.has_started:
                return
            try:
                await self._launch(voyage, specs)
            except Exception:
                await self._give_up(attempt)
                raise
            _follow(voyage)

    async def end(self, attempt: AttemptRef, *, patience_s: float) -> None:
        """What `Engine.end` says. Whoever asks again while it goes on waits for the same end.

        Nobody waits for a node that is known to be out of reach: a yard may have hundreds of jobs there.
        """
        ending = self._endings.get(attempt)
        if ending is None:
            ending = self._endings[attempt] = asyncio.create_task(self._ended(attempt, patience_s))
            ending.add_done_callback(lambda done: self._over(attempt, done))
        voyage = self._voyages.get(attempt)
        missing = [route for route in voyage.routes if route.is_awaited_in_vain] if voyage else []
        await asyncio.wait({ending}, timeout=_AT_ONCE_S if missing else None)
        if not ending.done():
            raise Unavailable(missing[0].why_not_ended)
        ending.result()

    def _over(self, attempt: AttemptRef, ending: asyncio.Task[None]) -> None:
        del self._endings[attempt]
        if not ending.cancelled():
            ending.exception()  # taken note of, also where nobody waited for it

    async def _entered(self, attempt: AttemptRef, specs: Sequence[InstanceSpec]) -> _Voyage:
        seats = tuple(Seat(InstanceRef.of(spec), spec.node, spec.limits) for spec in specs)
        entry = Entry(attempt, seats, specs[0].lease_s, specs[0].doorbell)
        await asyncio.to_thread(self._register.enter, entry)
        voyage = self._voyages[attempt] = self._voyage(entry)
        return voyage

    async def _launch(self, voyage: _Voyage, specs: Sequence[InstanceSpec]) -> None:
        addresses = await self._addresses(specs)
        await self._cluster.reserve(voyage.entry.attempt, voyage.entry.seats)
        await _all(route.reach() for route in voyage.routes)
        specs = [replace(spec, addresses=addresses) for spec in specs]
        port = await voyage.routes[0].prepare(specs[0]) or specs[0].master_port
        specs = [replace(spec, master_port=port) for spec in specs]
        await asyncio.to_thread(_rewrite, voyage.routes, specs)
        # The first once more: its lease begins with the answer to this, and others may take long to prepare.
        await _all(route.prepare(spec) for route, spec in zip(voyage.routes, specs, strict=True))
        await _all(route.start(spec) for route, spec in zip(voyage.routes, specs, strict=True))

    async def _addresses(self, specs: Sequence[InstanceSpec]) -> tuple[str, ...]:
        """By which the hosts reach each other; none where all are on one node. Unavailable when a node is gone."""
        there = {each.node.name: each.address for each in await self.nodes()}
        gone = sorted({spec.node for spec in specs} - there.keys())
        if gone:
            raise Unavailable(f"The cluster has no node {gone[0]} any more.")
        return tuple(there[spec.node] for spec in specs) if len({spec.node for spec in specs}) > 1 else ()

    async def _give_up(self, attempt: AttemptRef) -> None:
        try:
            await self._cleared(attempt, GIVING_UP_S)
        except TrainyardError as error:  # then it is done when the yard asks for its end
            log.warning("an attempt that did not start is not ended yet", extra={"id": str(attempt), "why": str(error)})

    async def _ended(self, attempt: AttemptRef, patience_s: float) -> None:
        async with self._lock(attempt):
            await self._cleared(attempt, patience_s)

    async def _cleared(self, attempt: AttemptRef, patience_s: float) -> None:
        """Mark an attempt as ended, which it then is for any ferry, and prove that nothing of it runs."""
        await asyncio.to_thread(_mark, ended_file(self._jobs, attempt))
        voyage = self._voyages.get(attempt)
        if voyage is None:
            return
        await _all(route.end(patience_s=patience_s) for route in voyage.routes)
        try:
            await self._cluster.release(attempt)
        except Unavailable as error:  # nothing of it runs, so that nobody has to wait for a cluster that is away
            log.warning("room on a cluster cannot be given back yet", extra={"id": str(attempt), "why": error.message})
            self._finish_later(attempt)
            return
        await asyncio.to_thread(self._register.strike, attempt)
        del self._voyages[attempt]

    def _finish_later(self, attempt: AttemptRef) -> None:
        """Go on to end an attempt of which nobody may ask for the end again."""
        if attempt not in self._finishing:
            task = self._finishing[attempt] = asyncio.create_task(self._finish(attempt))
            task.add_done_callback(lambda _: self._finishing.pop(attempt))

    async def _finish(self, attempt: AttemptRef) -> None:
        while attempt in self._voyages:
            await asyncio.sleep(self._patience.latest)
            with suppress(Unavailable):
                await self.end(attempt, patience_s=GIVING_UP_S)

    def _voyage(self, entry: Entry) -> _Voyage:
        routes = [
            Route(seat, entry, cluster=self._cluster, jobs=self._jobs, patience=self._patience, silences=self._silences)
            for seat in entry.seats
        ]
        return _Voyage(entry, routes)

    def _has_ended(self, attempt: AttemptRef) -> bool:
        return ended_file(self._jobs, attempt).exists()

    def _lock(self, attempt: AttemptRef) -> asyncio.Lock:
        """By which one call at a time starts or ends an attempt."""
        return self._locks.setdefault(attempt, asyncio.Lock())


def _follow(voyage: _Voyage) -> None:
    for route in voyage.routes:
        route.follow()


async def _all(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them give; the first error, once every one has come to its end."""
    results = await asyncio.gather(*works, return_exceptions=True)
    errors = [each for each in results if isinstance(each, BaseException)]
    if errors:
        raise errors[0]
    return [each for each in results if not isinstance(each, BaseException)]


def _rewrite(routes: Sequence[Route], specs: Sequence[InstanceSpec]) -> None:
    for route, spec in zip(routes, specs, strict=True):
        write_spec(route.folder.root, spec)


def _mark(ended: Path) -> None:
    ended.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    ended.touch(mode=PRIVATE_FILE)
    sync_folder(ended.parent)
