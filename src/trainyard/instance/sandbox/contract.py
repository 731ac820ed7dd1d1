"""What a sandbox promises.

`launcher.launch(request, output_fd)` starts one program and returns as soon as it runs. The program and everything it
starts form one tree that ends as a whole: when the program ends, when it is killed, or when the launching process dies.

With `Isolation.NAMESPACES` the program sees a read-only system, the environment of its interpreter, the folders it was
given and nothing else: no home folder, no other job, no process and no socket file of the host. It has no capability,
can gain none, and is never root. `working_folder`, `argv` and the targets of binds are paths inside. With a `Network`
it reaches only who is in that: no other address, name server or abstract socket.

With `Isolation.PROCESS_GROUP`, for machines that allow no namespaces, it is a plain process: every path is the host's,
`/opt/ml` does not exist, and `Sandboxed.not_enforced` says what is lost. Nobody falls back to it silently: a launch
with namespaces raises `Unavailable` where the machine refuses them, and the caller makes a second request with host
paths. Likewise `CannotLayer` where it refuses a `CopyOnWrite`, for a request without. A program, folder or target that
cannot be used raises `InvalidRequest`.
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


class SandboxLost(TrainyardError):
    """A sandbox is out of control: its keeper is gone, or it is not proven that what it started has ended."""


class CannotLayer(Unavailable):
    """This machine cannot show a folder to be changed without being changed."""


class Isolation(StrEnum):
    NAMESPACES = "namespaces"
    PROCESS_GROUP = "process group"


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or folder of the host, and where the program sees it; by default at the same path.

    `below` is a path under `source` that somebody else chose: it is what is bound, and it never leads out of `source`.
    """

    source: Path
    target: str = ""
    below: str = ""


@dataclass(frozen=True, slots=True)
class CopyOnWrite:
    """A folder of the host that the program sees as its own to change, and that nothing it does can change.

    What it writes goes to the folder `changes`, which must not be on view elsewhere. Nobody changes `source` meanwhile.
    """

    source: Path
    target: str
    changes: Path


@dataclass(frozen=True, slots=True)
class Network:
    """A network in place of the host's: that of the descriptor `namespace`; without one a new one that reaches nobody.

    `owner` is a descriptor of the user namespace that owns it, where that is another than the launcher's.
    """

    namespace: int | None = None
    owner: int | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The namespaces to enter, in their order."""
        return tuple(each for each in (self.owner, self.namespace) if each is not None)


@dataclass(frozen=True, slots=True)
class Forked:
    """A process that another one forked for us: its pid, and a descriptor of it that is the caller's to close."""

    pid: int
    pidfd: int


class Forker(Protocol):
    """A warm worker: an interpreter with a framework imported, that forks keepers for programs of the same user."""

    @property
    def pid(self) -> int:
        """The worker's own."""
        ...

    def fork(self, control: int, status: int, output: int, *namespaces: int) -> Forked:
        """A keeper with copies of these descriptors; OSError when the worker does not answer at once."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """One program and its surroundings.

    The caller has made `ml_folder` and the sources of `writable`, and where it is root has given them to `uid`; the
    launcher makes what it needs in `scratch_folder`. Whoever launches as root names a `uid` other than 0.
    """

    name: str  # unique among the living on this machine; names the control groups
    argv: Sequence[str]
    environment: Mapping[str, str]
    ml_folder: Path  # seen as /opt/ml
    scratch_folder: Path  # holds /tmp and /var/tmp
    working_folder: str = ML
    interpreter: Path = Path(sys.executable)  # its prefix and base prefix are visible, read-only
    read_only: Sequence[Bind] = ()
    writable: Sequence[Bind] = ()
    copy_on_write: Sequence[CopyOnWrite] = ()  # with namespaces only
    hidden: Sequence[Path] = ()  # masked wherever they would be visible, save for the binds above and the interpreter
    hostname: str = "algo-1"
    hosts: Sequence[str] = ()  # lines of /etc/hosts after those of localhost
    network: Network | None = None  # with namespaces only; None is the host's
    uid: int | None = None
    gid: int | None = None
    limits: LimitSpec = field(default_factory=LimitSpec)
    launcher: Sequence[str] = ()  # words before those of `argv`, by which it becomes several ranks; see instance/launch
    forker: Forker | None = None  # `argv` is then a Python and its script; where it fails, the program is started anew
    isolation: Isolation = Isolation.NAMESPACES


@dataclass(frozen=True, slots=True)
class Ended:
    """How the program ended: with an exit code or by a signal. `is_oom` when the memory limit was the cause."""

    code: int | None
    signal: int | None
    is_oom: bool = False


class Sandboxed(Protocol):
    """A program that was launched. Safe to share between threads.

    `pid` and `pidfd` are those of the process that holds the tree together, in the host's numbers: pid 1 of the
    namespace, or the program itself where there is none. Both stay valid until `close`.
    """

    @property
    def pid(self) -> int: ...

    @property
    def pidfd(self) -> int: ...

    @property
    def not_enforced(self) -> Sequence[str]:
        """What this machine could not enforce, one sentence each, for the job's description."""
        ...

    @property
    def is_warm(self) -> bool:
        """Whether the program was forked from a warm worker."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to the program, as a container engine does; after its end nothing happens."""
        ...

    def kill(self) -> None:
        """End the whole tree, and return only when it is proven dead; `SandboxLost` when that cannot be proven."""
        ...

    def wait(self, timeout_s: float | None = None) -> Ended | None:
        """How it ended, once the whole tree is gone and its control groups are removed; None when time runs out first.

        The tree goes with the program: what it left in the background is killed. Should someone have killed the keeper,
        the rest is ended from here, or `SandboxLost` is raised.
        """
        ...

    def close(self) -> None:
        """Give back the descriptors. A tree that still runs is ended by that, unproven: `kill` comes first."""
        ...
