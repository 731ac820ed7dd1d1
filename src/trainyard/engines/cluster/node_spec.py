"""Adapts the spec of an instance to the node that runs it.

Paths and users of the yard's machine mean nothing on a node. The node decides where caches are, what no job may see,
and which Python runs a program. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainyard.foundation.hidden_paths import outermost
from trainyard.link.contract import ChannelSpec, InstanceSpec, ObjectsSpec, ProgramSpec, WarmSpec


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """The layout of a yard's folder on a node. Creating one touches nothing."""

    root: Path

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def agents(self) -> Path:
        """Copies of the agents' code."""
        return self.root / "agents"

    @property
    def environments(self) -> Path:
        return self.root / "environments"

    @property
    def warm(self) -> Path:
        return self.root / "warm"

    @property
    def cache(self) -> Path:
        """Data from a remote S3, cached for later jobs."""
        return self.root / "cache"

    @property
    def staging(self) -> Path:
        """Object bodies that are collected before they are uploaded."""
        return self.root / "staging"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node is like. `gpus` are those that it has given to the instance; None if the yard chose them."""

    folder: NodeFolder
    python: str
    is_root: bool
    hidden: Sequence[Path]
    exists: Callable[[str], bool]
    gpus: tuple[int, ...] | None = None


def spec_for_node(spec: InstanceSpec, here: NodeFacts) -> InstanceSpec:
    """Return the spec that the agent on the node gets."""
    missing = _missing_interpreter(spec.program, here)
    return replace(
        spec,
        program=replace(spec.program, interpreter=here.python) if missing else spec.program,
        notes=(*spec.notes, missing) if missing else spec.notes,
        channels=[_channel(channel, here) for channel in spec.channels],
        objects=_objects(spec.objects, here),
        limits=spec.limits if here.gpus is None else replace(spec.limits, gpus=here.gpus),
        uid=spec.uid if here.is_root else None,
        hidden=_hidden(spec.hidden, here),
        environments=str(here.folder.environments / spec.account) if spec.environments else "",
        warm=WarmSpec(str(here.folder.warm / spec.account), spec.warm.keep_s) if spec.warm else None,
        doorbell="",
    )


def _missing_interpreter(program: ProgramSpec, here: NodeFacts) -> str:
    """A note for the user if the node does not have the Python that the image is mapped to."""
    if not program.interpreter or here.exists(program.interpreter):
        return ""
    return (
        f"This node has no {program.interpreter}, so the program runs with {here.python}. The Python that an image is "
        "mapped to has to be at the same path on every node."
    )


def _channel(channel: ChannelSpec, here: NodeFacts) -> ChannelSpec:
    return replace(channel, cache=str(here.folder.cache)) if channel.cache else channel


def _objects(objects: ObjectsSpec, here: NodeFacts) -> ObjectsSpec:
    """With a remote S3, the folder only collects bodies. Otherwise all nodes share it, or it is of no use."""
    return replace(objects, folder=str(here.folder.staging)) if objects.url else objects


def _hidden(hidden: Sequence[str], here: NodeFacts) -> tuple[str, ...]:
    """Add what the yard hides, in case the node shares its file system."""
    shared = [Path(place) for place in hidden if here.exists(place)]
    return tuple(map(str, outermost((*here.hidden, *shared))))
