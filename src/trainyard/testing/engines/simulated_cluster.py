"""A cluster of any number of nodes with simulated instances, on a clock that the caller moves.

It keeps the whole contract of engines and starts no process. Jobs take a given time and then end by themselves; nodes
join, leave, are cut off and come back. So a day of a large cluster can be simulated in minutes.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from trainyard.engines.contract import AttemptRef, Capacity, InstanceRef, Node, SpoolRead
from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import Command, CommandKind, FrameKind, InstanceSpec
from trainyard.link.mailbox import Mailbox
from trainyard.testing.engines.simulated import SimulatedAgent, SimulatedEngine, run

LEASE = timedelta(minutes=3)
# How long after a lease expired an instance counts as dead.
MARGIN = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class SimulatedProgram:
    """What the program of an instance will do: how long it takes in all, and its exit code."""

    length: timedelta
    code: int = 0


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A running instance: its node, when it began, and when it ends by itself.

    `done_before` is the work of earlier attempts, from whose checkpoints it continued.
    """

    node: str
    begun_at: datetime
    ends_at: datetime
    code: int
    done_before: timedelta


@dataclass(order=True, slots=True)
class _ScheduledEvent:
    at: datetime
    number: int
    do: Callable[[], None] = field(compare=False)


class SimulatedCluster(SimulatedEngine):
    """Implements `Engine`. Due events happen when somebody reads, or calls `play`, ideally at `next_at`.

    `plot` says what the program of an instance will do. There is a checkpoint every `checkpoints`: the next attempt
    continues from the last one, or from the moment of a stop. `tell` is called with the id of each job that has new
    reports.
    """

    def __init__(
        self,
        jobs: Path,
        *,
        nodes: Sequence[Node],
        plot: Callable[[InstanceSpec], SimulatedProgram],
        clock: Clock,
        name: str = "simulated",
        checkpoints: timedelta = timedelta(minutes=10),
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(jobs, name=name, is_here=False, role=self._begin, clock=clock)
        self.tell = tell
        self.works: dict[InstanceRef, SimulatedRun] = {}
        self._nodes = {node.name: node for node in nodes}
        # Nodes that cannot be reached, and since when.
        self._unreachable: dict[str, datetime] = {}
        self._plot = plot
        self._checkpoints = checkpoints
        self._events: list[_ScheduledEvent] = []
        self._numbers = count()
        # The work saved in checkpoints, by job and instance.
        self._done: dict[str, timedelta] = {}
        self._undelivered: dict[InstanceRef, Command] = {}

    def capacity(self) -> Capacity:
        return Capacity(tuple(node for name, node in self._nodes.items() if name not in self._unreachable))

    @property
    def next_at(self) -> datetime | None:
        """The time of the next event."""
        return self._events[0].at if self._events else None

    def play(self) -> None:
        """Run all events that are due."""
        while self._events and self._events[0].at <= self._clock():
            heapq.heappop(self._events).do()

    def join(self, node: Node) -> None:
        """Add a node, for the first time or again. What ended on it while it was cut off is reported now."""
        self._nodes[node.name] = node
        self._unreachable.pop(node.name, None)
        for instance, work in list(self.works.items()):
            if work.node == node.name:
                self._finish(instance)
                self._carry_out_command(instance)

    def cut_off(self, name: str) -> None:
        """Make a node unreachable. What runs there continues until its lease expires."""
        self._unreachable[name] = since = self._clock()
        for instance, work in self.works.items():
            if work.node == name:
                self._at(since + LEASE + MARGIN, partial(self._lose_instance, instance, since))

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        gone = next((spec.node for spec in specs if spec.node in self._unreachable), None)
        if gone is None:
            return super().start(specs)
        self.end(InstanceRef.of(specs[0]).attempt)
        raise Unavailable(f"The node {gone} does not answer.")

    def command(self, instance: InstanceRef, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> Command:
        if instance not in self.works:
            return super().command(instance, kind, payload)
        command = self._undelivered[instance] = Mailbox(self.agent(instance).folder.mailbox).put(kind, payload)
        self._carry_out_command(instance)
        return command

    def reports(self, instance: InstanceRef, offset: int) -> SpoolRead:
        self.play()
        return super().reports(instance, offset)

    def is_alive(self, instance: InstanceRef) -> bool:
        self.play()
        return super().is_alive(instance)

    def end(self, attempt: AttemptRef, *, patience: timedelta = timedelta(0)) -> None:
        mine = [instance for instance in self.works if instance.attempt == attempt]
        for instance in mine:
            if self.works[instance].node in self._unreachable:
                raise Unavailable(f"{instance} may still run on {self.works[instance].node}, which does not answer.")
        for instance in mine:
            self._save_progress(instance, self.works.pop(instance))
        super().end(attempt, patience=patience)

    def _begin(self, agent: SimulatedAgent) -> None:
        """Start the simulated run of an instance."""
        run(agent)
        spec, now = agent.spec, self._clock()
        instance = InstanceRef.of(spec)
        plot, done = self._plot(spec), self._done.get(_progress_key(instance), timedelta())
        ends_at = now + max(timedelta(), plot.length - done)
        self.works[instance] = SimulatedRun(spec.node, now, ends_at, plot.code, done)
        self._at(ends_at, partial(self._finish, instance))
        self.tell(instance.attempt.job_id)

    def _at(self, moment: datetime, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, _ScheduledEvent(moment, next(self._numbers), do))

    def _finish(self, instance: InstanceRef) -> None:
        """End the program, unless it ended before. Reported when the node can be reached."""
        work = self.works.get(instance)
        if work is None or work.node in self._unreachable or work.ends_at > self._clock():
            return
        del self.works[instance]
        agent = self.agent(instance)
        agent.report(FrameKind.EXITED, code=work.code, signal=None, is_oom=False)
        if work.code:
            agent.end("failed", reason=f"The program ended with exit code {work.code}.", card={"class": "user error"})
        else:
            agent.end()
        self.tell(instance.attempt.job_id)

    def _carry_out_command(self, instance: InstanceRef) -> None:
        """Carry out a command once the node can be reached."""
        work = self.works.get(instance)
        if work is None or work.node in self._unreachable or instance not in self._undelivered:
            return
        command = self._undelivered.pop(instance)
        self._save_progress(instance, self.works.pop(instance), was_asked_to_stop=command.kind is CommandKind.STOP)
        self.agent(instance).end("stopped", reason=str(command.payload.get("reason", "")))
        self.tell(instance.attempt.job_id)

    def _lose_instance(self, instance: InstanceRef, since: datetime) -> None:
        """End an instance whose lease expired because its node stayed unreachable."""
        work = self.works.get(instance)
        if work is None or self._unreachable.get(work.node) != since:
            return
        self._save_progress(instance, self.works.pop(instance), until=since)
        self.lost_nodes.add(instance)
        self.agent(instance).die()
        self.tell(instance.attempt.job_id)

    def _save_progress(
        self,
        instance: InstanceRef,
        work: SimulatedRun,
        *,
        was_asked_to_stop: bool = False,
        until: datetime | None = None,
    ) -> None:
        """Save how far the program came: everything if it was asked to stop, otherwise up to its last checkpoint."""
        done = work.done_before + ((until or self._clock()) - work.begun_at)
        self._done[_progress_key(instance)] = done if was_asked_to_stop else done - done % self._checkpoints


def _progress_key(instance: InstanceRef) -> str:
    return f"{instance.attempt.job_id}/{instance.name}"
