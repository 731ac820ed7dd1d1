"""The way to one instance: what comes from it goes into its mirror, what is for it is taken along, and it has a lease.

An instance is dead when its keeper has said so, or when its lease has run out: that long after the last answer,
whatever became of its node. Nothing else is proof, for a node that is cut off runs on.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.engines.cluster import mirror
from trainyard.engines.cluster.contract import (
    Cluster,
    ClusterNode,
    Piece,
    Prepared,
    Pulled,
    RemoteKeeper,
    Seat,
    Unreachable,
)
from trainyard.engines.cluster.register import Entry
from trainyard.engines.cluster.standing import Standing, standing_of, write_standing
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import InstanceSpec
from trainyard.link.doorbell import ring
from trainyard.link.mailbox import Mailbox

log = logging.getLogger(__name__)

_DISTRUSTED_S = 60.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a ferry waits, in seconds."""

    poll: float = 1.0  # at a node, for something new
    answer: float = 10.0  # for an answer, beyond what was asked to be waited
    birth: float = 60.0  # for an instance to be prepared or started, which takes a copy of the code the first time
    keeper: float = 60.0  # for a keeper that has to be started
    margin: float = 5.0  # after the end of a lease, for the node to end what it was for
    soonest: float = 0.1  # until a node that does not answer is asked again,
    latest: float = 5.0  # and twice as long each time, up to this


def since_boot() -> float:
    """A clock that goes on while the machine sleeps, as those of the nodes do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Silences:
    """Nodes that said nothing for the length of a lease. A cluster may take a minute to notice that they are gone."""

    def __init__(self, clock: Callable[[], float] = since_boot) -> None:
        self._clock = clock
        self._known: dict[str, str] = {}
        self._begun: dict[str, tuple[float, str]] = {}

    def begin(self, node: str) -> None:
        self._begun[node] = self._clock(), self._known.get(node, "")

    def end(self, node: str) -> None:
        """It has answered."""
        self._begun.pop(node, None)

    def holds(self, node: ClusterNode) -> bool:
        """Whether a node is not to be trusted; one that has joined anew is."""
        name = node.node.name
        self._known[name] = node.joined
        began, joined = self._begun.get(name, (-_DISTRUSTED_S, ""))
        return joined == node.joined and self._clock() - began < _DISTRUSTED_S


class Route:
    """What a ferry has of one instance. Used on its loop alone.

    Made anew, it counts the lease from then on: an earlier ferry cannot have had an answer any later.
    """

    def __init__(
        self,
        seat: Seat,
        entry: Entry,
        *,
        cluster: Cluster,
        jobs: Path,
        patience: Patience,
        clock: Callable[[], float] = since_boot,
        silences: Silences | None = None,
    ) -> None:
        self.seat = seat
        self.folder = seat.instance.folder(jobs)
        self.standing = standing_of(self.folder)
        self._lease_s = entry.lease_s
        self._doorbell = Path(entry.doorbell) if entry.doorbell else None
        self._cluster = cluster
        self._patience = patience
        self._clock = clock
        self._silences = silences or Silences(clock)
        self.is_out_of_reach = False  # as far as is known from the last call
        self._keeper: RemoteKeeper | None = None
        self._heard = ""
        self._heard_at = clock()
        self._delivered = 0  # the number of the last command that is on the node
        self._applying = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def reach(self) -> None:
        """Find the keeper, or have one started; Unreachable when its node does not answer."""
        try:
            async with asyncio.timeout(self._patience.keeper):
                keepers = await self._cluster.keepers(self.seat.instance.attempt, [self.seat])
        except TimeoutError as error:
            raise Unreachable(f"Node {self.seat.node} has no keeper after {self._patience.keeper:g} s.") from error
        except Unavailable as error:  # the cluster as a whole may be away
            raise Unreachable(error.message) from error
        self._keeper = keepers[self.seat.instance]

    async def prepare(self, spec: InstanceSpec) -> int:
        """The master port, where it is the first of its job."""
        prepared: Prepared = await self._call("prepare", spec, within_s=self._patience.birth)
        self._hear(prepared.stamp)
        return prepared.port

    async def start(self, spec: InstanceSpec) -> None:
        """Start the instance that was prepared, unless it was started."""
        if self.standing is None:
            await self._stand(Standing.STARTING)
        if self.standing is Standing.STARTING:
            await self._call("start", spec, within_s=self._patience.birth, heard=self._heard)
            await self._stand(Standing.ALIVE)

    def follow(self) -> None:
        """Bring from now on what there is, until the instance is dead."""
        if self.standing is Standing.ALIVE:
            self._spawn(self._follow())

    def tell(self) -> None:
        """Take along at once what was put into the mailbox."""
        if self._keeper is not None and self.standing is Standing.ALIVE:
            self._spawn(self._deliver())

    async def leave(self) -> None:
        """Bring no more; the instance runs on until its lease ends."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def end(self, *, patience_s: float) -> None:
        """Make sure that nothing of the instance runs, and bring the last of it.

        Unavailable when something does not die in time, or when the node is out of reach and the lease has not ended.
        """
        await self.leave()
        if self._keeper is None and (self.standing is None or self.standing is Standing.TAKEN):
            return  # nothing was asked of its node, or nothing answers there
        if self._keeper is not None:
            with suppress(Unreachable):  # it may have died, and the next one proves what is there
                await self._end(patience_s)
                return
        try:
            await self._end(patience_s)
        except Unreachable as error:
            await self._given_up(error)

    async def _end(self, patience_s: float) -> None:
        await self._call("end", within_s=patience_s, patience_s=patience_s)
        while self.standing is not Standing.TAKEN and not (await self._pull(wait_s=0)).is_all:
            pass
        await asyncio.to_thread(mirror.settle, self.folder)
        if self.standing is not None and self.standing.may_run:
            await self._stand(Standing.DEAD)
        try:
            await self._call("forget")
        except Exception as error:  # nothing of it runs, and a node clears away by itself what nobody asks for
            log.warning("a node has not forgotten an instance", extra={**self._names, "why": repr(error)})

    async def _given_up(self, error: Unreachable) -> None:
        if self.standing is None or not self.standing.may_run:
            return
        if not self._has_lapsed:
            raise Unavailable(self.why_not_ended) from error
        self._silences.begin(self.seat.node)
        await self._stand(Standing.TAKEN)

    @property
    def is_awaited_in_vain(self) -> bool:
        """Whether its end may take until its lease does, because its node is out of reach."""
        return self.is_out_of_reach and self.standing is not Standing.TAKEN

    @property
    def why_not_ended(self) -> str:
        """What keeps an instance out of reach from counting as dead."""
        return (
            f"Node {self.seat.node} of {self.seat.instance.attempt}/{self.seat.instance.name} is out of reach; what "
            f"runs there ends itself in {max(0.0, self._until_lapse):.0f} s at the latest."
        )

    async def _follow(self) -> None:
        pause_s = self._patience.soonest
        while self.standing is Standing.ALIVE:
            try:
                pulled = await self._pull_in_lease(wait_s=self._patience.poll if self._heard else 0)
            except Exception as error:  # also of a full disk of the yard: what was not applied is brought again
                await self._miss(error, pause_s)
                pause_s = min(2 * pause_s, self._patience.latest)
            else:
                pause_s = self._patience.soonest
                if pulled.is_all and not pulled.is_alive:
                    await self._stand(Standing.TAKEN if pulled.was_taken else Standing.DEAD)

    async def _pull_in_lease(self, *, wait_s: float) -> Pulled:
        """Pull while the lease runs: a node that is gone may take longer to give no answer, or no keeper."""
        try:
            async with asyncio.timeout(max(self._patience.soonest, self._until_lapse)):
                return await self._pull(wait_s=wait_s)
        except TimeoutError as error:
            self._keeper, self.is_out_of_reach = None, True
            raise Unreachable(f"Node {self.seat.node} has not answered before the end of the lease.") from error

    async def _miss(self, error: Exception, pause_s: float) -> None:
        if pause_s == self._patience.soonest:  # for the first time since something came
            cause = None if isinstance(error, Unavailable) else error
            log.warning("nothing came from an instance", exc_info=cause, extra={**self._names, "why": str(error)})
        if self._has_lapsed:
            self._silences.begin(self.seat.node)
            await self._stand(Standing.TAKEN)
            return
        await asyncio.sleep(min(pause_s, self._until_lapse))

    async def _deliver(self) -> None:
        with suppress(Unavailable):  # then the next pull takes them along
            await self._pull(wait_s=0)

    async def _pull(self, *, wait_s: float) -> Pulled:
        commands = Mailbox(self.folder.mailbox).read(after=self._delivered)
        pulled: Pulled = await self._call(
            "pull", mirror.cursors(self.folder), commands, within_s=wait_s, wait_s=wait_s, heard=self._heard
        )
        if not pulled.is_known and self.standing is not None and self.standing.may_run:
            # Another machine may have the name now, so that this proves nothing of the one that had it.
            raise Unreachable(f"Node {self.seat.node} knows nothing of {self.seat.instance}.")
        self._hear(pulled.stamp)
        self._delivered = max([self._delivered, *(command.number for command in commands)])
        if pulled.pieces:
            # Not cut short by whoever gives up: half of it would be applied while something else is.
            await asyncio.shield(self._apply(pulled.pieces))
        return pulled

    async def _apply(self, pieces: Sequence[Piece]) -> None:
        async with self._applying:
            await asyncio.to_thread(mirror.apply, self.folder, pieces)
        if any(piece.path == self.folder.spool.name for piece in pieces):
            self._ring()

    async def _call(self, method: str, *arguments: Any, within_s: float = 0.0, **options: Any) -> Any:
        """Call the keeper, which may take `within_s` and the time of an answer.

        After one that did not answer, the next call is to a new one, for it may have died.
        """
        try:
            if self._keeper is None:
                await self.reach()
            assert self._keeper is not None, "a keeper that was reached is there"
            timeout_s = within_s + self._patience.answer
            answer = await self._keeper.call(method, *arguments, timeout_s=timeout_s, **options)
        except Unreachable:
            self._keeper, self.is_out_of_reach = None, True
            raise
        self.is_out_of_reach = False
        return answer

    def _hear(self, stamp: str) -> None:
        self._heard = stamp
        self._heard_at = self._clock()
        self._silences.end(self.seat.node)

    @property
    def _has_lapsed(self) -> bool:
        return self._until_lapse <= 0

    @property
    def _until_lapse(self) -> float:
        return self._heard_at + self._lease_s + self._patience.margin - self._clock()

    async def _stand(self, standing: Standing) -> None:
        await asyncio.to_thread(write_standing, self.folder, standing)
        self.standing = standing
        self._ring()

    def _ring(self) -> None:
        if self._doorbell is not None:
            ring(self._doorbell, self.seat.instance.attempt.job_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def _names(self) -> dict[str, str]:
        instance = self.seat.instance
        return {"instance": f"{instance.attempt}/{instance.name}", "node": self.seat.node}
