"""The process that speaks to Ray for a yard: `python -m trainyard.engines.ray.main ORDER DESCRIPTOR`.

The order is a JSON object, the descriptor a socket on which the yard asks. Ray takes this process down with the raylet
of its machine; the yard then starts another, which goes on from the files.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from trainyard.engines.cluster.crew import run_ferry
from trainyard.engines.cluster.ferry import Ferry
from trainyard.engines.ray.cluster import RayCluster
from trainyard.engines.ray.connection import Connection
from trainyard.engines.ray.parcel import Parcel
from trainyard.foundation.journal import write_journal


@dataclass(frozen=True, slots=True)
class Order:
    """What the yard wants. `folder` is the engine's own, `node_folder` the one on nodes."""

    address: str
    yard: str
    jobs: str
    folder: str
    node_folder: str
    parcel: str


def main(order: str, descriptor: str) -> None:
    write_journal(sys.stderr, "info")
    wanted = Order(**json.loads(order))

    async def make() -> Ferry:
        connection = Connection(wanted.address, namespace=f"trainyard-{wanted.yard}")
        parcel = Parcel(Path(wanted.parcel))
        cluster = RayCluster(connection, yard=wanted.yard, parcel=parcel, folder=wanted.node_folder)
        return Ferry(cluster, jobs=Path(wanted.jobs), folder=Path(wanted.folder))

    run_ferry(int(descriptor), make)
    os._exit(0)  # a way out through Ray would wait for a head that is away


if __name__ == "__main__":
    main(*sys.argv[1:])
