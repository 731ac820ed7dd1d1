"""Connects a yard with the nodes of its cluster: starts attempts there, keeps their mirrors up to date, ends them.

Everything that it must remember is in the yard's own files: the register of attempts that have something on nodes,
their specs, the state of each instance, the mirrors themselves, and an empty file in the folder of each ended attempt.
If the proxy is killed at any moment, the next one continues from there.
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

from trainyard.engines.cluster.attempt_register import AttemptRegister, RegisteredAttempt
from trainyard.engines.cluster.contract import ClusterBackend, ClusterNode, InstancePlacement
from trainyard.engines.cluster.instance_session import InstanceSession, ProxyTimeouts, SilentNodes
from trainyard.engines.cluster.remote_state import RemoteState
from trainyard.engines.contract import AttemptRef, InstanceRef
from trainyard.foundation.errors import Conflict, TrainyardError, Unavailable
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER, sync_folder
from trainyard.link.contract import InstanceSpec
from trainyard.link.file_locks import hold
from trainyard.link.specs import read_spec, write_spec

log = logging.getLogger(__name__)

# How long to wait for the end of an attempt that could not be started completely.
FAILED_START_PATIENCE_S = 10.0

# How long a caller waits for the end of an attempt on a node that is out of reach.
_UNREACHABLE_WAIT_S = 0.2
_LOCK_POLL_S = 0.05

T = TypeVar("T")


def ended_marker(jobs: Path, attempt: AttemptRef) -> Path:
    """Return the file that marks an attempt as ended, so that it never starts again."""
    return attempt.folder(jobs) / "ended"


@dataclass(frozen=True, slots=True)
class _OpenAttempt:
    """An attempt that has something on nodes."""

    entry: RegisteredAttempt
    sessions: Sequence[InstanceSession]

    @property
    def has_started(self) -> bool:
        return all(session.state not in (None, RemoteState.STARTING) for session in self.sessions)


class ClusterProxy:
    """Runs the attempts of one engine, on one event loop. A second proxy waits until the first one is gone.

    `jobs` has the yard's mirrors; `folder` is the engine's own.
    """

    def __init__(
        self, cluster: ClusterBackend, *, jobs: Path, folder: Path, timeouts: ProxyTimeouts | None = None
    ) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._folder = folder
        self._timeouts = timeouts or ProxyTimeouts()
        self._register = AttemptRegister.of(folder)
        self._lock_descriptor: int | None = None
        self._silent_nodes = SilentNodes()
        self._open: dict[AttemptRef, _OpenAttempt] = {}
        self._endings: dict[AttemptRef, asyncio.Task[None]] = {}
        self._finishing: dict[AttemptRef, asyncio.Task[None]] = {}
        self._locks: WeakValueDictionary[AttemptRef, asyncio.Lock] = WeakValueDictionary()

    async def open(self) -> None:
        """Take over everything that an earlier proxy started. The lock on it ends with this process."""
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        while (descriptor := hold(self._folder / "lock")) is None:
            await asyncio.sleep(_LOCK_POLL_S)
        self._lock_descriptor = descriptor
        for entry in self._register.entries():
            opened = self._open[entry.attempt] = self._open_sessions(entry)
            if self._has_ended(entry.attempt):
                self._finish_later(entry.attempt)
            elif opened.has_started:
                _follow(opened)

    async def close(self) -> None:
        """Stop. Instances keep running until their leases expire."""
        for task in self._finishing.values():
            task.cancel()
        # A copy, because an attempt that is being ended may remove itself meanwhile.
        for opened in tuple(self._open.values()):
            await asyncio.gather(*(session.detach() for session in opened.sessions))
        await self._cluster.close()
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    async def nodes(self) -> Sequence[ClusterNode]:
        """Return the nodes, without those that just let a lease expire: the cluster may not know yet that they left."""
        return [each for each in await self._cluster.nodes() if not self._silent_nodes.is_silent(each)]

    def notify_command(self, instance: InstanceRef) -> None:
        """Deliver a new command in the mailbox of an instance at once."""
        opened = self._open.get(instance.attempt)
        for session in opened.sessions if opened else ():
            if session.placement.instance == instance:
                session.deliver_now()

    async def start(self, attempt: AttemptRef, names: Sequence[str]) -> None:
        """Start the instances whose specs are in their mirrors: all, or none if an error is raised.

        Raises Conflict if the attempt was ended. After any other error the attempt is ended, or will be when the yard
        asks for it.
        """
        async with self._lock(attempt):
            if self._has_ended(attempt):
                raise Conflict("attempt", str(attempt), "was ended and cannot be started again")
            specs = [read_spec(InstanceRef(attempt, name).folder(self._jobs).root) for name in names]
            opened = self._open.get(attempt) or await self._register_attempt(attempt, specs)
            if opened.has_started:
                return
            try:
                await self._start_instances(opened, specs)
            except Exception:
                await self._end_failed_start(attempt)
                raise
            _follow(opened)

    async def end(self, attempt: AttemptRef, *, patience_s: float) -> None:
        """Do what `Engine.end` promises. Concurrent calls for one attempt wait for the same end.

        No call waits for a node that is known to be out of reach: a yard may have hundreds of jobs there.
        """
        ending = self._endings.get(attempt)
        if ending is None:
            ending = self._endings[attempt] = asyncio.create_task(self._end_locked(attempt, patience_s))
            ending.add_done_callback(lambda done: self._forget_ending(attempt, done))
        opened = self._open.get(attempt)
        missing = [session for session in opened.sessions if session.is_waiting_for_lease] if opened else []
        await asyncio.wait({ending}, timeout=_UNREACHABLE_WAIT_S if missing else None)
        if not ending.done():
            raise Unavailable(missing[0].why_not_ended)
        ending.result()

    def _forget_ending(self, attempt: AttemptRef, ending: asyncio.Task[None]) -> None:
        del self._endings[attempt]
        if not ending.cancelled():
            # Retrieved even if nobody waits, or asyncio would complain.
            ending.exception()

    async def _register_attempt(self, attempt: AttemptRef, specs: Sequence[InstanceSpec]) -> _OpenAttempt:
        placements = tuple(InstancePlacement(InstanceRef.of(spec), spec.node, spec.limits) for spec in specs)
        entry = RegisteredAttempt(attempt, placements, specs[0].lease_s, specs[0].doorbell)
        await asyncio.to_thread(self._register.add, entry)
        opened = self._open[attempt] = self._open_sessions(entry)
        return opened

    async def _start_instances(self, opened: _OpenAttempt, specs: Sequence[InstanceSpec]) -> None:
        addresses = await self._addresses(specs)
        await self._cluster.reserve(opened.entry.attempt, opened.entry.placements)
        await _gather_all(session.connect() for session in opened.sessions)
        specs = [replace(spec, addresses=addresses) for spec in specs]
        port = await opened.sessions[0].prepare(specs[0]) or specs[0].master_port
        specs = [replace(spec, master_port=port) for spec in specs]
        await asyncio.to_thread(_write_specs, opened.sessions, specs)
        # The first is prepared again: its lease counts from this answer, and the others may take long to prepare.
        await _gather_all(session.prepare(spec) for session, spec in zip(opened.sessions, specs, strict=True))
        await _gather_all(session.start(spec) for session, spec in zip(opened.sessions, specs, strict=True))

    async def _addresses(self, specs: Sequence[InstanceSpec]) -> tuple[str, ...]:
        """Return the addresses of the hosts, or none if all are on one node. Raises Unavailable if a node is gone."""
        known = {each.node.name: each.address for each in await self.nodes()}
        gone = sorted({spec.node for spec in specs} - known.keys())
        if gone:
            raise Unavailable(f"Node {gone[0]} has left the cluster.")
        return tuple(known[spec.node] for spec in specs) if len({spec.node for spec in specs}) > 1 else ()

    async def _end_failed_start(self, attempt: AttemptRef) -> None:
        try:
            await self._end_attempt(attempt, FAILED_START_PATIENCE_S)
        except TrainyardError as error:
            # The yard will ask for its end.
            log.warning("an attempt that did not start is not ended yet", extra={"id": str(attempt), "why": str(error)})

    async def _end_locked(self, attempt: AttemptRef, patience_s: float) -> None:
        async with self._lock(attempt):
            await self._end_attempt(attempt, patience_s)

    async def _end_attempt(self, attempt: AttemptRef, patience_s: float) -> None:
        """Mark an attempt as ended, for any proxy, and prove that nothing of it runs."""
        await asyncio.to_thread(_write_marker, ended_marker(self._jobs, attempt))
        opened = self._open.get(attempt)
        if opened is None:
            return
        await _gather_all(session.end(patience_s=patience_s) for session in opened.sessions)
        try:
            await self._cluster.release(attempt)
        except Unavailable as error:
            # Nothing of it runs, so nobody has to wait for a cluster that does not answer.
            log.warning("a reservation cannot be released yet", extra={"id": str(attempt), "why": error.message})
            self._finish_later(attempt)
            return
        await asyncio.to_thread(self._register.remove, attempt)
        del self._open[attempt]

    def _finish_later(self, attempt: AttemptRef) -> None:
        """Keep trying to end an attempt, because nobody may ask for its end again."""
        if attempt not in self._finishing:
            task = self._finishing[attempt] = asyncio.create_task(self._finish(attempt))
            task.add_done_callback(lambda _: self._finishing.pop(attempt))

    async def _finish(self, attempt: AttemptRef) -> None:
        while attempt in self._open:
            await asyncio.sleep(self._timeouts.max_retry_s)
            with suppress(Unavailable):
                await self.end(attempt, patience_s=FAILED_START_PATIENCE_S)

    def _open_sessions(self, entry: RegisteredAttempt) -> _OpenAttempt:
        sessions = [
            InstanceSession(
                placement,
                entry,
                cluster=self._cluster,
                jobs=self._jobs,
                timeouts=self._timeouts,
                silent_nodes=self._silent_nodes,
            )
            for placement in entry.placements
        ]
        return _OpenAttempt(entry, sessions)

    def _has_ended(self, attempt: AttemptRef) -> bool:
        return ended_marker(self._jobs, attempt).exists()

    def _lock(self, attempt: AttemptRef) -> asyncio.Lock:
        """Return the lock with which one call at a time starts or ends an attempt."""
        return self._locks.setdefault(attempt, asyncio.Lock())


def _follow(opened: _OpenAttempt) -> None:
    for session in opened.sessions:
        session.follow()


async def _gather_all(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Wait for all of them, then return their results or raise the first error."""
    results = await asyncio.gather(*works, return_exceptions=True)
    errors = [each for each in results if isinstance(each, BaseException)]
    if errors:
        raise errors[0]
    return [each for each in results if not isinstance(each, BaseException)]


def _write_specs(sessions: Sequence[InstanceSession], specs: Sequence[InstanceSpec]) -> None:
    for session, spec in zip(sessions, specs, strict=True):
        write_spec(session.folder.root, spec)


def _write_marker(ended: Path) -> None:
    ended.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    ended.touch(mode=PRIVATE_FILE)
    sync_folder(ended.parent)
