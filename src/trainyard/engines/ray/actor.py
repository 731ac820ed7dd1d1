"""The actor that runs the instances on a node.

Nodes have Ray and no code of ours. So this module is sent by value, together with `node_code`, and at its top it
imports only that, the standard library and Ray.

After an upgrade, a new proxy talks to actors of the release before. So the methods `open`, `has` and `call`, their
arguments, and the fields of the tuples below are part of the protocol.
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

from trainyard.engines.ray.node_code import NodeRefused, SentCode, own_folder, use_code

# An instance whose lease has expired, or an actor, is of no more use after this time without a call.
UNUSED_S = 900.0
CHECK_INTERVAL_S = 60.0
# How long another runner of the same attempt may take to answer.
SIBLING_TIMEOUT_S = 60.0


class CallResult(NamedTuple):
    """The result of a call: its value, or the error that it raised, encoded."""

    value: Any
    error: Mapping[str, Any] | None = None


class NodeLocation(NamedTuple):
    """A node, and the folder on it for everything of ours; if empty, one below the temporary folder."""

    folder: str
    address: str
    yard: str


class ManagedInstance(NamedTuple):
    """An instance that an actor runs."""

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


class NodeHandshake(NamedTuple):
    """What a node answers: why it cannot run instances, as a sentence, and why it cannot isolate one, as a clause."""

    refusal: str = ""
    isolation: str = ""


FAILURES = (NodeRefused, OSError, ImportError, ray.exceptions.RayError)


class RunnerActor:
    """Has the runners of a node's instances, once their code is there, and passes calls to them.

    It exists before any instance, because starting a process of Ray takes longer than everything else. Only an instance
    with GPUs has an actor of its own, because Ray assigns GPUs to actors.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runners: dict[str, _OpenRunner] = {}
        self._engine: Any = None
        self._called_at = time.monotonic()
        threading.Thread(target=self._exit_when_unused, daemon=True).start()

    def handshake(self, sent: SentCode, location: NodeLocation) -> NodeHandshake:
        """Fetch the code to the node, so that the first instance finds it there, and probe what the node can do."""
        self._called_at = time.monotonic()
        with self._lock:
            refusal = _fetch_code(sent, location)
        if refusal:
            return NodeHandshake(refusal)
        from trainyard.engines.probe import probe_isolation

        probed = probe_isolation(1)
        why = "" if probed.ok else f"node {location.address} does not allow it ({probed.detail})"
        return NodeHandshake(isolation=why)

    def open(self, sent: SentCode, location: NodeLocation, managed: ManagedInstance) -> str:
        """Create the runner if there is none yet. Return why that is impossible, as a sentence, or ""."""
        with self._lock:
            if managed.name in self._runners:
                return ""
            refusal = _fetch_code(sent, location)
            if not refusal:
                gpus = tuple(map(int, ray.get_gpu_ids()))
                self._engine = self._engine or _make_engine(location)
                runner = _make_runner(location, managed, gpus, engine=self._engine, digest=sent.digest)
                has_its_gpus = bool(gpus) or not managed.has_gpus
                self._runners[managed.name] = _OpenRunner(runner, managed, has_its_gpus=has_its_gpus)
        return refusal

    def has(self, name: str) -> bool:
        """Whether the runner of an instance is open here."""
        return name in self._runners

    def call(self, name: str, method: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> CallResult:
        from trainyard.engines.cluster.proxy_rpc import encode_error
        from trainyard.foundation.errors import TrainyardError, Unavailable

        self._called_at = time.monotonic()
        _restore_priority()
        try:
            opened = self._runners.get(name)
            if opened is None:
                raise Unavailable(f"The runner of {name} is not open.")
            # Without them, this actor was created again outside of a placement group that was lost.
            if method == "start" and not opened.has_its_gpus:
                raise Unavailable("Ray has not assigned the GPUs of the instance.")
            result = CallResult(opened.call(method, arguments, options))
            if method == "forget":
                self._forget([name])
            return result
        except TrainyardError as error:
            # Ray would not preserve the error itself.
            return CallResult(None, encode_error(error))

    def _exit_when_unused(self) -> None:
        """Release the placement groups of instances whose leases have expired and whose yard is gone for good."""
        while self._runners or time.monotonic() - self._called_at < UNUSED_S:
            time.sleep(CHECK_INTERVAL_S)
            unused = [opened.managed for opened in tuple(self._runners.values()) if opened.is_unused]
            for group in {managed.room for managed in unused}:
                # Another actor of the attempt may have been first.
                with contextlib.suppress(ValueError):
                    ray.util.remove_placement_group(ray.util.get_placement_group(group))
            self._forget([managed.name for managed in unused])
        os._exit(0)

    def _forget(self, names: Sequence[str]) -> None:
        with self._lock:
            for name in names:
                self._runners.pop(name, None)


class _OpenRunner:
    """A runner, and when it was called last."""

    def __init__(self, runner: Any, managed: ManagedInstance, *, has_its_gpus: bool) -> None:
        self.managed = managed
        self.has_its_gpus = has_its_gpus
        self._runner = runner
        self._called_at = time.monotonic()

    def call(self, method: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        self._called_at = time.monotonic()
        return getattr(self._runner, method)(*arguments, **options)

    @property
    def is_unused(self) -> bool:
        if time.monotonic() - self._called_at < UNUSED_S:
            return False
        return not self._runner.pull({}, (), wait_s=0).is_alive


class SiblingRunner:
    """The runner of another instance, as a runner reaches it: in its own actor if it has one, else in its node's."""

    def __init__(self, name: str, node: str) -> None:
        self._name = name
        self._node = node

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            from trainyard.engines.cluster.contract import Unreachable

            try:
                calling = self._actor().call.remote(self._name, method, arguments, options)
                return unwrap_result(ray.get(calling, timeout=SIBLING_TIMEOUT_S))
            except (ValueError, ray.exceptions.RayError) as error:
                raise Unreachable(f"The runner of {self._name} does not answer: {error}") from error

        return call

    def _actor(self) -> Any:
        try:
            return ray.get_actor(self._name)
        except ValueError:
            return ray.get_actor(self._node)


def node_actor_name(address: str, digest: str) -> str:
    """Return the name of a node's actor with that code. Names belong to the namespace of one yard."""
    return f"node {address} {digest}"


def unwrap_result(result: CallResult) -> Any:
    """Return what a runner returned, or raise the error that it raised."""
    from trainyard.engines.cluster.proxy_rpc import decode_error

    if result.error is not None:
        raise decode_error(result.error)
    return result.value


def _fetch_code(sent: SentCode, location: NodeLocation) -> str:
    """Make the code importable. Return why that is impossible, as a sentence, or ""."""
    try:
        use_code(_folder(location) / "code", sent, fetch=_fetch)
    except FAILURES as error:
        return f"Node {location.address} cannot run instances: {error}"
    return ""


def _restore_priority() -> None:
    """Give this thread the priority that Ray itself has on this node.

    Ray lowers the CPU priority of its workers and lets the kernel kill them first when memory is short. Agents, which
    this thread starts, would inherit that.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(Path(f"/proc/{os.getppid()}/oom_score_adj").read_text())
    # Only root may do this.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getppid()))


def _make_engine(location: NodeLocation) -> Any:
    from trainyard.engines.cluster.node_runner import node_engine

    return node_engine(_yard_folder(location))


def _make_runner(
    location: NodeLocation, managed: ManagedInstance, gpus: tuple[int, ...], *, engine: Any, digest: str
) -> Any:
    from trainyard.engines.cluster.node_runner import NodeRunner
    from trainyard.engines.contract import AttemptRef, InstanceRef

    return NodeRunner(
        _yard_folder(location),
        InstanceRef(AttemptRef(managed.job_id, managed.attempt), managed.instance),
        siblings=lambda name, address: SiblingRunner(
            managed._replace(instance=name).name, node_actor_name(address, digest)
        ),
        engine=engine,
        gpus=gpus if managed.has_gpus else None,
    )


def _yard_folder(location: NodeLocation) -> Path:
    """The folder of one yard on this node."""
    return _folder(location) / location.yard


def _folder(location: NodeLocation) -> Path:
    """The folder for everything of ours on this node. Several nodes may share a file system."""
    default = Path(tempfile.gettempdir(), f"trainyard-{os.getuid()}")
    return own_folder(Path(location.folder or default)) / location.address


def _fetch(reference: Sequence[Any]) -> bytes:
    (data,) = ray.get(list(reference))
    return bytes(data)
