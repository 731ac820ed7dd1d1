from datetime import UTC, datetime, timedelta
from typing import Any

from trainyard.cli.yard_view import warm_text, yard_lines

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


def test_the_machine_is_shown_in_bars() -> None:
    lines = yard_lines(yard(), [], now=NOON, filled="█")
    assert [line.split()[0] for line in lines[:5]] == ["trainyard", "slots", "cpu", "memory", "queue"]
    assert lines[1] == f"slots   {'█' * 12}{'·' * 12}  1 of 2"
    assert lines[2] == f"cpu     {'█' * 6}{'·' * 18}  0.5 of 2 cores"
    assert lines[3] == f"memory  {'█' * 6}{'·' * 18}  2.0 GiB of 8.0 GiB"
    assert lines[-1] == "No job runs."


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
    assert lines[4].startswith("queue   1 job waits;")
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
    assert warm_text(yard()) == "no worker"
    assert warm_text(yard(WarmWorkers=[worker])) == "1 worker, 100.0 MiB"
    assert warm_text(yard(WarmWorkers=[worker, worker])) == "2 workers, 200.0 MiB"
