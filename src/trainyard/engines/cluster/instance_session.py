"""The proxy's session with one instance: it fills the mirror, delivers commands and renews the lease.

Each pull is also a heartbeat. An instance is dead when its runner says so, or when its lease has expired: that long
after the last answer, whatever happened to its node. Nothing else is proof, because an instance on a node that is cut
off keeps running.
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
from trainyard.engines.cluster.attempt_register import RegisteredAttempt
from trainyard.engines.cluster.contract import (
    ClusterBackend,
    ClusterNode,
    FileChunk,
    InstancePlacement,
    PreparedInstance,
    PullResult,
    RemoteRunner,
    Unreachable,
)
from trainyard.engines.cluster.remote_state import RemoteState, read_remote_state, write_remote_state
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import InstanceSpec
from trainyard.link.doorbell import ring
from trainyard.link.mailbox import Mailbox

log = logging.getLogger(__name__)

# How long a node that let a lease expire is not used, unless it joins the cluster again.
_SILENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class ProxyTimeouts:
    """How long a proxy waits.

    `poll_s`: at a node, for something new. `answer_s`: for an answer, beyond the time the call itself may take.
    `start_s`: for an instance to be prepared or started; the first time a node copies the agent's code. `runner_s`: for
    a runner that has to be started. `lease_margin_s`: after a lease expired, for the node to end the instance.
    `first_retry_s`: before a node that does not answer is called again; doubled each time, up to `max_retry_s`.
    """

    poll_s: float = 1.0
    answer_s: float = 10.0
    start_s: float = 60.0
    runner_s: float = 60.0
    lease_margin_s: float = 5.0
    first_retry_s: float = 0.1
    max_retry_s: float = 5.0


def since_boot() -> float:
    """Read a clock that keeps running while the machine sleeps, as those of the nodes do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SilentNodes:
    """Nodes that did not answer for the length of a lease. A cluster may take a minute to notice that they are gone."""

    def __init__(self, clock: Callable[[], float] = since_boot) -> None:
        self._clock = clock
        self._known: dict[str, str] = {}
        self._silent: dict[str, tuple[float, str]] = {}

    def mark_silent(self, node: str) -> None:
        self._silent[node] = self._clock(), self._known.get(node, "")

    def mark_answering(self, node: str) -> None:
        self._silent.pop(node, None)

    def is_silent(self, node: ClusterNode) -> bool:
        """Whether a node fell silent recently. A node that has joined again since then is not silent."""
        name = node.node.name
        self._known[name] = node.joined
        began, joined = self._silent.get(name, (-_SILENCE_S, ""))
        return joined == node.joined and self._clock() - began < _SILENCE_S


class InstanceSession:
    """Connects the mirror of one instance with its runner. Used only on the proxy's event loop.

    A new session counts the lease from its creation: an earlier proxy cannot have received an answer any later.
    """

    def __init__(
        self,
        placement: InstancePlacement,
        attempt: RegisteredAttempt,
        *,
        cluster: ClusterBackend,
        jobs: Path,
        timeouts: ProxyTimeouts,
        clock: Callable[[], float] = since_boot,
        silent_nodes: SilentNodes | None = None,
    ) -> None:
        self.placement = placement
        self.folder = placement.instance.folder(jobs)
        self.state = read_remote_state(self.folder)
        self._lease_s = attempt.lease_s
        self._doorbell = Path(attempt.doorbell) if attempt.doorbell else None
        self._cluster = cluster
        self._timeouts = timeouts
        self._clock = clock
        self._silent_nodes = silent_nodes or SilentNodes(clock)
        # As of the last call.
        self.is_out_of_reach = False
        self._runner: RemoteRunner | None = None
        self._last_stamp = ""
        self._answered_at = clock()
        # The number of the last command that is on the node.
        self._delivered = 0
        self._applying = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Find the runner, or have one started. Raises Unreachable if its node does not answer."""
        node, timeout_s = self.placement.node, self._timeouts.runner_s
        try:
            async with asyncio.timeout(timeout_s):
                runners = await self._cluster.runners(self.placement.instance.attempt, [self.placement])
        except TimeoutError as error:
            raise Unreachable(f"Node {node} has not started a runner within {timeout_s:g} s.") from error
        except Unavailable as error:
            # The cluster as a whole may be unavailable.
            raise Unreachable(error.message) from error
        self._runner = runners[self.placement.instance]

    async def prepare(self, spec: InstanceSpec) -> int:
        """Prepare the instance, and return the master port if it is the first of its job."""
        prepared: PreparedInstance = await self._call("prepare", spec, within_s=self._timeouts.start_s)
        self._record_answer(prepared.stamp)
        return prepared.port

    async def start(self, spec: InstanceSpec) -> None:
        """Start the prepared instance, unless it was started before."""
        if self.state is None:
            await self._set_state(RemoteState.STARTING)
        if self.state is RemoteState.STARTING:
            await self._call("start", spec, within_s=self._timeouts.start_s, heard=self._last_stamp)
            await self._set_state(RemoteState.ALIVE)

    def follow(self) -> None:
        """Keep the mirror up to date from now on, until the instance is dead."""
        if self.state is RemoteState.ALIVE:
            self._spawn(self._follow())

    def deliver_now(self) -> None:
        """Deliver new commands of the mailbox at once."""
        if self._runner is not None and self.state is RemoteState.ALIVE:
            self._spawn(self._deliver())

    async def detach(self) -> None:
        """Stop following. The instance keeps running until its lease expires."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def end(self, *, patience_s: float) -> None:
        """Make sure that nothing of the instance runs, and complete the mirror.

        Raises Unavailable if something does not die in time, or if the node is out of reach and the lease has not
        expired.
        """
        await self.detach()
        if self._runner is None and (self.state is None or self.state is RemoteState.NODE_LOST):
            # Its node was never asked for anything, or does not answer any more.
            return
        if self._runner is not None:
            # If this runner has died, the next one proves what is left.
            with suppress(Unreachable):
                await self._end(patience_s)
                return
        try:
            await self._end(patience_s)
        except Unreachable as error:
            await self._handle_unreachable(error)

    async def _end(self, patience_s: float) -> None:
        await self._call("end", within_s=patience_s, patience_s=patience_s)
        while self.state is not RemoteState.NODE_LOST and not (await self._pull(wait_s=0)).is_all:
            pass
        await asyncio.to_thread(mirror.sync_mirror, self.folder)
        if self.state is not None and self.state.may_run:
            await self._set_state(RemoteState.DEAD)
        try:
            await self._call("forget")
        except Exception as error:
            # Nothing of it runs, and a node removes leftovers by itself.
            log.warning("a node has not forgotten an instance", extra={**self._log_fields, "why": repr(error)})

    async def _handle_unreachable(self, error: Unreachable) -> None:
        if self.state is None or not self.state.may_run:
            return
        if not self._has_lease_expired:
            raise Unavailable(self.why_not_ended) from error
        self._silent_nodes.mark_silent(self.placement.node)
        await self._set_state(RemoteState.NODE_LOST)

    @property
    def is_waiting_for_lease(self) -> bool:
        """Whether ending it may take as long as its lease, because its node is out of reach."""
        return self.is_out_of_reach and self.state is not RemoteState.NODE_LOST

    @property
    def why_not_ended(self) -> str:
        """Why an instance that is out of reach does not count as dead yet."""
        return (
            f"Node {self.placement.node} of {self.placement.instance.attempt}/{self.placement.instance.name} is out of "
            f"reach; what runs there ends itself within {max(0.0, self._lease_left_s):.0f} s."
        )

    async def _follow(self) -> None:
        pause_s = self._timeouts.first_retry_s
        while self.state is RemoteState.ALIVE:
            try:
                pulled = await self._pull_in_lease(wait_s=self._timeouts.poll_s if self._last_stamp else 0)
            except Exception as error:
                # The yard's disk may be full, too. What was not applied is pulled again.
                await self._handle_failed_pull(error, pause_s)
                pause_s = min(2 * pause_s, self._timeouts.max_retry_s)
            else:
                pause_s = self._timeouts.first_retry_s
                if pulled.is_all and not pulled.is_alive:
                    await self._set_state(RemoteState.NODE_LOST if pulled.has_lost_node else RemoteState.DEAD)

    async def _pull_in_lease(self, *, wait_s: float) -> PullResult:
        """Pull, but no longer than the lease lasts: a call to a node that is gone may take longer to fail."""
        try:
            async with asyncio.timeout(max(self._timeouts.first_retry_s, self._lease_left_s)):
                return await self._pull(wait_s=wait_s)
        except TimeoutError as error:
            self._runner, self.is_out_of_reach = None, True
            raise Unreachable(f"Node {self.placement.node} has not answered before the lease expired.") from error

    async def _handle_failed_pull(self, error: Exception, pause_s: float) -> None:
        if pause_s == self._timeouts.first_retry_s:
            # Logged once per outage.
            cause = None if isinstance(error, Unavailable) else error
            log.warning("an instance did not answer", exc_info=cause, extra={**self._log_fields, "why": str(error)})
        if self._has_lease_expired:
            self._silent_nodes.mark_silent(self.placement.node)
            await self._set_state(RemoteState.NODE_LOST)
            return
        await asyncio.sleep(min(pause_s, self._lease_left_s))

    async def _deliver(self) -> None:
        # If it fails, the next pull delivers the commands.
        with suppress(Unavailable):
            await self._pull(wait_s=0)

    async def _pull(self, *, wait_s: float) -> PullResult:
        commands = Mailbox(self.folder.mailbox).read(after=self._delivered)
        sizes = mirror.mirrored_sizes(self.folder)
        pulled: PullResult = await self._call(
            "pull", sizes, commands, within_s=wait_s, wait_s=wait_s, heard=self._last_stamp
        )
        if not pulled.is_known and self.state is not None and self.state.may_run:
            # Another machine may have the name now, so this proves nothing about the one that had it before.
            raise Unreachable(f"Node {self.placement.node} does not know {self.placement.instance}.")
        self._record_answer(pulled.stamp)
        self._delivered = max([self._delivered, *(command.number for command in commands)])
        if pulled.chunks:
            # Shielded from cancellation, or half of it would be applied while something else is.
            await asyncio.shield(self._apply(pulled.chunks))
        return pulled

    async def _apply(self, chunks: Sequence[FileChunk]) -> None:
        async with self._applying:
            await asyncio.to_thread(mirror.apply_chunks, self.folder, chunks)
        if any(chunk.path == self.folder.spool.name for chunk in chunks):
            self._ring_doorbell()

    async def _call(self, method: str, *arguments: Any, within_s: float = 0.0, **options: Any) -> Any:
        """Call the runner, which may take `within_s` and the time of an answer.

        If it does not answer, it may have died; the next call goes to a new one.
        """
        try:
            if self._runner is None:
                await self.connect()
            assert self._runner is not None, "connect sets the runner or raises"
            timeout_s = within_s + self._timeouts.answer_s
            answer = await self._runner.call(method, *arguments, timeout_s=timeout_s, **options)
        except Unreachable:
            self._runner, self.is_out_of_reach = None, True
            raise
        self.is_out_of_reach = False
        return answer

    def _record_answer(self, stamp: str) -> None:
        self._last_stamp = stamp
        self._answered_at = self._clock()
        self._silent_nodes.mark_answering(self.placement.node)

    @property
    def _has_lease_expired(self) -> bool:
        return self._lease_left_s <= 0

    @property
    def _lease_left_s(self) -> float:
        return self._answered_at + self._lease_s + self._timeouts.lease_margin_s - self._clock()

    async def _set_state(self, state: RemoteState) -> None:
        await asyncio.to_thread(write_remote_state, self.folder, state)
        self.state = state
        self._ring_doorbell()

    def _ring_doorbell(self) -> None:
        if self._doorbell is not None:
            ring(self._doorbell, self.placement.instance.attempt.job_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def _log_fields(self) -> dict[str, str]:
        instance = self.placement.instance
        return {"instance": f"{instance.attempt}/{instance.name}", "node": self.placement.node}
