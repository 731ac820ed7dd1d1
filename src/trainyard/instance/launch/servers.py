"""The servers of parameters that run beside the program of each instance."""

import json
import socket

from trainyard.foundation.launch_kinds import LaunchKind
from trainyard.instance.launch.variables import Cluster, server_variables, tensorflow_config, worker_address

# As SageMaker's containers do it. It has no GPU, since two processes of TensorFlow do not share one well.
_TENSORFLOW = """
import json, os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import tensorflow
config = json.loads(os.environ["TF_CONFIG"])
cluster = tensorflow.train.ClusterSpec(config["cluster"])
tensorflow.distribute.Server(cluster, job_name="ps", task_index=config["task"]["index"]).join()
"""
_CONNECT_S = 2.0


def server_command(cluster: Cluster, python: str) -> list[str]:
    if cluster.kind is LaunchKind.TENSORFLOW_SERVER:
        return [python, "-c", _TENSORFLOW]
    return [python, "-m", "trainyard.parameter_server"]


def server_environment(cluster: Cluster, environment: dict[str, str], *, secret: str) -> dict[str, str]:
    if cluster.kind is LaunchKind.TENSORFLOW_SERVER:
        return {**environment, "TF_CONFIG": json.dumps(tensorflow_config(cluster, is_server=True))}
    return {**environment, **server_variables(cluster, secret)}


def announcement_command(python: str) -> list[str]:
    """What tells all our servers that a worker is done, with the variables of that worker."""
    return [python, "-m", "trainyard.instance.parameter_server.done"]


def is_needed(cluster: Cluster) -> bool:
    """Whether the server of a host whose program has ended must go on.

    Ours ends by itself, when all workers are done. One of TensorFlow is needed as long as the master trains.
    """
    if cluster.kind is LaunchKind.PARAMETER_SERVER:
        return True
    return cluster.host != cluster.hosts[0] and _answers(worker_address(cluster, cluster.hosts[0]))


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True
