"""What the agent orders a launcher to do: plain values, the last word of its command line."""

import json

from trainyard.foundation.launch_kinds import LaunchKind
from trainyard.instance.launch.variables import Cluster


class LaunchOrders:
    """Which processes to run, and where to tell of them."""

    def __init__(self, cluster: Cluster, *, folder: str, threads: int, python: str, secret: str = "") -> None:
        self.cluster = cluster
        self.folder = folder  # of reports, as the launcher sees it
        self.threads = threads  # that each rank may use for one operation
        self.python = python  # that runs servers
        self.secret = secret  # by which servers know the workers of their job


def encode(orders: LaunchOrders) -> str:
    return json.dumps({**vars(orders), "cluster": vars(orders.cluster)})


def decode(text: str) -> LaunchOrders:
    values = json.loads(text)
    cluster = values.pop("cluster")
    return LaunchOrders(Cluster(LaunchKind(cluster.pop("kind")), **cluster), **values)
