"""A Ray cluster as the proxy uses it.

A reservation is a placement group with one bundle per instance, pinned to its node by the resource `node:<address>`
that every Ray node has. Each node has an actor with the runners of its instances; an instance with GPUs has an actor of
its own, in its bundle. All actors are detached from the process that created them and are found by their names in the
namespace of one yard.
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

from trainyard.engines.cluster.contract import ClusterNode, InstancePlacement, RemoteRunner, Unreachable
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.engines.ray import actor as actors
from trainyard.engines.ray import node_code
from trainyard.engines.ray.code_bundle import CodeBundle
from trainyard.engines.ray.connection import RayConnection
from trainyard.engines.ray.node_code import SentCode
from trainyard.foundation.errors import Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

SPOT = "spot"
# The label with which Ray's own tools mark spot nodes.
MARKET_LABEL = "ray.io/market-type"

# How long `nodes` waits for a new node before it returns without it.
HANDSHAKE_WAIT_S = 3.0
# How long a placement group may take to be created.
RESERVE_TIMEOUT_S = 20.0
# How long a runner may take to open; the first on a node fetches the code of the yard.
OPEN_TIMEOUT_S = 60.0
_HEAD_TIMEOUT_S = 6.0
_OLDER_ACTOR_TIMEOUT_S = 2.0
# How long a caller waits for the first attempt to connect.
_CONNECT_TIMEOUT_S = 5.0
_THREADS = 16
# Of the runners of one node: long polls, and calls in between.
_MAX_CONCURRENCY = 512
# Repeated, so that the actor of a node knows that its yard is still there.
_HANDSHAKE_INTERVAL_S = 300.0
_CREATED = "CREATED"
# Each node has 1 of the resource `node:<address>`.
_PIN_AMOUNT = 0.001


class RayCluster:
    """The cluster behind a connection. `folder` is for everything of ours on each node."""

    def __init__(self, connection: RayConnection, *, yard: str, bundle: CodeBundle, folder: str = "") -> None:
        self._connection = connection
        self._yard = yard
        self._bundle = bundle
        self._folder = folder
        self._sent_code: SentCode | None = None
        self._sending = threading.Lock()
        # By node id.
        self._handshakes: dict[str, asyncio.Task[actors.NodeHandshake | None]] = {}
        # By address.
        self._last_handshakes: dict[str, actors.NodeHandshake] = {}
        self._handshakes_at = time.monotonic()
        # Ray's calls block, for a minute if the head does not answer.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ray")
        # Nodes do not have these modules.
        for module in (actors, node_code):
            cloudpickle.register_pickle_by_value(module)
        self._actor_class: Any = ray.remote(actors.RunnerActor)

    async def nodes(self) -> Sequence[ClusterNode]:
        """Return the nodes that have answered. Waits a moment for new nodes."""
        found = [each for each in await self._ask(ray.nodes) if each["Alive"] and int(each["Resources"].get("CPU", 0))]
        self._start_handshakes(found)
        waiting = [self._handshakes[node["NodeID"]] for node in found if self._handshake_of(node) is None]
        if waiting:
            await asyncio.wait(waiting, timeout=HANDSHAKE_WAIT_S)
        answered = [(node, handshake) for node in found if (handshake := self._handshake_of(node))]
        refusals = [handshake.refusal for _, handshake in answered if handshake.refusal]
        if refusals and len(refusals) == len(found):
            raise Unavailable(refusals[0])
        nodes = [_node(node, handshake.isolation) for node, handshake in answered if not handshake.refusal]
        return tuple({each.node.name: each for each in nodes}.values())

    async def reserve(self, attempt: AttemptRef, placements: Sequence[InstancePlacement]) -> None:
        await self._ask(lambda: self._reserve(attempt, placements), timeout_s=RESERVE_TIMEOUT_S + _HEAD_TIMEOUT_S)

    async def runners(
        self, attempt: AttemptRef, placements: Sequence[InstancePlacement]
    ) -> Mapping[InstanceRef, RemoteRunner]:
        runners = await asyncio.gather(*(self._open_runner(attempt, placement) for placement in placements))
        return {placement.instance: runner for placement, runner in zip(placements, runners, strict=True)}

    async def release(self, attempt: AttemptRef) -> None:
        await self._ask(lambda: _release(attempt))

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start_handshakes(self, found: Sequence[Mapping[str, Any]]) -> None:
        """Start a handshake with nodes that are new or have not answered, and with the others now and then.

        Nodes that have left are forgotten. An actor exits if it gets no handshake for long enough.
        """
        old, self._handshakes = self._handshakes, {}
        is_due = time.monotonic() - self._handshakes_at > _HANDSHAKE_INTERVAL_S
        if is_due:
            self._handshakes_at = time.monotonic()
        for node in found:
            name = node["NodeID"]
            task = old.get(name)
            if task is None or (task.done() and (is_due or _result(task) is None)):
                task = asyncio.create_task(self._shake_hands(node["NodeManagerAddress"]))
            self._handshakes[name] = task

    async def _shake_hands(self, address: str) -> actors.NodeHandshake | None:
        """Return the answer of a node; None if it does not answer, and then try again later."""
        sent, location = await self._ask(self._send_code), self._location(address)
        try:
            actor = await self._ask(lambda: self._node_actor(address, sent))
            calling = actor.handshake.remote(sent, location)
            handshake: actors.NodeHandshake = await _answer(calling, address, OPEN_TIMEOUT_S)
        except Unreachable as error:
            log.warning("a node does not answer", extra={"node": address, "why": error.message})
            return None
        if handshake.refusal:
            log.warning("a node is not used", extra={"node": address, "why": handshake.refusal})
        return handshake

    def _handshake_of(self, node: Mapping[str, Any]) -> actors.NodeHandshake | None:
        """Return the answer of a node; until it answers, its answer from before it left and came back."""
        task, address = self._handshakes[node["NodeID"]], node["NodeManagerAddress"]
        if task.done() and (handshake := _result(task)):
            self._last_handshakes[address] = handshake
        return self._last_handshakes.get(address)

    async def _open_runner(self, attempt: AttemptRef, placement: InstancePlacement) -> RemoteRunner:
        sent = await self._ask(self._send_code)
        managed = actors.ManagedInstance(
            attempt.job_id, attempt.attempt, placement.instance.name, bool(placement.limits.gpus)
        )
        actor = await self._ask(lambda: self._actor_of(managed, placement, sent))
        calling = actor.open.remote(sent, self._location(placement.node), managed)
        refusal = await _answer(calling, placement.node, OPEN_TIMEOUT_S)
        if refusal:
            raise Unavailable(str(refusal))
        return RayRunner(actor, managed.name, placement.node)

    def _location(self, address: str) -> actors.NodeLocation:
        return actors.NodeLocation(self._folder, address, self._yard)

    def _send_code(self) -> SentCode:
        """Put the code into Ray's object store, once, where nodes fetch it from."""
        with self._sending:
            if self._sent_code is None:
                self._sent_code = _put_code(self._bundle)
            return self._sent_code

    def _actor_of(self, managed: actors.ManagedInstance, placement: InstancePlacement, sent: SentCode) -> Any:
        """Return the existing actor for an instance, or a new one."""
        _require_node(placement.node)
        if managed.has_gpus:
            return self._get_or_create_actor(managed.name, **_scheduling_of(_group(managed.room), placement))
        return _older_actor(managed, placement.node, sent) or self._node_actor(placement.node, sent)

    def _node_actor(self, address: str, sent: SentCode) -> Any:
        return self._get_or_create_actor(actors.node_actor_name(address, sent.digest), **_outside_group(address))

    def _get_or_create_actor(self, name: str, **scheduling: Any) -> Any:
        options = self._actor_class.options(
            name=name,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=0,
            max_concurrency=_MAX_CONCURRENCY,
            **scheduling,
        )
        return options.remote()

    def _reserve(self, attempt: AttemptRef, placements: Sequence[InstancePlacement]) -> None:
        group = _group(str(attempt))
        if group is None:
            nodes = {placement.node for placement in placements}
            group = placement_group(
                [{**_resources_of(placement), **_pin_to(placement.node)} for placement in placements],
                strategy="STRICT_SPREAD" if len(nodes) == len(placements) else "PACK",
                name=str(attempt),
                lifetime="detached",
            )
        if not group.wait(RESERVE_TIMEOUT_S):
            remove_placement_group(group)
            names = ", ".join(sorted({placement.node for placement in placements}))
            raise Unavailable(
                f"The Ray cluster could not reserve resources for {attempt} on {names} within {RESERVE_TIMEOUT_S:g} s: "
                "others use them, or a node has left."
            )

    async def _ask(self, call: Callable[[], T], *, timeout_s: float = _HEAD_TIMEOUT_S) -> T:
        """Run a blocking call in a thread. Raises Unavailable without a connection, Unreachable without an answer."""
        loop = asyncio.get_running_loop()
        if not self._connection.is_up:
            await loop.run_in_executor(self._threads, lambda: self._connection.require(wait_s=_CONNECT_TIMEOUT_S))
        try:
            return await asyncio.wait_for(loop.run_in_executor(self._threads, call), timeout_s)
        except TimeoutError:
            raise Unreachable(f"The head of the Ray cluster has not answered for {timeout_s:g} s.") from None
        except (ray.exceptions.RayError, ConnectionError) as error:
            raise Unreachable(f"A request to the Ray cluster failed: {error}") from error


class RayRunner:
    """A runner in an actor."""

    def __init__(self, actor: Any, name: str, node: str) -> None:
        self._actor = actor
        self._name = name
        self._node = node

    async def call(self, method: str, /, *arguments: Any, timeout_s: float, **options: Any) -> Any:
        calling = self._actor.call.remote(self._name, method, arguments, options)
        answer = await _answer(calling, self._node, timeout_s)
        return actors.unwrap_result(answer)


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
    """Return the result of a finished task; None if it failed."""
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
        is_spot=SPOT in resources or SPOT in labels or labels.get(MARKET_LABEL) == SPOT,
    )
    return ClusterNode(node, address, isolation, joined=found["NodeID"])


def _scheduling_of(group: Any, placement: InstancePlacement) -> dict[str, Any]:
    """Return where the actor of an instance runs: in its placement group, or outside of it if the group was lost.

    After a group has lost a node, Ray reserves its bundle again once the node is back, which may take a while.
    """
    if group is None or placement_group_table(group)["state"] != _CREATED:
        return _outside_group(placement.node)
    needs = _resources_of(placement)
    return {
        "num_cpus": needs.get("CPU", 0),
        "num_gpus": needs.get("GPU", 0),
        "memory": needs.get("memory"),
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group),
        "resources": _pin_to(placement.node),
    }


def _outside_group(address: str) -> dict[str, Any]:
    """Run on a node without any of the resources for jobs."""
    return {"num_cpus": 0, "resources": _pin_to(address)}


def _older_actor(managed: actors.ManagedInstance, address: str, sent: SentCode) -> Any:
    """Return the actor that has run an instance since before the yard was upgraded, if there is one."""
    own, any_code = (actors.node_actor_name(address, digest) for digest in (sent.digest, ""))
    for name in list_named_actors():
        if name.startswith(any_code) and name != own:
            # The actor may be about to exit.
            with suppress(ValueError, ray.exceptions.RayError):
                actor = ray.get_actor(name)
                if ray.get(actor.has.remote(managed.name), timeout=_OLDER_ACTOR_TIMEOUT_S):
                    return actor
    return None


def _require_node(address: str) -> None:
    if not any(each["Alive"] and each["NodeManagerAddress"] == address for each in ray.nodes()):
        raise Unreachable(f"Node {address} is not in the Ray cluster.")


def _pin_to(address: str) -> dict[str, float]:
    """Return a resource that only this node has.

    Until Ray notices that a node had left and came back, it lists the node twice; the address selects the live one.
    """
    return {f"node:{address}": _PIN_AMOUNT}


def _resources_of(placement: InstancePlacement) -> dict[str, float]:
    """Return the resources of an instance. Ray counts ten-thousandths of a core."""
    limits = placement.limits
    needs: dict[str, float] = {}
    if limits.cpus:
        needs["CPU"] = math.floor(limits.cpus * 10_000) / 10_000
    if limits.memory_bytes:
        needs["memory"] = limits.memory_bytes
    if limits.gpus:
        needs["GPU"] = len(limits.gpus)
    return needs


def _put_code(bundle: CodeBundle) -> SentCode:
    """Put the code into the object store. References are in lists, or Ray would copy the data wherever they go."""
    return SentCode(
        digest=bundle.digest,
        python=bundle.python,
        platform=bundle.platform,
        code=[ray.put(bundle.code())],
        libraries={name: [ray.put(data)] for name, data in bundle.libraries().items()},
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
        # Actors that were created again are not in the group.
        if name.startswith(f"{attempt}/"):
            with suppress(ValueError):
                ray.kill(ray.get_actor(name))
