"""What the yard tells of an instance, put into the words of the node that runs it.

Paths of the yard's machine mean nothing on a node, and neither do its users. What is kept between jobs there, what no
job may see, and which Python runs a program is for the node to say. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainyard.foundation.hiding import outermost
from trainyard.link.contract import ChannelSpec, InstanceSpec, ObjectsSpec, ProgramSpec, WarmSpec


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """The layout of what a yard keeps on a node. Making one of these touches nothing."""

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
        """What was read of a remote S3 and is kept for later jobs."""
        return self.root / "cache"

    @property
    def staging(self) -> Path:
        """Bodies that are collected before they are sent."""
        return self.root / "staging"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node is like. `gpus` are those that it has given to the instance, None those that the yard chose."""

    folder: NodeFolder
    python: str
    is_root: bool
    hidden: Sequence[Path]
    exists: Callable[[str], bool]
    gpus: tuple[int, ...] | None = None


def localise(spec: InstanceSpec, here: Surroundings) -> InstanceSpec:
    """The spec as the agent on the node gets it."""
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


def _missing_interpreter(program: ProgramSpec, here: Surroundings) -> str:
    """What to tell where the node lacks the Python that the image is mapped to."""
    if not program.interpreter or here.exists(program.interpreter):
        return ""
    return (
        f"There is no {program.interpreter} on this node, so the program runs with {here.python}. The Python that an "
        "image is mapped to has to be at the same path on every node."
    )


def _channel(channel: ChannelSpec, here: Surroundings) -> ChannelSpec:
    return replace(channel, cache=str(here.folder.cache)) if channel.cache else channel


def _objects(objects: ObjectsSpec, here: Surroundings) -> ObjectsSpec:
    """Of an S3 the folder is only where bodies are collected; otherwise it is shared by all nodes, or of no use."""
    return replace(objects, folder=str(here.folder.staging)) if objects.url else objects


def _hidden(hidden: Sequence[str], here: Surroundings) -> tuple[str, ...]:
    """Also what the yard hides, in case a node shares it."""
    shared = [Path(place) for place in hidden if here.exists(place)]
    return tuple(map(str, outermost((*here.hidden, *shared))))
