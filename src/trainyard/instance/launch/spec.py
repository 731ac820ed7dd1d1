"""What the agent tells a launcher to run: plain values, the last argument of its command line."""

import json

from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.instance.launch.variables import RankCluster


class MpirunSpec:
    """The mpirun that starts the ranks if it can.

    `options` come from the job, and the hosts reach each other through the network `interface`. `refusal` says why the
    program cannot run without mpirun, and is empty if it can; it is written to the file `failure`.
    """

    def __init__(self, mpirun: str, *, options: list[str], interface: str, refusal: str, failure: str) -> None:
        self.mpirun = mpirun
        self.options = options
        self.interface = interface
        self.refusal = refusal
        self.failure = failure


class LauncherSpec:
    """Which processes to run, and where to report on them.

    `folder` is that of the reports, as the launcher sees it. `threads` is how many threads each rank may use per
    operation. `python` runs servers. Servers recognise the workers of their job, and hosts each other, by the `secret`.
    """

    def __init__(
        self,
        cluster: RankCluster,
        *,
        folder: str,
        threads: int,
        python: str,
        secret: str = "",
        mpi: MpirunSpec | None = None,
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.threads = threads
        self.python = python
        self.secret = secret
        self.mpi = mpi


def encode_spec(spec: LauncherSpec) -> str:
    mpi = vars(spec.mpi) if spec.mpi is not None else None
    return json.dumps({**vars(spec), "cluster": vars(spec.cluster), "mpi": mpi})


def decode_spec(text: str) -> LauncherSpec:
    values = json.loads(text)
    cluster, mpi = values.pop("cluster"), values.pop("mpi")
    return LauncherSpec(
        RankCluster(LaunchKind(cluster.pop("kind")), **cluster),
        mpi=MpirunSpec(**mpi) if mpi is not None else None,
        **values,
    )
