"""A Ray cluster as the ferry sees it.

Room is a placement group, one bundle for each instance, tied to its node by the resource `node:<address>` that every
Ray node has. Each node has an actor with the keepers of its instances; one with GPUs has an actor for itself, in its
bundle. All are detached from the process that made them and known by their names, which are those of one yard: its
namespace.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import ray
from ray import cloudpickle
from ray.util import list_named_actors, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from trainyard.engines.cluster.contract import ClusterNode, RemoteKeeper, Seat, Unreachable
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.engines.ray import actor as actors
from trainyard.engines.ray import unpacking
from trainyard.engines.ray.connection import Connection
from trainyard.engines.ray.parcel import Parcel
from trainyard.engines.ray.unpacking import Sent
from trainyard.foundation.errors import Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

SPOT = "spot"
MARKET = "ray.io/market-type"  # the label by which Ray's own tools tell spot nodes

GREETING_S = 3.0  # how long a node that is new may take before others are told without it
READY_S = 20.0  # how long room may take to be made
OPEN_S = 60.0  # how long a keeper may take to be there, with the code of the yard if it is the first
_ANSWER_S = 6.0  # how long the head may take
_OLDER_S = 2.0  # how long an actor with older code may take
_FIRST_TRY_S = 5.0  # how long whoever asks waits for the first try to connect
_AT_ONCE = 16
_CALLS_AT_ONCE = 512  # of the keepers of one node: long polls, and what comes in between
_GREETED_EVERY_S = 300.0  # a node that is there, so that its actor knows the yard to be there
_WHOLE = "CREATED"
_PIN = 0.001  # of the one that each node has of itself


class RayCluster:
    """The cluster behind a connection. `folder` is the place for everything of ours on each node."""

    def __init__(self, connection: Connection, *, yard: str, parcel: Parcel, folder: str = "") -> None:
        self._connection = connection
        self._yard = yard
        self._parcel = parcel
        self._folder = folder
        self._sent: Sent | None = None
        self._sending = threading.Lock()
        self._greetings: dict[str, asyncio.Task[actors.Greeting | None]] = {}  # by the ids of nodes
        self._known: dict[str, actors.Greeting] = {}  # by their addresses
        self._greeted_at = time.monotonic()
        # Ray's calls block, and those to a head that is away do so for a minute.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ray")
        for module in (actors, unpacking):  # which nodes do not have
            cloudpickle.register_pickle_by_value(module)
        self._class: Any = ray.remote(actors.KeeperActor)

    async def nodes(self) -> Sequence[ClusterNode]:
        """Those that have answered. A node that has just come is given a moment for it."""
        found = [each for each in await self._ask(ray.nodes) if each["Alive"] and int(each["Resources"].get("CPU", 0))]
        self._greet(found)
        waiting = [self._greetings[node["NodeID"]] for node in found if self._greeting(node) is None]
        if waiting:
            await asyncio.wait(waiting, timeout=GREETING_S)
        greeted = [(node, greeting) for node in found if (greeting := self._greeting(node))]
        refusals = [greeting.refusal for _, greeting in greeted if greeting.refusal]
        if refusals and len(refusals) == len(found):
            raise Unavailable(refusals[0])
        nodes = [_node(node, greeting.isolation) for node, greeting in greeted if not greeting.refusal]
        return tuple({each.node.name: each for each in nodes}.values())

    async def reserve(self, attempt: AttemptRef, seats: Sequence[Seat]) -> None:
        await self._ask(lambda: self._reserve(attempt, seats), timeout_s=READY_S + _ANSWER_S)

    async def keepers(self, attempt: AttemptRef, seats: Sequence[Seat]) -> Mapping[InstanceRef, RemoteKeeper]:
        made = await asyncio.gather(*(self._keeper(attempt, seat) for seat in seats))
        return {seat.instance: keeper for seat, keeper in zip(seats, made, strict=True)}

    async def release(self, attempt: AttemptRef) -> None:
        await self._ask(lambda: _release(attempt))

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _greet(self, found: Sequence[Mapping[str, Any]]) -> None:
        """Greet the nodes that are new or have not answered, and the others now and then; forget those that have left.

        Their actors stay as long as they are greeted.
        """
        old, self._greetings = self._greetings, {}
        is_time = time.monotonic() - self._greeted_at > _GREETED_EVERY_S
        if is_time:
            self._greeted_at = time.monotonic()
        for node in found:
            name = node["NodeID"]
            task = old.get(name)
            if task is None or (task.done() and (is_time or _result(task) is None)):
                task = asyncio.create_task(self._greeted(node["NodeManagerAddress"]))
            self._greetings[name] = task

    async def _greeted(self, address: str) -> actors.Greeting | None:
        """None when the node does not answer; it is asked again."""
        sent, place = await self._ask(self._send), self._place(address)
        try:
            actor = await self._ask(lambda: self._node_actor(address, sent))
            greeting: actors.Greeting = await _answer(actor.greet.remote(sent, place), address, OPEN_S)
        except Unreachable as error:
            log.warning("a node does not answer", extra={"node": address, "why": error.message})
            return None
        if greeting.refusal:
            log.warning("a node is not used", extra={"node": address, "why": greeting.refusal})
        return greeting

    def _greeting(self, node: Mapping[str, Any]) -> actors.Greeting | None:
        """What a node has answered; until it does so, what it answered before it left and came back."""
        task, address = self._greetings[node["NodeID"]], node["NodeManagerAddress"]
        if task.done() and (greeting := _result(task)):
            self._known[address] = greeting
        return self._known.get(address)

    async def _keeper(self, attempt: AttemptRef, seat: Seat) -> RemoteKeeper:
        sent = await self._ask(self._send)
        charge = actors.Charge(attempt.job_id, attempt.attempt, seat.instance.name, bool(seat.limits.gpus))
        actor = await self._ask(lambda: self._actor(charge, seat, sent))
        refusal = await _answer(actor.open.remote(sent, self._place(seat.node), charge), seat.node, OPEN_S)
        if refusal:
            raise Unavailable(str(refusal))
        return RayKeeper(actor, charge.name, seat.node)

    def _place(self, address: str) -> actors.Place:
        return actors.Place(self._folder, address, self._yard)

    def _send(self) -> Sent:
        """Put the code where nodes fetch it from, once."""
        with self._sending:
            if self._sent is None:
                self._sent = _put(self._parcel)
            return self._sent

    def _actor(self, charge: actors.Charge, seat: Seat, sent: Sent) -> Any:
        """The one that is there for an instance, or a new one."""
        _require_node(seat.node)
        if charge.has_gpus:
            return self._made(charge.name, **_placing(_group(charge.room), seat))
        return _older_actor(charge, seat.node, sent) or self._node_actor(seat.node, sent)

    def _node_actor(self, address: str, sent: Sent) -> Any:
        return self._made(actors.node_actor(address, sent.digest), **_beside(address))

    def _made(self, name: str, **placing: Any) -> Any:
        options = self._class.options(
            name=name,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=_CALLS_AT_ONCE,
            **placing,
        )
        return options.remote()

    def _reserve(self, attempt: AttemptRef, seats: Sequence[Seat]) -> None:
        group = _group(str(attempt))
        if group is None:
            nodes = {seat.node for seat in seats}
            group = placement_group(
                [{**_needs(seat), **_pinned(seat.node)} for seat in seats],
                strategy="STRICT_SPREAD" if len(nodes) == len(seats) else "PACK",
                name=str(attempt),
                lifetime="detached",
            )
        if not group.wait(READY_S):
            remove_placement_group(group)
            raise Unavailable(
                f"The Ray cluster has had no room for {attempt} on {', '.join(sorted({s.node for s in seats}))} for "
                f"{READY_S:g} s: others use it, or a node has left."
            )

    async def _ask(self, call: Callable[[], T], *, timeout_s: float = _ANSWER_S) -> T:
        """Do what blocks in a thread; Unavailable when there is no connection, Unreachable without an answer."""
        loop = asyncio.get_running_loop()
        if not self._connection.is_up:
            await loop.run_in_executor(self._threads, lambda: self._connection.require(wait_s=_FIRST_TRY_S))
        try:
            return await asyncio.wait_for(loop.run_in_executor(self._threads, call), timeout_s)
        except TimeoutError:
            raise Unreachable(f"The head of the Ray cluster has not answered for {timeout_s:g} s.") from None
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise Unreachable(f"The Ray cluster does not do what it is asked: {error}") from error


class RayKeeper:
    """The keeper in an actor."""

    def __init__(self, actor: Any, name: str, node: str) -> None:
        self._actor = actor
        self._name = name
        self._node = node

    async def call(self, method: str, /, *arguments: Any, timeout_s: float, **options: Any) -> Any:
        calling = self._actor.call.remote(self._name, method, arguments, options)
        answer = await _answer(calling, self._node, timeout_s)
        return actors.answered(answer)


async def _answer(reference: Any, node: str, timeout_s: float) -> Any:
    try:
        return await asyncio.wait_for(reference, timeout_s)
    except TimeoutError:
        raise Unreachable(f"Node {node} has not answered for {timeout_s:g} s.") from None
    except ray.exceptions.RayTaskError as error:
        raise Unreachable(f"Node {node} has failed: {error.cause!r}") from error
    except ray.exceptions.RayError as error:
        raise Unreachable(f"Node {node} does not answer: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _result(task: "asyncio.Task[T | None]") -> T | None:
    """What a task that is done gave; None when it failed."""
    return None if task.cancelled() or task.exception() else task.result()


def _node(found: Mapping[str, Any], isolation: str) -> ClusterNode:
    resources, labels, address = found["Resources"], found.get("Labels") or {}, found["NodeManagerAddress"]
    cpus = float(resources.get("CPU", 0))
    node = Node(
        name=address,
        slots=int(cpus),
        cpus=cpus,
        memory_bytes=int(resources.get("memory", 0)),
        gpus=tuple(range(int(resources.get("GPU", 0)))),
        reserves=True,
        is_spot=SPOT in resources or SPOT in labels or labels.get(MARKET) == SPOT,
    )
    return ClusterNode(node, address, isolation, joined=found["NodeID"])


def _placing(group: Any, seat: Seat) -> dict[str, Any]:
    """Where the actor of an instance lives: in its room, or on its node beside it when the room was lost.

    A group that has lost a node makes room there anew once the node is back, which may take its time.
    """
    if group is None or placement_group_table(group)["state"] != _WHOLE:
        return _beside(seat.node)
    needs = _needs(seat)
    return {
        "num_cpus": needs.get("CPU", 0),
        "num_gpus": needs.get("GPU", 0),
        "memory": needs.get("memory"),
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group),
        "resources": _pinned(seat.node),
    }


def _beside(address: str) -> dict[str, Any]:
    """On a node, with nothing of what it gives to jobs."""
    return {"num_cpus": 0, "resources": _pinned(address)}


def _older_actor(charge: actors.Charge, address: str, sent: Sent) -> Any:
    """The actor of a node that has an instance since before the yard got its present code, if there is one."""
    own, any_code = (actors.node_actor(address, digest) for digest in (sent.digest, ""))
    for name in list_named_actors():
        if name.startswith(any_code) and name != own:
            with suppress(ValueError, ray.exceptions.RayError):  # of one that is about to leave
                actor = ray.get_actor(name)
                if ray.get(actor.has.remote(charge.name), timeout=_OLDER_S):
                    return actor
    return None


def _require_node(address: str) -> None:
    if not any(each["Alive"] and each["NodeManagerAddress"] == address for each in ray.nodes()):
        raise Unreachable(f"Node {address} is not in the Ray cluster.")


def _pinned(address: str) -> dict[str, float]:
    """A resource that only this node has.

    A node that came back is there twice until Ray has noticed that it had left; by its address the one is found that
    lives.
    """
    return {f"node:{address}": _PIN}


def _needs(seat: Seat) -> dict[str, float]:
    """What of its node's resources an instance takes; of cores Ray counts ten thousandths."""
    limits = seat.limits
    needs: dict[str, float] = {}
    if limits.cpus:
        needs["CPU"] = math.floor(limits.cpus * 10_000) / 10_000
    if limits.memory_bytes:
        needs["memory"] = limits.memory_bytes
    if limits.gpus:
        needs["GPU"] = len(limits.gpus)
    return needs


def _put(parcel: Parcel) -> Sent:
    """References lie in lists, or Ray would bring what they refer to wherever the list of them goes."""
    return Sent(
        digest=parcel.digest,
        python=parcel.python,
        platform=parcel.platform,
        code=[ray.put(parcel.code())],
        libraries={name: [ray.put(data)] for name, data in parcel.libraries().items()},
    )


def _group(name: str) -> Any:
    try:
        return ray.util.get_placement_group(name)
    except ValueError:
        return None


def _release(attempt: AttemptRef) -> None:
    group = _group(str(attempt))
    if group is not None:
        remove_placement_group(group)
    for name in list_named_actors():
        if name.startswith(f"{attempt}/"):  # those that were made anew are not in the group
            with suppress(ValueError):
                ray.kill(ray.get_actor(name))
