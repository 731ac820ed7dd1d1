from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainyard.cli.terminal.blocks import plain_lines
from trainyard.cli.yard.yard_text import node_blocks, share_text, shares_text, warm_text, yard_blocks

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
GIB = 1024**3


def yard(**more: Any) -> dict[str, Any]:
    return {
        "Version": "0.1.0",
        "Engine": "local",
        "Slots": 2,
        "SlotsInUse": 1,
        "Cpus": 2.0,
        "MemoryBytes": 8 * GIB,
        "Gpus": [],
        "CpuUse": 0.5,
        "MemoryUse": 2 * GIB,
        "QueuedJobs": 0,
        "RunningJobs": [],
        "WarmWorkers": [],
        "Lines": [{"Engines": ["local", "container"], "Nodes": [{"Slots": 2, "SlotsInUse": 1}]}],
    } | more


def running(name: str, **more: Any) -> dict[str, Any]:
    share = {"Instance": "algo-1", "InstanceType": "ml.m5.large", "Cpus": 1.0, "MemoryBytes": GIB}
    return {
        "TrainingJobName": name,
        "UserName": "anna",
        "SecondaryStatus": "Training",
        "StartTime": NOON - timedelta(seconds=75),
        "Engine": "local",
        "Shares": [share],
    } | more


def yard_lines(told: dict[str, Any], waiting: list[dict[str, Any]], *, now: datetime, filled: str) -> list[str]:
    return list(plain_lines(yard_blocks(told, waiting, now=now), filled=filled))


def node_lines(told: dict[str, Any]) -> list[str]:
    return list(plain_lines(list(node_blocks(told)), filled="#"))


def test_the_machine_is_shown_in_bars() -> None:
    lines = yard_lines(yard(), [], now=NOON, filled="█")
    assert [line.split()[0] for line in lines[:5]] == ["trainyard", "slots", "cpu", "memory", "queue"]
    assert lines[1] == f"slots   {'█' * 12}{'·' * 12}  1 of 2"
    assert lines[2] == f"cpu     {'█' * 6}{'·' * 18}  0.5 of 2 cores"
    assert lines[3] == f"memory  {'█' * 6}{'·' * 18}  2.0 GiB of 8.0 GiB"
    assert lines[-1] == "No jobs are running."


def test_slots_of_further_engines_are_shown_too() -> None:
    nodes = [{"Slots": 8, "SlotsInUse": 4}, {"Slots": 8, "SlotsInUse": 0}]
    lines = yard_lines(yard(Lines=[*yard()["Lines"], {"Engines": ["ray"], "Nodes": nodes}]), [], now=NOON, filled="█")
    assert lines[1:3] == [f"slots   {'█' * 12}{'·' * 12}  1 of 2", f"slots   {'█' * 6}{'·' * 18}  4 of 16 on ray"]


def test_what_is_not_known_of_a_machine_elsewhere_is_not_shown() -> None:
    known = {name: value for name, value in yard().items() if name not in ("CpuUse", "MemoryUse")}
    assert [line.split()[0] for line in yard_lines(known, [], now=NOON, filled="#")[:3]] == [
        "trainyard",
        "slots",
        "queue",
    ]


def test_jobs_that_run_come_before_those_that_wait_in_columns() -> None:
    waiting = {"TrainingJobName": "later", "SecondaryStatus": "Pending", "CreationTime": NOON - timedelta(seconds=3)}
    lines = yard_lines(yard(RunningJobs=[running("now")], QueuedJobs=1), [waiting], now=NOON, filled="█")
    assert lines[4].startswith("queue   1 job waiting;")
    assert lines[-3:] == [
        "job    user  status    elapsed  instances        share of each",
        "now    anna  Training  1:15     1 x ml.m5.large  1 core, 1.0 GiB",
        "later        Pending   3 s",
    ]


def test_a_job_of_another_engine_than_the_first_is_shown_with_its_engine() -> None:
    (*_, row) = yard_lines(yard(RunningJobs=[running("now", Engine="ray")]), [], now=NOON, filled="█")
    assert "  1 x ml.m5.large on ray  " in row


def test_a_name_that_is_too_long_is_cut() -> None:
    (*_, row) = yard_lines(yard(RunningJobs=[running("x" * 63)]), [], now=NOON, filled="█")
    assert row.startswith("x" * 44 + "…  anna")


def test_gpus_that_jobs_hold_are_counted() -> None:
    job = running("now", Shares=[{"Instance": "algo-1", "Gpus": [1]}])
    lines = yard_lines(yard(Gpus=[0, 1], RunningJobs=[job]), [], now=NOON, filled="█")
    assert f"gpus    {'█' * 12}{'·' * 12}  1 of 2" in lines


def test_warm_workers_are_counted_with_their_memory() -> None:
    worker = {"Python": "/usr/bin/python3", "Pid": 1, "MemoryBytes": 100 * 1024**2}
    assert warm_text(yard()) == "no workers"
    assert warm_text(yard(WarmWorkers=[worker])) == "1 worker, 100.0 MiB"
    assert warm_text(yard(WarmWorkers=[worker, worker])) == "2 workers, 200.0 MiB"


GIB = 1024**3


def node(name: str, **changed: Any) -> dict[str, Any]:
    values = {"Name": name, "Slots": 16, "SlotsInUse": 0, "Cpus": 16.0, "MemoryBytes": 64 * GIB, "Gpus": 0}
    return {**values, "GpusInUse": 0, "Spot": False, **changed}


def line(*nodes: dict[str, Any], engines: tuple[str, ...] = ("local",), **changed: Any) -> dict[str, Any]:
    return {"Engines": list(engines), "QueuedJobs": 0, "Nodes": list(nodes), **changed}


def test_the_yards_own_machine_alone_is_not_listed_again() -> None:
    assert list(node_lines({"Lines": [line(node(""))]})) == []


def test_each_engine_is_listed_with_its_nodes_and_their_use() -> None:
    used = {"SlotsInUse": 3, "CpusInUse": 8.5, "MemoryBytesInUse": 16 * GIB, "Gpus": 8, "GpusInUse": 2}
    free = {"CpusInUse": 0.0, "MemoryBytesInUse": 0, "Spot": True}
    ray = line(node("10.0.0.1", **used), node("10.0.0.2", **free), engines=("ray",), QueuedJobs=1)
    here = line(node("", Slots=2), engines=("local", "container"))
    assert list(node_lines({"Lines": [here, ray]})) == [
        "",
        "local and container: 1 node, 0 jobs waiting",
        "node          slots   cores  memory    gpus  kind",
        "this machine  0 of 2  16     64.0 GiB",
        "",
        "ray: 2 nodes, 1 job waiting",
        "node      slots    cores      memory                gpus    kind",
        "10.0.0.1  3 of 16  8.5 of 16  16.0 GiB of 64.0 GiB  2 of 8",
        "10.0.0.2  0 of 16  0 of 16    0 B of 64.0 GiB               spot",
    ]


def test_an_engine_that_cannot_be_reached_says_why() -> None:
    away = line(engines=("ray",), QueuedJobs=2, Obstacle="The cluster does not answer.")
    assert list(node_lines({"Lines": [line(node("")), away]}))[-2:] == [
        "ray: 0 nodes, 2 jobs waiting",
        "The cluster does not answer.",
    ]


SHARE: dict[str, Any] = {"Instance": "algo-1", "InstanceType": "ml.m5.large", "Cpus": 2.0, "MemoryBytes": 4 * 1024**3}


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (SHARE, "2 cores, 4.0 GiB"),
        (SHARE | {"Cpus": 1.0, "Gpus": [0]}, "1 core, 4.0 GiB, GPU 0"),
        (SHARE | {"Cpus": 0.5, "Gpus": [0, 3]}, "0.5 cores, 4.0 GiB, GPUs 0, 3"),
        ({"Instance": "algo-1"}, "not limited"),
    ],
)
def test_a_share_shows_only_its_limits(share: dict[str, Any], text: str) -> None:
    assert share_text(share) == text


def test_equal_shares_are_shown_once() -> None:
    assert shares_text([SHARE, SHARE | {"Instance": "algo-2"}]) == ["2 cores, 4.0 GiB, each of 2"]
    assert shares_text([SHARE]) == ["2 cores, 4.0 GiB"]
    assert shares_text([]) == []


def test_unequal_shares_are_shown_one_by_one() -> None:
    other = SHARE | {"Instance": "algo-2", "Cpus": 1.0}
    assert shares_text([SHARE, other]) == ["algo-1  2 cores, 4.0 GiB", "algo-2  1 core, 4.0 GiB"]


def test_running_jobs_have_gauges_of_what_any_of_them_uses() -> None:
    jobs = [running("busy", CpuPercent=50.0, GpuPercent=100.0), running("quiet", CpuPercent=0.0), running("new")]
    waiting = [{"TrainingJobName": "later", "SecondaryStatus": "Pending", "CreationTime": NOON}]
    lines = yard_lines(yard(RunningJobs=jobs), waiting, now=NOON, filled="█")[-5:]
    assert lines[0].split()[-2:] == ["cpu", "gpu"]
    assert f"{'█' * 4}{'·' * 4}  50%  {'█' * 8} 100%" in lines[1]
    assert lines[2].endswith(f"{'·' * 8}   0%")
    assert lines[3].endswith("1 core, 1.0 GiB")
    assert lines[4].startswith("later")
