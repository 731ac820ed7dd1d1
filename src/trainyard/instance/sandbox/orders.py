"""What the launcher orders its keeper to do: plain values that travel through a pipe.

Both are the same version of this code, so marshal serves, and costs nothing to import. They may be two versions of
Python, so its format is one that both know.
"""

import marshal

_FORMAT = 4

Step = tuple[str, ...]  # of the view: a verb and its arguments, see view.py


class Orders:
    """All that the keeper, init and the program's first steps need to know."""

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
        groups: list[str],
        origins: list[str],
        most_processes: int,
        watched_memory: int,
        threads: int = 0,
        launcher: list[str] | None = None,
        has_own_network: bool = False,
        stays: bool = False,
        status_fd: int = -1,
        output_fd: int = -1,
        network_fds: list[int] | None = None,
    ) -> None:
        self.has_namespaces = has_namespaces
        self.argv = argv
        self.environment = environment
        self.working_folder = working_folder
        self.staging = staging  # an empty folder of the host, on which the new root is built
        self.steps = steps
        self.hostname = hostname
        self.uid = uid
        self.gid = gid
        self.groups = groups  # folders of the control groups that the keeper was put in, for the program to inherit
        self.origins = origins  # the groups that it came from
        self.most_processes = most_processes  # by RLIMIT_NPROC; 0 is no such limit
        self.watched_memory = watched_memory  # bytes that the watchdog allows; 0 is no watchdog
        self.threads = threads  # that a framework may use for one operation; 0 is as many as it likes
        self.launcher = launcher or []  # words before those of argv, by which it becomes several ranks
        self.has_own_network = has_own_network  # that of the descriptors, or without any a new one that reaches nobody
        self.stays = stays  # the program goes on in the interpreter that the keeper was forked with
        self.status_fd = status_fd  # all three are filled in when the keeper is started
        self.output_fd = output_fd
        self.network_fds = network_fds or []  # namespaces to enter, in this order


def encode(orders: Orders) -> bytes:
    return marshal.dumps(vars(orders), _FORMAT)


def decode(data: bytes) -> Orders:
    return Orders(**marshal.loads(data))
