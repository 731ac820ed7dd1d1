"""The parameter servers that run next to the program of each instance."""

import json
import socket

from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.instance.launch.variables import RankCluster, server_variables, tensorflow_config, worker_address

# The same as in SageMaker's containers. The server gets no GPU, since two TensorFlow processes do not share one well.
_TENSORFLOW = """
import json, os
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import tensorflow
config = json.loads(os.environ["TF_CONFIG"])
cluster = tensorflow.train.ClusterSpec(config["cluster"])
tensorflow.distribute.Server(cluster, job_name="ps", task_index=config["task"]["index"]).join()
"""
_CONNECT_TIMEOUT_S = 2.0


def server_command(cluster: RankCluster, python: str) -> list[str]:
    if cluster.kind is LaunchKind.TENSORFLOW_SERVER:
        return [python, "-c", _TENSORFLOW]
    return [python, "-m", "trainyard.parameter_server"]


def server_environment(cluster: RankCluster, environment: dict[str, str], *, secret: str) -> dict[str, str]:
    if cluster.kind is LaunchKind.TENSORFLOW_SERVER:
        return {**environment, "TF_CONFIG": json.dumps(tensorflow_config(cluster, is_server=True))}
    return {**environment, **server_variables(cluster, secret)}


def done_command(python: str) -> list[str]:
    """Return the command that tells all our servers that a worker is done; it needs the variables of that worker."""
    return [python, "-m", "trainyard.instance.parameter_server.done"]


def is_server_needed(cluster: RankCluster) -> bool:
    """Return whether the server of a host must keep running after its program has ended.

    Our own server exits by itself once all workers are done. TensorFlow's is needed as long as the master trains.
    """
    if cluster.kind is LaunchKind.PARAMETER_SERVER:
        return True
    return cluster.host != cluster.hosts[0] and _answers(worker_address(cluster, cluster.hosts[0]))


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True
