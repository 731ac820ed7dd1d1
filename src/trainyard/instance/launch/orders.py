"""What the agent orders a launcher to do: plain values, the last word of its command line."""

import json

from trainyard.foundation.launch_kinds import LaunchKind
from trainyard.instance.launch.variables import Cluster


class MpiOrders:
    """The mpirun that is to start the ranks, where it can."""

    def __init__(self, mpirun: str, *, options: list[str], interface: str, refusal: str, failure: str) -> None:
        self.mpirun = mpirun
        self.options = options  # of the job
        self.interface = interface  # by which the hosts reach each other
        self.refusal = refusal  # why the program cannot run without an mpirun; nothing where it can
        self.failure = failure  # the file to write that to


class LaunchOrders:
    """Which processes to run, and where to tell of them."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        folder: str,
        threads: int,
        python: str,
        secret: str = "",
        mpi: MpiOrders | None = None,
    ) -> None:
        self.cluster = cluster
        self.folder = folder  # of reports, as the launcher sees it
        self.threads = threads  # that each rank may use for one operation
        self.python = python  # that runs servers
        self.secret = secret  # by which servers know the workers of their job, and hosts each other
        self.mpi = mpi


def encode(orders: LaunchOrders) -> str:
    mpi = vars(orders.mpi) if orders.mpi is not None else None
    return json.dumps({**vars(orders), "cluster": vars(orders.cluster), "mpi": mpi})


def decode(text: str) -> LaunchOrders:
    values = json.loads(text)
    cluster, mpi = values.pop("cluster"), values.pop("mpi")
    return LaunchOrders(
        Cluster(LaunchKind(cluster.pop("kind")), **cluster), mpi=MpiOrders(**mpi) if mpi is not None else None, **values
    )
