"""What a sandbox guarantees.

`launcher.launch(request, output_fd)` starts one program and returns as soon as it runs. The program and everything it
starts form one tree that ends as a whole: when the program ends, when it is killed, or when the launching process dies.

With `Isolation.NAMESPACES` the program sees a read-only system, the environment of its interpreter and the folders it
was given. It sees nothing else: no home folder, no other job, no process or socket file of the host. It has no
capabilities, cannot gain any, and is never root. `working_folder`, `argv` and the targets of binds are paths inside the
sandbox. With a `SandboxNetwork` it reaches only the members of that network: no other address, name server or abstract
socket.

With `Isolation.PROCESS_GROUP`, for machines without namespaces, it is a plain process: all paths are host paths,
`/opt/ml` does not exist, and `Sandboxed.not_enforced` lists what is lost. There is no silent fallback: a launch with
namespaces raises `Unavailable` if the machine refuses them, and the caller makes a second request with host paths. In
the same way, `CopyOnWriteUnavailable` calls for a second request without `CopyOnWrite`. A program, folder or target
that cannot be used raises `InvalidRequest`.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from trainyard.foundation.errors import TrainyardError, Unavailable
from trainyard.link.contract import LimitSpec

ML = "/opt/ml"
# Where a program finds scripts and settings of its request.
COMMANDS, SETTINGS = "/run/trainyard/bin", "/run/trainyard/settings"


class SandboxLost(TrainyardError):
    """A sandbox is out of control: its supervisor is gone, or there is no proof that its processes have ended."""


class CopyOnWriteUnavailable(Unavailable):
    """This machine cannot show a folder copy-on-write."""


class Isolation(StrEnum):
    NAMESPACES = "namespaces"
    PROCESS_GROUP = "process group"


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or folder of the host, and where the program sees it: by default at the same path.

    `below` is an untrusted path under `source`. If set, that path is bound, and it never leads out of `source`.
    """

    source: Path
    target: str = ""
    below: str = ""


@dataclass(frozen=True, slots=True)
class CopyOnWrite:
    """A folder of the host that the program can seem to change, while the original stays as it is.

    Writes go to the folder `changes`, which must not be visible anywhere else. Nobody may change `source` meanwhile.
    If the launcher is root, the program sees the files of the owner of `source` as its own, whatever their modes say.
    An optional one needs a new folder for its changes. It is shown read-only if this machine cannot do better, and
    `Sandboxed.not_enforced` says so.
    """

    source: Path
    target: str
    changes: Path
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class SandboxNetwork:
    """A network in place of the host's: the one of the descriptor `namespace`, or a new one that reaches nobody.

    `owner` is a descriptor of the user namespace that owns the network, if that is not the launcher's own.
    """

    namespace: int | None = None
    owner: int | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The namespaces to enter, in this order."""
        return tuple(each for each in (self.owner, self.namespace) if each is not None)


@dataclass(frozen=True, slots=True)
class Forked:
    """A process that another process forked for us: its pid and its pidfd, which the caller closes."""

    pid: int
    pidfd: int


class Forker(Protocol):
    """A warm worker: an interpreter with a framework imported that forks supervisors for programs of the same user."""

    @property
    def pid(self) -> int:
        """The pid of the worker."""
        ...

    def fork(self, control: int, status: int, output: int, *namespaces: int) -> Forked:
        """Fork a supervisor with copies of these descriptors; OSError if the worker does not answer at once."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """One program and everything around it.

    The caller has made `ml_folder` and the sources of `writable` and, if it is root, has given them to `uid`. The
    launcher makes what it needs in `scratch_folder`. A caller that is root must name a `uid` other than 0.
    """

    # Unique among the running sandboxes of this machine; names the control groups.
    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    # Visible as /opt/ml.
    ml_folder: Path
    # Holds /tmp and /var/tmp.
    scratch_folder: Path
    working_folder: str = ML
    # Its prefix and base prefix are visible, read-only.
    interpreter: Path = Path(sys.executable)
    read_only: Sequence[Bind] = ()
    writable: Sequence[Bind] = ()
    # Requires namespaces.
    copy_on_write: Sequence[CopyOnWrite] = ()
    # Masked wherever they would be visible, except for the binds above and the interpreter.
    hidden: Sequence[Path] = ()
    # Texts that the program sees as files at these paths, in place of what the system has there. Scripts are
    # executable. Requires namespaces.
    files: Mapping[str, str] = field(default_factory=dict)
    hostname: str = "algo-1"
    # Lines of /etc/hosts that follow those for localhost.
    hosts: Sequence[str] = ()
    # Requires namespaces; None is the host's network.
    network: SandboxNetwork | None = None
    uid: int | None = None
    gid: int | None = None
    limits: LimitSpec = field(default_factory=LimitSpec)
    # A command prefix for `argv` that runs it as several ranks; see instance/launch.
    launcher: Sequence[str] = ()
    # With a forker, `argv` is a Python interpreter and its script. If the fork fails, the program starts cold.
    forker: Forker | None = None
    isolation: Isolation = Isolation.NAMESPACES


@dataclass(frozen=True, slots=True)
class ProgramExit:
    """How the program ended: with an exit code or by a signal. `is_oom` means that it hit the memory limit."""

    code: int | None
    signal: int | None
    is_oom: bool = False


class Sandboxed(Protocol):
    """A launched program. Safe to share between threads.

    `pid` and `pidfd` identify the root process of the tree on the host: pid 1 of the namespace, or the program itself
    if there is no namespace. Both stay valid until `close`.
    """

    @property
    def pid(self) -> int: ...

    @property
    def pidfd(self) -> int: ...

    @property
    def not_enforced(self) -> Sequence[str]:
        """What this machine could not enforce, one sentence each, for the description of the job."""
        ...

    @property
    def is_warm(self) -> bool:
        """Whether the program was forked from a warm worker."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to the program, as a container engine does; do nothing if it has ended."""
        ...

    def kill(self) -> None:
        """Kill the whole tree and return only when it is provably dead; `SandboxLost` if that cannot be proven."""
        ...

    def wait(self, timeout_s: float | None = None) -> ProgramExit | None:
        """Wait until the whole tree and its control groups are gone; return how the program ended, or None on timeout.

        The tree ends with the program: its background processes are killed. If the supervisor itself was killed, this
        kills what is left of the tree or raises `SandboxLost`.
        """
        ...

    def close(self) -> None:
        """Close the descriptors. This ends a tree that still runs, but without proof: call `kill` first."""
        ...
