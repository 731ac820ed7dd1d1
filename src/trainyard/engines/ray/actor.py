"""The actor that looks after one instance on its node, and the task that greets a node.

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

FORGOTTEN_S = 900.0  # without a call, after which an actor looks whether it is still of use,
LOOK_S = 60.0  # and how often
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
    """The instance that an actor looks after."""

    job_id: str
    attempt: int
    instance: str
    has_gpus: bool


class Greeting(NamedTuple):
    """What a node says of itself: why it runs no instances, as a sentence, and why none is isolated, as a clause."""

    refusal: str = ""
    isolation: str = ""


FAILURES = (Refused, OSError, ImportError, ray.exceptions.RayError)


class InstanceActor:
    """Makes a keeper once its code is there, and hands calls to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keeper: Any = None
        self._has_its_gpus = True
        self._group: Any = None
        self._called_at = time.monotonic()

    def open(self, sent: Sent, place: Place, charge: Charge) -> str:
        """Make the keeper if there is none yet; why that cannot be done, as a sentence, or empty."""
        with self._lock:
            if self._keeper is None:
                try:
                    use_code(_folder(place) / "code", sent, fetch=_fetch)
                except FAILURES as error:
                    return _refusal(place, error)
                gpus = tuple(map(int, ray.get_gpu_ids()))
                self._has_its_gpus = bool(gpus) or not charge.has_gpus
                self._group = ray.util.get_current_placement_group()
                self._keeper = _keeper(place, charge, gpus)
                threading.Thread(target=self._leave_in_the_end, daemon=True).start()
        return ""

    def call(self, method: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Answer:
        from trainyard.engines.cluster.calls import told
        from trainyard.foundation.errors import TrainyardError, Unavailable

        self._called_at = time.monotonic()
        _be_as_ray_is()
        try:
            if method == "start" and not self._has_its_gpus:  # it was made anew, beside room that was lost
                raise Unavailable("Ray has not given its GPUs to the instance.")
            return Answer(getattr(self._keeper, method)(*arguments, **options))
        except TrainyardError as error:  # whose own shape does not survive being sent
            return Answer(None, told(error))

    def _leave_in_the_end(self) -> None:
        """Give back the room of an instance whose lease has ended, and whose yard is gone for good."""
        while time.monotonic() - self._called_at < FORGOTTEN_S or self._keeper.pull({}, (), wait_s=0).is_alive:
            time.sleep(LOOK_S)
        if self._group is not None:
            ray.util.remove_placement_group(self._group)
        os._exit(0)


class Sibling:
    """Another instance's keeper, as a keeper reaches it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            from trainyard.engines.cluster.contract import Unreachable

            try:
                actor = ray.get_actor(self._name)
                return answered(ray.get(actor.call.remote(method, arguments, options), timeout=SIBLING_S))
            except (ValueError, ray.exceptions.RayError) as error:
                raise Unreachable(f"The keeper {self._name} does not answer: {error}") from error

        return call


def actor_name(job_id: str, attempt: int, instance: str) -> str:
    """How Ray knows the actor of an instance; names are those of one yard."""
    return f"{job_id}/{attempt}/{instance}"


def answered(answer: Answer) -> Any:
    """What a keeper returned, or the error that it raised."""
    from trainyard.engines.cluster.calls import raised

    if answer.error is not None:
        raise raised(answer.error)
    return answer.value


def greet(sent: Sent, place: Place) -> Greeting:
    """Bring the code to a node, so that the first instance finds it there, and see what the node can do."""
    try:
        use_code(_folder(place) / "code", sent, fetch=_fetch)
    except FAILURES as error:
        return Greeting(_refusal(place, error))
    from trainyard.engines.probe import ask_isolation

    asked = ask_isolation(1)
    return Greeting(isolation="" if asked.ok else f"node {place.address} does not allow it ({asked.detail})")


def _refusal(place: Place, error: Exception) -> str:
    return f"Node {place.address} cannot run instances: {error}"


def _be_as_ray_is() -> None:
    """Have the priority that Ray has itself on this node.

    It has its workers give way to all others and be the first to go when memory is short, and agents, which this thread
    starts, would be born with that.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(Path(f"/proc/{os.getppid()}/oom_score_adj").read_text())
    with contextlib.suppress(OSError):  # only root may
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getppid()))


def _keeper(place: Place, charge: Charge, gpus: tuple[int, ...]) -> Any:
    from trainyard.engines.cluster.keeper import NodeKeeper
    from trainyard.engines.contract import AttemptRef, InstanceRef

    return NodeKeeper(
        _folder(place) / place.yard,
        InstanceRef(AttemptRef(charge.job_id, charge.attempt), charge.instance),
        siblings=lambda name: Sibling(actor_name(charge.job_id, charge.attempt, name)),
        gpus=gpus if charge.has_gpus else None,
    )


def _folder(place: Place) -> Path:
    """What there is of ours on this node, of which several may share a file system."""
    return own_folder(Path(place.folder or Path(tempfile.gettempdir(), f"trainyard-{os.getuid()}"))) / place.address


def _fetch(reference: Sequence[Any]) -> bytes:
    (data,) = ray.get(list(reference))
    return bytes(data)
