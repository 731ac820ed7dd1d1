"""A Ray cluster as the ferry sees it.

Room is a placement group, one bundle for each instance, tied to its node by the resource `node:<address>` that every
Ray node has. In each bundle lives an actor that is the instance's keeper. Both are detached from the process that made
them and known by their names, which are those of one yard: its namespace.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import ray
from ray import cloudpickle
from ray.util import list_named_actors, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

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
_FIRST_TRY_S = 5.0  # how long whoever asks waits for the first try to connect
_AT_ONCE = 16
_CALLS_AT_ONCE = 8  # of one keeper: long polls, and what comes in between
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
        # Ray's calls block, and those to a head that is away do so for a minute.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ray")
        for module in (actors, unpacking):  # which nodes do not have
            cloudpickle.register_pickle_by_value(module)
        self._class: Any = ray.remote(actors.InstanceActor)
        self._greeter: Any = ray.remote(num_cpus=0, max_retries=0)(actors.greet)

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
        """Greet the nodes that are new or have not answered, and forget those that have left."""
        old, self._greetings = self._greetings, {}
        for node in found:
            name = node["NodeID"]
            task = old.get(name)
            if task is None or (task.done() and _result(task) is None):
                task = asyncio.create_task(self._greeted(name, node["NodeManagerAddress"]))
            self._greetings[name] = task

    async def _greeted(self, node_id: str, address: str) -> actors.Greeting | None:
        """None when the node does not answer; it is asked again."""
        strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task = self._greeter.options(scheduling_strategy=strategy)
        sent, place = await self._ask(self._send), self._place(address)
        try:
            greeting: actors.Greeting = await _answer(task.remote(sent, place), address, OPEN_S)
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
        actor = await self._ask(lambda: self._actor(attempt, seat))
        charge = actors.Charge(attempt.job_id, attempt.attempt, seat.instance.name, bool(seat.limits.gpus))
        refusal = await _answer(actor.open.remote(sent, self._place(seat.node), charge), seat.node, OPEN_S)
        if refusal:
            raise Unavailable(str(refusal))
        return RayKeeper(actor, seat.node)

    def _place(self, address: str) -> actors.Place:
        return actors.Place(self._folder, address, self._yard)

    def _send(self) -> Sent:
        """Put the code where nodes fetch it from, once."""
        with self._sending:
            if self._sent is None:
                self._sent = _put(self._parcel)
            return self._sent

    def _actor(self, attempt: AttemptRef, seat: Seat) -> Any:
        """The one that is there, or a new one."""
        _require_node(seat.node)
        options = self._class.options(
            name=actors.actor_name(attempt.job_id, attempt.attempt, seat.instance.name),
            get_if_exists=True,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=_CALLS_AT_ONCE,
            **_placing(_group(attempt), seat),
        )
        return options.remote()

    def _reserve(self, attempt: AttemptRef, seats: Sequence[Seat]) -> None:
        group = _group(attempt)
        if group is None:
            nodes = {seat.node for seat in seats}
            group = placement_group(
                [{**_needs(seat), _pin(seat): _PIN} for seat in seats],
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

    def __init__(self, actor: Any, node: str) -> None:
        self._actor = actor
        self._node = node

    async def call(self, method: str, /, *arguments: Any, timeout_s: float, **options: Any) -> Any:
        answer = await _answer(self._actor.call.remote(method, arguments, options), self._node, timeout_s)
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

    A group that has lost a node makes room there anew once the node is back, which may take its time. A node that came
    back is there twice until Ray has noticed that it had left; tied to its address the actor finds the one that lives.
    """
    pinned = {"resources": {_pin(seat): _PIN}}
    if group is None or placement_group_table(group)["state"] != _WHOLE:
        return {"num_cpus": 0, **pinned}
    needs = _needs(seat)
    return {
        "num_cpus": needs.get("CPU", 0),
        "num_gpus": needs.get("GPU", 0),
        "memory": needs.get("memory"),
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group),
        **pinned,
    }


def _require_node(address: str) -> None:
    if not any(each["Alive"] and each["NodeManagerAddress"] == address for each in ray.nodes()):
        raise Unreachable(f"Node {address} is not in the Ray cluster.")


def _pin(seat: Seat) -> str:
    return f"node:{seat.node}"


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


def _group(attempt: AttemptRef) -> Any:
    try:
        return ray.util.get_placement_group(str(attempt))
    except ValueError:
        return None


def _release(attempt: AttemptRef) -> None:
    group = _group(attempt)
    if group is not None:
        remove_placement_group(group)
    for name in list_named_actors():  # those that were made anew are not in the group
        if name.startswith(f"{attempt}/"):
            try:
                ray.kill(ray.get_actor(name))
            except ValueError:
                continue
