"""What the processes of a job are told of each other."""

import json

import pytest

from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.instance.launch.variables import RankCluster, rank_variables, server_variables, tensorflow_config

HOSTS = ("algo-1", "algo-2", "algo-3")


def cluster(kind: LaunchKind, host: str = "algo-2", **processes: int) -> RankCluster:
    counts = {host.replace("_", "-"): count for host, count in processes.items()} or dict.fromkeys(HOSTS, 1)
    return RankCluster(
        kind, processes=counts, addresses={name: name for name in counts}, host=host, port=7000, run="j-1"
    )


@pytest.mark.parametrize("kind", [LaunchKind.TORCHRUN, LaunchKind.DATA_PARALLEL, LaunchKind.PARAMETER_SERVER])
def test_ranks_get_the_variables_of_torchrun(kind: LaunchKind) -> None:
    told = rank_variables(cluster(kind, algo_1=2, algo_2=3, algo_3=1), 1)
    assert {name: told[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")} == {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "1",
    }
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("algo-1", "7000")
    assert told["TORCHELASTIC_USE_AGENT_STORE"] == "False"


def test_mpi_ranks_get_the_variables_of_open_mpi_too() -> None:
    told = rank_variables(cluster(LaunchKind.MPI, algo_1=2, algo_2=2), 1)
    open_mpi = {name.removeprefix("OMPI_COMM_WORLD_"): told[name] for name in told if name.startswith("OMPI_")}
    assert open_mpi == {"RANK": "3", "LOCAL_RANK": "1", "NODE_RANK": "1", "SIZE": "4", "LOCAL_SIZE": "2"}
    assert (told["RANK"], told["WORLD_SIZE"]) == ("3", "4")


@pytest.mark.parametrize(
    ("host", "task"),
    [
        ("algo-1", {"type": "master", "index": 0}),
        ("algo-2", {"type": "worker", "index": 0}),
        ("algo-3", {"type": "worker", "index": 1}),
    ],
)
def test_tensorflow_has_a_master_workers_and_a_server_on_every_host(host: str, task: dict[str, object]) -> None:
    told = json.loads(rank_variables(cluster(LaunchKind.TENSORFLOW_SERVER, host), 0)["TF_CONFIG"])
    assert told == {
        "cluster": {
            "master": ["algo-1:7001"],
            "worker": ["algo-2:7002", "algo-3:7003"],
            "ps": ["algo-1:7004", "algo-2:7005", "algo-3:7006"],
        },
        "environment": "cloud",
        "task": task,
    }
    server = tensorflow_config(cluster(LaunchKind.TENSORFLOW_SERVER, host), is_server=True)
    assert server["task"] == {"type": "ps", "index": HOSTS.index(host)}


def test_one_host_of_tensorflow_has_no_server() -> None:
    alone = cluster(LaunchKind.TENSORFLOW_SERVER, "algo-1", algo_1=1)
    assert not alone.has_server
    assert tensorflow_config(alone)["cluster"] == {"master": ["algo-1:7001"]}


def test_mirrored_workers_of_tensorflow_are_all_alike() -> None:
    told = json.loads(rank_variables(cluster(LaunchKind.TENSORFLOW_WORKERS), 0)["TF_CONFIG"])
    assert told["cluster"] == {"worker": ["algo-1:7001", "algo-2:7002", "algo-3:7003"]}
    assert told["task"] == {"type": "worker", "index": 1}


def test_servers_and_workers_know_each_other_and_their_secret() -> None:
    told = server_variables(cluster(LaunchKind.PARAMETER_SERVER), "hush")
    assert told == {
        "TRAINYARD_PS_HOSTS": "algo-1:7004,algo-2:7005,algo-3:7006",
        "TRAINYARD_PS_INDEX": "1",
        "TRAINYARD_PS_TOKEN": "hush",
    }
    assert server_variables(cluster(LaunchKind.TORCHRUN), "hush") == {}
