"""The environment variables by which the processes of a job find each other, as their libraries expect them."""

import json

from trainyard.foundation.jobs.launch_kinds import LaunchKind

_MAX_RESTARTS = 3
_RANKED_KINDS = (LaunchKind.TORCHRUN, LaunchKind.MPI, LaunchKind.DATA_PARALLEL, LaunchKind.PARAMETER_SERVER)


class RankCluster:
    """The processes of all instances of a job, as seen by one instance.

    `processes` is how many run on each host, in the order of their ranks. `addresses` are how hosts reach each other:
    by name where names resolve. `port` is the master's; those of workers and servers follow. `run` identifies the job.
    """

    def __init__(
        self,
        kind: LaunchKind,
        *,
        processes: dict[str, int],
        addresses: dict[str, str],
        host: str,
        port: int,
        run: str,
    ) -> None:
        self.kind = kind
        self.processes = processes
        self.addresses = addresses
        self.host = host
        self.port = port
        self.run = run

    @property
    def hosts(self) -> list[str]:
        return list(self.processes)

    @property
    def local_size(self) -> int:
        """How many processes run on this host."""
        return self.processes[self.host]

    @property
    def size(self) -> int:
        return sum(self.processes.values())

    @property
    def max_restarts(self) -> int:
        """How often a failed process is restarted: only for kinds in which no process waits for another."""
        return _MAX_RESTARTS if self.kind is LaunchKind.PARAMETER_SERVER else 0

    @property
    def has_server(self) -> bool:
        """Whether a server runs next to the program on each host. TensorFlow needs none on a single host."""
        if self.kind is LaunchKind.TENSORFLOW_SERVER:
            return len(self.hosts) > 1
        return self.kind is LaunchKind.PARAMETER_SERVER

    @property
    def first_rank(self) -> int:
        """The first rank on this host."""
        hosts = self.hosts
        return sum(self.processes[host] for host in hosts[: hosts.index(self.host)])


def rank_variables(
    cluster: RankCluster, local_rank: int, *, rank: int | None = None, restarts: int = 0
) -> dict[str, str]:
    """Return the variables of one process on this host, which was restarted `restarts` times.

    `rank` is its global rank, if ranks are not numbered in the order of the hosts.
    """
    if rank is None:
        rank = cluster.first_rank + local_rank
    variables = {"MASTER_ADDR": cluster.addresses[cluster.hosts[0]], "MASTER_PORT": str(cluster.port)}
    if cluster.kind in _RANKED_KINDS:
        variables.update(_torchrun(cluster, rank, local_rank=local_rank, restarts=restarts))
    if cluster.kind is LaunchKind.MPI:
        variables.update(_open_mpi(cluster, rank, local_rank=local_rank))
    if cluster.kind in (LaunchKind.TENSORFLOW_SERVER, LaunchKind.TENSORFLOW_WORKERS):
        variables["TF_CONFIG"] = json.dumps(tensorflow_config(cluster))
    return variables


def server_variables(cluster: RankCluster, secret: str) -> dict[str, str]:
    """Return the variables by which parameter servers and workers find each other."""
    if cluster.kind is not LaunchKind.PARAMETER_SERVER:
        return {}
    return {
        "TRAINYARD_PS_HOSTS": ",".join(server_address(cluster, host) for host in cluster.hosts),
        "TRAINYARD_PS_INDEX": str(cluster.hosts.index(cluster.host)),
        "TRAINYARD_PS_TOKEN": secret,
    }


def server_address(cluster: RankCluster, host: str) -> str:
    """Return the address at which the server of a host listens."""
    return f"{cluster.addresses[host]}:{cluster.port + 1 + len(cluster.hosts) + cluster.hosts.index(host)}"


def tensorflow_config(cluster: RankCluster, *, is_server: bool = False) -> dict[str, object]:
    """Return TF_CONFIG as in SageMaker's TensorFlow containers: the first host is the master, and each has a server.

    Without servers, all hosts are workers. A job with one host has no servers.
    """
    hosts = cluster.hosts
    masters = hosts[:1] if cluster.kind is LaunchKind.TENSORFLOW_SERVER else []
    tasks = {"master": masters, "worker": hosts[len(masters) :]}
    members = {name: [worker_address(cluster, host) for host in at] for name, at in tasks.items() if at}
    if masters and len(hosts) > 1:
        members["ps"] = [server_address(cluster, host) for host in hosts]
    task = "ps" if is_server else "master" if cluster.host in masters else "worker"
    index = hosts.index(cluster.host) if task == "ps" else tasks[task].index(cluster.host)
    return {"cluster": members, "environment": "cloud", "task": {"index": index, "type": task}}


def worker_address(cluster: RankCluster, host: str) -> str:
    """Return the address at which TensorFlow listens in the program of a host."""
    return f"{cluster.addresses[host]}:{cluster.port + 1 + cluster.hosts.index(host)}"


def _torchrun(cluster: RankCluster, rank: int, *, local_rank: int, restarts: int) -> dict[str, str]:
    variables = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": cluster.size,
        "LOCAL_WORLD_SIZE": cluster.local_size,
        "GROUP_RANK": cluster.hosts.index(cluster.host),
        "GROUP_WORLD_SIZE": len(cluster.hosts),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": cluster.size,
        "TORCHELASTIC_RUN_ID": cluster.run,
        "TORCHELASTIC_RESTART_COUNT": restarts,
        "TORCHELASTIC_MAX_RESTARTS": cluster.max_restarts,
        "TORCHELASTIC_USE_AGENT_STORE": False,
    }
    return {name: str(value) for name, value in variables.items()}


def _open_mpi(cluster: RankCluster, rank: int, *, local_rank: int) -> dict[str, str]:
    variables = {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": local_rank,
        "OMPI_COMM_WORLD_NODE_RANK": local_rank,
        "OMPI_COMM_WORLD_SIZE": cluster.size,
        "OMPI_COMM_WORLD_LOCAL_SIZE": cluster.local_size,
    }
    return {name: str(value) for name, value in variables.items()}
