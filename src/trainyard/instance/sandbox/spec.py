"""What the launcher tells its supervisor to run: plain values, sent through a pipe.

Both run the same version of this code, so marshal suffices, and it costs nothing to import. They may run different
versions of Python, so the format is one that all of them know.
"""

import marshal

_FORMAT = 4

# A step of the view: a verb and its arguments. See view.py.
Step = tuple[str, ...]


class SandboxSpec:
    """All that the supervisor, init and the program's first steps need to know.

    `staging` is an empty host folder on which the new root is built. `cgroups` are the folders of the control groups
    that the launcher moved the supervisor into, for the program to inherit, and `original_cgroups` those it came from.
    `max_processes` is enforced by RLIMIT_NPROC, `watchdog_memory_bytes` by the watchdog, and `threads` limits how many
    threads a framework uses per operation; 0 means no limit. `launcher` is a command prefix that runs `argv` as several
    ranks. With `has_own_network` the program joins the namespaces of `network_fds` in that order, or without any a new
    network that reaches nobody. With `reuses_interpreter` the program runs in the interpreter that the supervisor was
    forked from. The descriptors are filled in when the supervisor starts.
    """

    def __init__(
        self,
        *,
        has_namespaces: bool,
        argv: list[str],
        environment: dict[str, str],
        working_folder: str,
        staging: str,
        steps: list[Step],
        hostname: str,
        uid: int,
        gid: int,
        cgroups: list[str],
        original_cgroups: list[str],
        max_processes: int,
        watchdog_memory_bytes: int,
        threads: int = 0,
        launcher: list[str] | None = None,
        has_own_network: bool = False,
        reuses_interpreter: bool = False,
        status_fd: int = -1,
        output_fd: int = -1,
        network_fds: list[int] | None = None,
    ) -> None:
        self.has_namespaces = has_namespaces
        self.argv = argv
        self.environment = environment
        self.working_folder = working_folder
        self.staging = staging
        self.steps = steps
        self.hostname = hostname
        self.uid = uid
        self.gid = gid
        self.cgroups = cgroups
        self.original_cgroups = original_cgroups
        self.max_processes = max_processes
        self.watchdog_memory_bytes = watchdog_memory_bytes
        self.threads = threads
        self.launcher = launcher or []
        self.has_own_network = has_own_network
        self.reuses_interpreter = reuses_interpreter
        self.status_fd = status_fd
        self.output_fd = output_fd
        self.network_fds = network_fds or []


def encode_spec(spec: SandboxSpec) -> bytes:
    return marshal.dumps(vars(spec), _FORMAT)


def decode_spec(data: bytes) -> SandboxSpec:
    return SandboxSpec(**marshal.loads(data))
