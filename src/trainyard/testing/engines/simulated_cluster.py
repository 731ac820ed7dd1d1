"""A cluster of any number of nodes whose instances are played, on a clock that somebody else moves.

It keeps the whole contract of engines and starts no process. Jobs take as long as it is told and then end by
themselves; nodes join, leave, are cut off and come back. So a day of a large cluster can be lived through in minutes.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from trainyard.engines.contract import AttemptRef, Capacity, InstanceRef, Node, Read
from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import Command, CommandKind, FrameKind, InstanceSpec
from trainyard.link.mailbox import Mailbox
from trainyard.testing.engines.simulated import PlayedAgent, SimulatedEngine, run

LEASE = timedelta(minutes=3)
MARGIN = timedelta(seconds=30)  # that the yard waits beyond a lease before it takes an instance for dead


@dataclass(frozen=True, slots=True)
class Plot:
    """What the program of an instance will do: how long it takes in all, and the code with which it ends."""

    length: timedelta
    code: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """One instance that runs: since when, until when by itself, and where."""

    node: str
    begun_at: datetime
    ends_at: datetime
    code: int
    done_before: timedelta  # by earlier attempts, whose checkpoints it went on from


@dataclass(order=True, slots=True)
class _Event:
    at: datetime
    number: int
    do: Callable[[], None] = field(compare=False)


class SimulatedCluster(SimulatedEngine):
    """Implements `Engine`. What is due happens when somebody looks, or calls `play`, at best at `next_at`.

    `plot` says what the program of an instance will do. What an attempt did up to its last checkpoint, one in each
    `checkpoints`, the next one need not do again; nor anything of what it did before it was told to go. `tell` is
    called with the id of each job that has news.
    """

    def __init__(
        self,
        jobs: Path,
        *,
        nodes: Sequence[Node],
        plot: Callable[[InstanceSpec], Plot],
        clock: Clock,
        name: str = "simulated",
        checkpoints: timedelta = timedelta(minutes=10),
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(jobs, name=name, is_here=False, role=self._begin, clock=clock)
        self.tell = tell
        self.works: dict[InstanceRef, Work] = {}
        self._nodes = {node.name: node for node in nodes}
        self._away: dict[str, datetime] = {}  # nodes that cannot be reached, and since when
        self._plot = plot
        self._checkpoints = checkpoints
        self._events: list[_Event] = []
        self._numbers = count()
        self._done: dict[str, timedelta] = {}  # by jobs and instances, kept in checkpoints
        self._untold: dict[InstanceRef, Command] = {}  # commands that instances have not got yet

    def capacity(self) -> Capacity:
        return Capacity(tuple(node for name, node in self._nodes.items() if name not in self._away))

    @property
    def next_at(self) -> datetime | None:
        """When there is something to play."""
        return self._events[0].at if self._events else None

    def play(self) -> None:
        """Let happen all that is due by now."""
        while self._events and self._events[0].at <= self._clock():
            heapq.heappop(self._events).do()

    def join(self, node: Node) -> None:
        """A node is there, for the first time or again; what ended on it while it was cut off is heard of now."""
        self._nodes[node.name] = node
        self._away.pop(node.name, None)
        for instance, work in list(self.works.items()):
            if work.node == node.name:
                self._finish(instance)
                self._obey(instance)

    def cut_off(self, name: str) -> None:
        """A node cannot be reached any more; what runs there goes on until its lease is over."""
        self._away[name] = since = self._clock()
        for instance, work in self.works.items():
            if work.node == name:
                self._at(since + LEASE + MARGIN, partial(self._give_up, instance, since))

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        gone = next((spec.node for spec in specs if spec.node in self._away), None)
        if gone is None:
            return super().start(specs)
        self.end(InstanceRef.of(specs[0]).attempt)
        raise Unavailable(f"The node {gone} does not answer.")

    def command(self, instance: InstanceRef, kind: CommandKind, payload: Mapping[str, Any] | None = None) -> Command:
        if instance not in self.works:
            return super().command(instance, kind, payload)
        command = self._untold[instance] = Mailbox(self.agent(instance).folder.mailbox).put(kind, payload)
        self._obey(instance)
        return command

    def reports(self, instance: InstanceRef, offset: int) -> Read:
        self.play()
        return super().reports(instance, offset)

    def is_alive(self, instance: InstanceRef) -> bool:
        self.play()
        return super().is_alive(instance)

    def end(self, attempt: AttemptRef, *, patience: timedelta = timedelta(0)) -> None:
        mine = [instance for instance in self.works if instance.attempt == attempt]
        for instance in mine:
            if self.works[instance].node in self._away:
                raise Unavailable(f"{instance} may still run on {self.works[instance].node}, which does not answer.")
        for instance in mine:
            self._keep(instance, self.works.pop(instance))
        super().end(attempt, patience=patience)

    def _begin(self, agent: PlayedAgent) -> None:
        """The role of every instance."""
        run(agent)
        spec, now = agent.spec, self._clock()
        instance = InstanceRef.of(spec)
        plot, done = self._plot(spec), self._done.get(_whose(instance), timedelta())
        ends_at = now + max(timedelta(), plot.length - done)
        self.works[instance] = Work(spec.node, now, ends_at, plot.code, done)
        self._at(ends_at, partial(self._finish, instance))
        self.tell(instance.attempt.job_id)

    def _at(self, moment: datetime, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, _Event(moment, next(self._numbers), do))

    def _finish(self, instance: InstanceRef) -> None:
        """The program has come to its end, unless it was ended before; told when the node can be reached."""
        work = self.works.get(instance)
        if work is None or work.node in self._away or work.ends_at > self._clock():
            return
        del self.works[instance]
        agent = self.agent(instance)
        agent.report(FrameKind.EXITED, code=work.code, signal=None, is_oom=False)
        if work.code:
            agent.end("failed", reason=f"The program ended with exit code {work.code}.", card={"class": "user error"})
        else:
            agent.end()
        self.tell(instance.attempt.job_id)

    def _obey(self, instance: InstanceRef) -> None:
        """Carry out a command, once the node can be reached."""
        work = self.works.get(instance)
        if work is None or work.node in self._away or instance not in self._untold:
            return
        command = self._untold.pop(instance)
        self._keep(instance, self.works.pop(instance), is_told=command.kind is CommandKind.STOP)
        self.agent(instance).end("stopped", reason=str(command.payload.get("reason", "")))
        self.tell(instance.attempt.job_id)

    def _give_up(self, instance: InstanceRef, since: datetime) -> None:
        """The lease of an instance on a node that stayed away is over: nothing of it runs any more."""
        work = self.works.get(instance)
        if work is None or self._away.get(work.node) != since:
            return
        self._keep(instance, self.works.pop(instance), until=since)
        self.taken.add(instance)
        self.agent(instance).die()
        self.tell(instance.attempt.job_id)

    def _keep(self, instance: InstanceRef, work: Work, *, is_told: bool = False, until: datetime | None = None) -> None:
        """Remember how far the program came: all of it where it was told to go, else up to its last checkpoint."""
        done = work.done_before + ((until or self._clock()) - work.begun_at)
        self._done[_whose(instance)] = done if is_told else done - done % self._checkpoints


def _whose(instance: InstanceRef) -> str:
    return f"{instance.attempt.job_id}/{instance.name}"
