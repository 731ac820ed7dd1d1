"""The actor that looks after the instances on a node.

Nodes have Ray and nothing of ours. So this module is sent by value, with `unpacking`, and what it imports at its head
is those, the standard library and Ray alone.
"""

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ray

from trainyard.engines.ray.unpacking import Refused, Sent, own_folder, use_code

FORGOTTEN_S = 900.0  # without a call, after which an instance whose lease has ended, or an actor, is of no use
LOOK_S = 60.0
SIBLING_S = 60.0  # how long another keeper of the same attempt may take to answer


class Answer(NamedTuple):
    """What came of a call: its value, or the error that was raised, as it is sent."""

    value: Any
    error: Mapping[str, Any] | None = None


class Place(NamedTuple):
    """A node. `folder` is there for everything of ours, and where it is empty it is below the temporary folder."""

    folder: str
    address: str
    yard: str


class Charge(NamedTuple):
    """An instance that an actor looks after."""

    job_id: str
    attempt: int
    instance: str
    has_gpus: bool

    @property
    def room(self) -> str:
        """The name of its attempt's placement group."""
        return f"{self.job_id}/{self.attempt}"

    @property
    def name(self) -> str:
        return f"{self.room}/{self.instance}"


class Greeting(NamedTuple):
    """What a node says of itself: why it runs no instances, as a sentence, and why none is isolated, as a clause."""

    refusal: str = ""
    isolation: str = ""


FAILURES = (Refused, OSError, ImportError, ray.exceptions.RayError)


class KeeperActor:
    """Has the keepers of a node's instances once their code is there, and hands calls to them.

    It is there before any instance, for a process of Ray takes longer to start than all else. Only an instance with
    GPUs has an actor for itself, since it is to actors that Ray gives them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._engine: Any = None
        self._called_at = time.monotonic()
        threading.Thread(target=self._leave_in_the_end, daemon=True).start()

    def greet(self, sent: Sent, place: Place) -> Greeting:
        """Bring the code to the node, so that the first instance finds it there, and see what the node can do."""
        self._called_at = time.monotonic()
        with self._lock:
            refusal = _bring_code(sent, place)
        if refusal:
            return Greeting(refusal)
        from trainyard.engines.probe import ask_isolation

        asked = ask_isolation(1)
        return Greeting(isolation="" if asked.ok else f"node {place.address} does not allow it ({asked.detail})")

    def open(self, sent: Sent, place: Place, charge: Charge) -> str:
        """Make the keeper if there is none yet; why that cannot be done, as a sentence, or empty."""
        with self._lock:
            if charge.name in self._kept:
                return ""
            refusal = _bring_code(sent, place)
            if not refusal:
                gpus = tuple(map(int, ray.get_gpu_ids()))
                self._engine = self._engine or _engine(place)
                keeper = _keeper(place, charge, gpus, engine=self._engine, digest=sent.digest)
                self._kept[charge.name] = _Kept(keeper, charge, has_its_gpus=bool(gpus) or not charge.has_gpus)
        return refusal

    def has(self, name: str) -> bool:
        """Whether the keeper of an instance is open here."""
        return name in self._kept

    def call(self, name: str, method: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Answer:
        from trainyard.engines.cluster.calls import told
        from trainyard.foundation.errors import TrainyardError, Unavailable

        self._called_at = time.monotonic()
        _be_as_ray_is()
        try:
            kept = self._kept.get(name)
            if kept is None:
                raise Unavailable(f"The keeper of {name} is not open.")
            if method == "start" and not kept.has_its_gpus:  # it was made anew, beside room that was lost
                raise Unavailable("Ray has not given its GPUs to the instance.")
            answer = Answer(kept.call(method, arguments, options))
            if method == "forget":
                self._drop([name])
            return answer
        except TrainyardError as error:  # whose own shape does not survive being sent
            return Answer(None, told(error))

    def _leave_in_the_end(self) -> None:
        """Give back the room of instances whose leases have ended, and whose yard is gone for good."""
        while self._kept or time.monotonic() - self._called_at < FORGOTTEN_S:
            time.sleep(LOOK_S)
            forgotten = [kept.charge for kept in tuple(self._kept.values()) if kept.is_forgotten]
            for room in {charge.room for charge in forgotten}:
                with contextlib.suppress(ValueError):  # another actor of the attempt was first
                    ray.util.remove_placement_group(ray.util.get_placement_group(room))
            self._drop([charge.name for charge in forgotten])
        os._exit(0)

    def _drop(self, names: Sequence[str]) -> None:
        with self._lock:
            for name in names:
                self._kept.pop(name, None)


class _Kept:
    """A keeper, and when it was called last."""

    def __init__(self, keeper: Any, charge: Charge, *, has_its_gpus: bool) -> None:
        self.charge = charge
        self.has_its_gpus = has_its_gpus
        self._keeper = keeper
        self._called_at = time.monotonic()

    def call(self, method: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        self._called_at = time.monotonic()
        return getattr(self._keeper, method)(*arguments, **options)

    @property
    def is_forgotten(self) -> bool:
        if time.monotonic() - self._called_at < FORGOTTEN_S:
            return False
        return not self._keeper.pull({}, (), wait_s=0).is_alive


class Sibling:
    """Another instance's keeper, as a keeper reaches it: by its own actor if it has one, else by that of its node."""

    def __init__(self, name: str, node: str) -> None:
        self._name = name
        self._node = node

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            from trainyard.engines.cluster.contract import Unreachable

            try:
                calling = self._actor().call.remote(self._name, method, arguments, options)
                return answered(ray.get(calling, timeout=SIBLING_S))
            except (ValueError, ray.exceptions.RayError) as error:
                raise Unreachable(f"The keeper {self._name} does not answer: {error}") from error

        return call

    def _actor(self) -> Any:
        try:
            return ray.get_actor(self._name)
        except ValueError:
            return ray.get_actor(self._node)


def node_actor(address: str, digest: str) -> str:
    """How Ray knows the actor of a node that has some code; names are those of one yard."""
    return f"node {address} {digest}"


def answered(answer: Answer) -> Any:
    """What a keeper returned, or the error that it raised."""
    from trainyard.engines.cluster.calls import raised

    if answer.error is not None:
        raise raised(answer.error)
    return answer.value


def _bring_code(sent: Sent, place: Place) -> str:
    """Why the code cannot be had, as a sentence, or empty."""
    try:
        use_code(_folder(place) / "code", sent, fetch=_fetch)
    except FAILURES as error:
        return f"Node {place.address} cannot run instances: {error}"
    return ""


def _be_as_ray_is() -> None:
    """Have the priority that Ray has itself on this node.

    It has its workers give way to all others and be the first to go when memory is short, and agents, which this thread
    starts, would be born with that.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(Path(f"/proc/{os.getppid()}/oom_score_adj").read_text())
    with contextlib.suppress(OSError):  # only root may
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getppid()))


def _engine(place: Place) -> Any:
    from trainyard.engines.cluster.keeper import node_engine

    return node_engine(_node(place))


def _keeper(place: Place, charge: Charge, gpus: tuple[int, ...], *, engine: Any, digest: str) -> Any:
    from trainyard.engines.cluster.keeper import NodeKeeper
    from trainyard.engines.contract import AttemptRef, InstanceRef

    return NodeKeeper(
        _node(place),
        InstanceRef(AttemptRef(charge.job_id, charge.attempt), charge.instance),
        siblings=lambda name, address: Sibling(charge._replace(instance=name).name, node_actor(address, digest)),
        engine=engine,
        gpus=gpus if charge.has_gpus else None,
    )


def _node(place: Place) -> Path:
    """What there is of a yard's on this node."""
    return _folder(place) / place.yard


def _folder(place: Place) -> Path:
    """What there is of ours on this node, of which several may share a file system."""
    return own_folder(Path(place.folder or Path(tempfile.gettempdir(), f"trainyard-{os.getuid()}"))) / place.address


def _fetch(reference: Sequence[Any]) -> bytes:
    (data,) = ray.get(list(reference))
    return bytes(data)
