"""The proxy process of a yard for Ray: `python -m trainyard.engines.ray.main OPTIONS DESCRIPTOR`.

OPTIONS is a JSON object, DESCRIPTOR the socket to the yard. Ray ends this process together with the raylet of its
machine; the yard then starts another, which continues from the files.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from trainyard.engines.cluster.proxy import ClusterProxy
from trainyard.engines.cluster.proxy_supervisor import run_proxy
from trainyard.engines.ray.cluster import RayCluster
from trainyard.engines.ray.code_bundle import CodeBundle
from trainyard.engines.ray.connection import RayConnection
from trainyard.foundation.journal import write_journal


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """The options of the proxy. `folder` is the engine's own, `node_folder` the one on nodes."""

    address: str
    yard: str
    jobs: str
    folder: str
    node_folder: str
    bundle: str


def main(text: str, descriptor: str) -> None:
    write_journal(sys.stderr, "info")
    options = ProxyOptions(**json.loads(text))

    async def make() -> ClusterProxy:
        connection = RayConnection(options.address, namespace=f"trainyard-{options.yard}")
        bundle = CodeBundle(Path(options.bundle))
        cluster = RayCluster(connection, yard=options.yard, bundle=bundle, folder=options.node_folder)
        return ClusterProxy(cluster, jobs=Path(options.jobs), folder=Path(options.folder))

    run_proxy(int(descriptor), make)
    # A regular exit would let Ray wait for a head that does not answer.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
