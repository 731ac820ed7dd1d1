from typing import Any

from trainyard.cli.node_view import node_lines

GIB = 1024**3


def node(name: str, **changed: Any) -> dict[str, Any]:
    values = {"Name": name, "Slots": 16, "SlotsInUse": 0, "Cpus": 16.0, "MemoryBytes": 64 * GIB, "Gpus": 0}
    return {**values, "GpusInUse": 0, "Spot": False, **changed}


def line(*nodes: dict[str, Any], engines: tuple[str, ...] = ("local",), **changed: Any) -> dict[str, Any]:
    return {"Engines": list(engines), "QueuedJobs": 0, "Nodes": list(nodes), **changed}


def test_of_the_yards_own_machine_alone_nothing_is_told_again() -> None:
    assert list(node_lines({"Lines": [line(node(""))]})) == []


def test_each_engine_is_told_with_its_nodes_and_what_of_them_is_in_use() -> None:
    used = {"SlotsInUse": 3, "CpusInUse": 8.5, "MemoryBytesInUse": 16 * GIB, "Gpus": 8, "GpusInUse": 2}
    free = {"CpusInUse": 0.0, "MemoryBytesInUse": 0, "Spot": True}
    ray = line(node("10.0.0.1", **used), node("10.0.0.2", **free), engines=("ray",), QueuedJobs=1)
    here = line(node("", Slots=2), engines=("local", "container"))
    assert list(node_lines({"Lines": [here, ray]})) == [
        "",
        "local and container: 1 node, 0 jobs wait",
        "  this machine  0 of 2 slots  16 cores  64.0 GiB",
        "",
        "ray: 2 nodes, 1 job waits",
        "  10.0.0.1  3 of 16 slots  8.5 of 16 cores  16.0 GiB of 64.0 GiB  2 of 8 GPUs",
        "  10.0.0.2  0 of 16 slots  0 of 16 cores    0 B of 64.0 GiB                    spot",
    ]


def test_an_engine_that_cannot_be_reached_says_why() -> None:
    away = line(engines=("ray",), QueuedJobs=2, Obstacle="The cluster does not answer.")
    assert list(node_lines({"Lines": [line(node("")), away]}))[-2:] == [
        "ray: 0 nodes, 2 jobs wait",
        "  The cluster does not answer.",
    ]
