"""A request to run a container, and the command line of podman or docker that runs it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.sandbox.contract import SandboxNetwork
from trainyard.link.containers import container_labels
from trainyard.link.contract import LimitSpec

# Both tools read the lines of an environment file into buffers of 64 KiB.
_MAX_LINE_BYTES = 60_000
_LINE_BREAKS = ("\n", "\r")
# Docker grants these by default, podman does not: to sniff the network, which is the machine's, and to make device
# nodes in folders of the host.
_DROPPED_CAPABILITIES = ("NET_RAW", "MKNOD")
# Without a memory limit, /dev/shm may take this fraction of the machine's memory: one half.
_SHM_DIVISOR = 2


@dataclass(frozen=True, slots=True)
class ContainerMount:
    """A folder of the host, and where the program sees it. Copy-on-write keeps the program's changes off the host."""

    source: Path
    target: str
    is_read_only: bool = False
    is_copy_on_write: bool = False


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One program in its image. `folder` is that of its instance, and labels the container so that it can be found.

    An empty `entrypoint` or `working_folder` means that of the image. `options` come after all others, so they win.
    """

    # Unique among the containers of this machine.
    name: str
    folder: Path
    scratch_folder: Path
    tool: str
    is_podman: bool
    image: str
    entrypoint: Sequence[str] = ()
    arguments: Sequence[str] = ()
    working_folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[ContainerMount] = ()
    hostname: str = "algo-1"
    # Names and addresses.
    hosts: Sequence[tuple[str, str]] = ()
    # None is the host's network.
    network: SandboxNetwork | None = None
    limits: LimitSpec = field(default_factory=LimitSpec)
    # The limits that the tool can enforce on this machine.
    enforced: Sequence[str] = ("cpu", "memory", "pids")
    options: Sequence[str] = ()

    @property
    def id_file(self) -> Path:
        """Where the tool writes the id of the container as soon as there is one."""
        return self.scratch_folder / f"{self.name}.id"

    @property
    def variables_file(self) -> Path:
        """The environment file of the tool: on its command line, every user of the machine could read the variables."""
        return self.scratch_folder / f"{self.name}.env"

    @property
    def not_enforced(self) -> Sequence[str]:
        """The limits that are not enforced, one sentence each."""
        sentences = {
            "cpu": (self.limits.cpus, "The limit of {:g} CPUs"),
            "memory": (self.limits.memory_bytes, "The limit of {} bytes of memory"),
            "pids": (self.limits.processes, "The limit of {} processes"),
        }
        return [
            f"{subject.format(limit)} is not enforced: {self.tool} cannot do that on this machine."
            for name, (limit, subject) in sentences.items()
            if limit is not None and name not in self.enforced
        ]


def write_variables(request: ContainerRequest) -> None:
    """Write the variables to a file that only the tool can read."""
    lines = [f"{name}={value}\n" for name, value in request.environment.items() if _fits(name, value)]
    descriptor = os.open(request.variables_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.writelines(lines)


def run_command(request: ContainerRequest) -> list[str]:
    """Return the command that runs the container in the foreground and keeps it after it has ended."""
    program = [*request.entrypoint[1:], *request.arguments]
    return [request.tool, "run", *_options(request), *request.options, request.image, *program]


def _options(request: ContainerRequest) -> Iterator[str]:
    yield from ("--name", request.name, "--cidfile", str(request.id_file), "--pull", "never")
    for label in container_labels(request.folder):
        yield from ("--label", label)
    # podman can pass its own output to the program, so that stdout and stderr stay in order; docker reads them apart.
    yield from ("--log-driver", "passthrough" if request.is_podman else "none")
    yield from ("--user", "0:0", "--hostname", request.hostname)
    for capability in _DROPPED_CAPABILITIES:
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
    """Return whether an environment file, which has no quoting, can hold this variable."""
    is_plain = not any(each in value for each in _LINE_BREAKS) and len(name) + len(value.encode()) < _MAX_LINE_BYTES
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
        # The second limit includes swap; equal limits mean no swap.
        yield from ("--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes))
    if limits.cpus is not None and "cpu" in enforced:
        yield from ("--cpus", f"{limits.cpus:g}")
    if limits.processes is not None and "pids" in enforced:
        yield from ("--pids-limit", str(limits.processes))
    # Data loaders pass batches through /dev/shm; its contents count as memory of the container.
    yield from ("--shm-size", str(limits.memory_bytes or _memory_bytes() // _SHM_DIVISOR))


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _volume(mount: ContainerMount) -> str:
    """Return the `--volume` argument of a mount. A colon in a path that a job chose would inject options.

    One such option is podman's `upperdir`, which can show and change any folder of the machine.
    """
    words = [str(mount.source), mount.target]
    for path in words:
        if ":" in path:
            raise InvalidRequest(
                f'podman and docker cannot mount a path with a colon: "{path}". Use one without, such as '
                "/opt/ml/checkpoints."
            )
    if mount.is_copy_on_write:
        words.append("O")
    elif mount.is_read_only:
        words.append("ro")
    return ":".join(words)
