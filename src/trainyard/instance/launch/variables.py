"""What the processes of a job are told of each other, in the variables that their libraries look for."""

import json

from trainyard.foundation.launch_kinds import LaunchKind

_RESTARTS = 3
_RANKED = (LaunchKind.TORCHRUN, LaunchKind.MPI, LaunchKind.DATA_PARALLEL, LaunchKind.PARAMETER_SERVER)


class Cluster:
    """The processes of all instances of a job, as one instance of it sees them.

    `processes` has how many run on each host, in the order of their ranks. `port` is the first of the job's own, that
    of the master; those of workers and of servers follow.
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
        self.addresses = addresses  # by which the hosts reach each other: their names, where those are known
        self.host = host
        self.port = port
        self.run = run  # names the job

    @property
    def hosts(self) -> list[str]:
        return list(self.processes)

    @property
    def here(self) -> int:
        """How many processes run on this host."""
        return self.processes[self.host]

    @property
    def size(self) -> int:
        return sum(self.processes.values())

    @property
    def most_restarts(self) -> int:
        """How often a process that failed is started again: only where none waits for another."""
        return _RESTARTS if self.kind is LaunchKind.PARAMETER_SERVER else 0

    @property
    def has_server(self) -> bool:
        """Whether a server runs beside the program on each host. TensorFlow needs none where there is one host."""
        if self.kind is LaunchKind.TENSORFLOW_SERVER:
            return len(self.hosts) > 1
        return self.kind is LaunchKind.PARAMETER_SERVER

    @property
    def first_rank(self) -> int:
        """Of this host."""
        hosts = self.hosts
        return sum(self.processes[host] for host in hosts[: hosts.index(self.host)])


def rank_variables(cluster: Cluster, local_rank: int, *, rank: int | None = None, restarts: int = 0) -> dict[str, str]:
    """The variables of one process of this host, which was started again so many times.

    `rank` is its number among all, where they do not go by the order of the hosts.
    """
    if rank is None:
        rank = cluster.first_rank + local_rank
    variables = {"MASTER_ADDR": cluster.addresses[cluster.hosts[0]], "MASTER_PORT": str(cluster.port)}
    if cluster.kind in _RANKED:
        variables.update(_torchrun(cluster, rank, local_rank=local_rank, restarts=restarts))
    if cluster.kind is LaunchKind.MPI:
        variables.update(_open_mpi(cluster, rank, local_rank=local_rank))
    if cluster.kind in (LaunchKind.TENSORFLOW_SERVER, LaunchKind.TENSORFLOW_WORKERS):
        variables["TF_CONFIG"] = json.dumps(tensorflow_config(cluster))
    return variables


def server_variables(cluster: Cluster, secret: str) -> dict[str, str]:
    """What servers and their workers are told of each other."""
    if cluster.kind is not LaunchKind.PARAMETER_SERVER:
        return {}
    return {
        "TRAINYARD_PS_HOSTS": ",".join(server_address(cluster, host) for host in cluster.hosts),
        "TRAINYARD_PS_INDEX": str(cluster.hosts.index(cluster.host)),
        "TRAINYARD_PS_TOKEN": secret,
    }


def server_address(cluster: Cluster, host: str) -> str:
    """Where the server of a host listens."""
    return f"{cluster.addresses[host]}:{cluster.port + 1 + len(cluster.hosts) + cluster.hosts.index(host)}"


def tensorflow_config(cluster: Cluster, *, is_server: bool = False) -> dict[str, object]:
    """What SageMaker's TensorFlow containers make: the first host is the master, and servers are on every host.

    Without servers, all hosts are workers. A job of one host has no servers.
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


def worker_address(cluster: Cluster, host: str) -> str:
    """Where the program of a host listens, by TensorFlow."""
    return f"{cluster.addresses[host]}:{cluster.port + 1 + cluster.hosts.index(host)}"


def _torchrun(cluster: Cluster, rank: int, *, local_rank: int, restarts: int) -> dict[str, str]:
    found = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": cluster.size,
        "LOCAL_WORLD_SIZE": cluster.here,
        "GROUP_RANK": cluster.hosts.index(cluster.host),
        "GROUP_WORLD_SIZE": len(cluster.hosts),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": cluster.size,
        "TORCHELASTIC_RUN_ID": cluster.run,
        "TORCHELASTIC_RESTART_COUNT": restarts,
        "TORCHELASTIC_MAX_RESTARTS": cluster.most_restarts,
        "TORCHELASTIC_USE_AGENT_STORE": False,
    }
    return {name: str(value) for name, value in found.items()}


def _open_mpi(cluster: Cluster, rank: int, *, local_rank: int) -> dict[str, str]:
    found = {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": local_rank,
        "OMPI_COMM_WORLD_NODE_RANK": local_rank,
        "OMPI_COMM_WORLD_SIZE": cluster.size,
        "OMPI_COMM_WORLD_LOCAL_SIZE": cluster.here,
    }
    return {name: str(value) for name, value in found.items()}
