"""A container to run: what is asked for, and the words by which podman and docker are asked for it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.sandbox.contract import Network
from trainyard.link.containers import labels
from trainyard.link.contract import LimitSpec

_LONGEST_LINE = 60_000  # of a file of variables, which both tools read by lines of at most 64 KiB
_UNREADABLE = ("\n", "\r")
# What docker gives to every container, and podman to none: to hear all packets of the network, which is the machine's,
# and to make device nodes in folders of the host.
_DROPPED = ("NET_RAW", "MKNOD")
_SHARE_OF_MEMORY = 2  # the part of the machine's memory that /dev/shm may take where no limit is set


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host, and where the program sees it. One that is `layered` it may change, and changes nothing."""

    source: Path
    target: str
    is_read_only: bool = False
    is_layered: bool = False


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One program in its image. `folder` is that of its instance, by which its container is found again.

    The image's own entry point is run where `entrypoint` is empty, in the image's own folder without `working_folder`.
    """

    name: str  # unique among the containers of this machine
    folder: Path
    scratch_folder: Path
    tool: str
    is_podman: bool
    image: str
    entrypoint: Sequence[str] = ()
    arguments: Sequence[str] = ()
    working_folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    hostname: str = "algo-1"
    hosts: Sequence[tuple[str, str]] = ()  # names and addresses
    network: Network | None = None  # None is the host's
    limits: LimitSpec = field(default_factory=LimitSpec)
    enforced: Sequence[str] = ("cpu", "memory", "pids")  # the limits that the tool enforces here
    options: Sequence[str] = ()  # for `run`, after all others, so that they win

    @property
    def id_file(self) -> Path:
        """Where the tool writes the id of the container as soon as it has one."""
        return self.scratch_folder / f"{self.name}.id"

    @property
    def variables_file(self) -> Path:
        """Where the tool finds the variables: on its command line every user of the machine could read them."""
        return self.scratch_folder / f"{self.name}.env"

    @property
    def not_enforced(self) -> Sequence[str]:
        """What of the limits is not enforced, in sentences."""
        told = {
            "cpu": (self.limits.cpus, "The share of {:g} CPUs"),
            "memory": (self.limits.memory_bytes, "The limit of {} bytes of memory"),
            "pids": (self.limits.processes, "The limit of {} processes"),
        }
        return [
            f"{words.format(limit)} is not enforced: {self.tool} cannot do that here."
            for name, (limit, words) in told.items()
            if limit is not None and name not in self.enforced
        ]


def write_variables(request: ContainerRequest) -> None:
    """Leave the variables where only the tool can read them."""
    lines = [f"{name}={value}\n" for name, value in request.environment.items() if _fits(name, value)]
    descriptor = os.open(request.variables_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(lines)


def run_words(request: ContainerRequest) -> list[str]:
    """The command that runs the container in the foreground and leaves it there when it has ended."""
    program = [*request.entrypoint[1:], *request.arguments]
    return [request.tool, "run", *_options(request), *request.options, request.image, *program]


def _options(request: ContainerRequest) -> Iterator[str]:
    yield from ("--name", request.name, "--cidfile", str(request.id_file), "--pull", "never")
    for label in labels(request.folder):
        yield from ("--label", label)
    # podman can hand its own output on to the program, so that its two streams stay in order; docker reads them apart.
    yield from ("--log-driver", "passthrough" if request.is_podman else "none")
    yield from ("--user", "0:0", "--hostname", request.hostname)
    for capability in _DROPPED:
        yield from ("--cap-drop", capability)
    yield from ("--env-file", str(request.variables_file))
    for name, value in request.environment.items():
        if not _fits(name, value):
            yield from ("--env", f"{name}={value}")
    if request.entrypoint:
        yield from ("--entrypoint", request.entrypoint[0])
    if request.working_folder:
        yield from ("--workdir", request.working_folder)
    yield from _network(request)
    yield from _limits(request)
    for mount in request.mounts:
        yield from ("--volume", _volume(mount))


def _fits(name: str, value: str) -> bool:
    """Whether a file of variables can hold this one, for it has no way to quote anything."""
    is_plain = not any(each in value for each in _UNREADABLE) and len(name) + len(value.encode()) < _LONGEST_LINE
    return is_plain and not name.startswith("#") and name == name.strip() and "\ufeff" not in name


def _network(request: ContainerRequest) -> Iterator[str]:
    if request.network is None:
        yield from ("--network", "host")
    elif request.network.namespace is None:
        yield from ("--network", "none")
    else:
        yield from ("--network", f"ns:/proc/{os.getpid()}/fd/{request.network.namespace}")
    for name, address in request.hosts:
        yield from ("--add-host", f"{name}:{address}")


def _limits(request: ContainerRequest) -> Iterator[str]:
    limits, enforced = request.limits, request.enforced
    if limits.memory_bytes is not None and "memory" in enforced:
        # As much with swap as without, which is no swap.
        yield from ("--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes))
    if limits.cpus is not None and "cpu" in enforced:
        yield from ("--cpus", f"{limits.cpus:g}")
    if limits.processes is not None and "pids" in enforced:
        yield from ("--pids-limit", str(limits.processes))
    # Data loaders pass their batches through it; what it holds counts as memory of the container.
    yield from ("--shm-size", str(limits.memory_bytes or _memory_bytes() // _SHARE_OF_MEMORY))


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _volume(mount: Mount) -> str:
    """The words for one mount, which colons part: in a path that a job names, one would begin options of its choice.

    Such as the upper folder of layers, by which podman shows and changes any folder of the machine.
    """
    words = [str(mount.source), mount.target]
    for path in words:
        if ":" in path:
            raise InvalidRequest(
                f'"{path}" has a colon in it, and podman and docker cannot show a folder by such a path; use one '
                "without, such as /opt/ml/checkpoints."
            )
    if mount.is_layered:
        words.append("O")
    elif mount.is_read_only:
        words.append("ro")
    return ":".join(words)
