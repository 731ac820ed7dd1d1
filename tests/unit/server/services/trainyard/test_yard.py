import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.control.bench import open_bench
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker import requests
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from tests.unit.server.services.trainyard.test_jobs import SPOT, start
from trainyard.engines.contract import Capacity, Node
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.formats.profiles.hardware_writer import HardwareWriter
from trainyard.foundation.clock import to_micros
from trainyard.foundation.home import process_start
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Resource, ResourceKey
from trainyard.server.services.trainyard import queues
from trainyard.testing.engines import SimulatedEngine, run


def test_a_yard_describes_its_machine_and_its_use(anna: As) -> None:
    told = anna("trainyard", "DescribeYard")
    machine = anna.yard.compute.engines.default.capacity()
    assert (told["Engine"], told["Slots"], told["SlotsInUse"]) == (
        anna.yard.compute.engines.default.name,
        machine.slots,
        0,
    )
    assert (told["Cpus"], told["MemoryBytes"], told["Gpus"]) == (machine.cpus, machine.memory_bytes, [*machine.gpus])
    assert 0 <= told["CpuUse"] <= (os.cpu_count() or 1) * 1.1
    assert told["MemoryUse"] > 0
    assert (told["QueuedJobs"], told["RunningJobs"], told["WarmWorkers"]) == (0, [], [])


def test_users_see_their_own_jobs_and_administrators_all(accounts: Accounts, anna: As) -> None:
    for number in range(3):
        create(anna.at(seconds(number)), f"job-{number}")
    start(anna, name="job-0")
    told = anna("trainyard", "DescribeYard")
    (running,) = told["RunningJobs"]
    assert (running["TrainingJobName"], running["UserName"], running["StartTime"]) == ("job-0", "anna", seconds(1))
    assert (told["SlotsInUse"], told["QueuedJobs"]) == (1, 2)
    others = accounts.ben("trainyard", "DescribeYard")
    assert (others["RunningJobs"], others["SlotsInUse"], others["QueuedJobs"]) == ([], 1, 2)
    assert accounts.admin("trainyard", "DescribeYard")["RunningJobs"] == told["RunningJobs"]


def test_a_job_that_is_stopping_runs_and_one_that_ended_does_not(anna: As) -> None:
    for name in ("stopping", "ended"):
        create(anna, name)
        start(anna, name=name)
    remember(anna, advance(load(anna, "stopping"), SecondaryStatus.STOPPING, at=seconds(3)))
    ended = load(anna, "ended")
    ended = ended.with_attempt(replace(ended.attempts[0], ended_at=seconds(3)))
    remember(anna, advance(ended, SecondaryStatus.COMPLETED, at=seconds(3)))
    told = anna("trainyard", "DescribeYard")
    assert [each["TrainingJobName"] for each in told["RunningJobs"]] == ["stopping"]
    assert told["QueuedJobs"] == 0


@pytest.mark.parametrize("kind", [{}, SPOT], ids=["on demand", "spot"])
def test_only_the_running_jobs_of_a_long_queue_are_read(
    anna: As, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        create(anna.at(seconds(number)), f"job-{number}", **kind)
    for name in ("job-0", "job-2"):
        start(anna, name=name)
    read: list[str] = []

    def watched(resource: Resource) -> TrainingJob:
        read.append(resource.key.name)
        return job_of(resource)

    monkeypatch.setattr(queues, "instance_job_of", watched)
    (found,) = queues.load_queues(anna.yard)
    assert [each.job.name for each in found.running] == ["job-0", "job-2"]
    assert (found.waiting, found.instances) == (7, 2)
    assert read == ["job-0", "job-2"]
    assert queues.queue_position(anna.yard, load(anna, "job-8")) == 7
    assert queues.queue_position(anna.yard, load(anna, "job-1")) == 1


def test_a_yard_tells_its_nodes_and_how_many_wait_for_each_engine(tmp_path: Path) -> None:
    reserving = Node("x", 4, 4.0, 16 * 1024**3, (0, 1), reserves=True, is_spot=False)
    far = SimulatedEngine(tmp_path / "jobs", name="far", is_here=False, capacity=Capacity((reserving,)), role=run)
    with open_bench(tmp_path, more=[far]) as bench:
        for number in range(3):
            bench.create(f"job-{number}", Tags=[{"Key": "trainyard:engine", "Value": "far"}])
            bench.watch.forward(1)
        bench.place()
        bench.place()
        told = bench.anna("trainyard", "DescribeYard")
        assert [each["Shares"][0]["Node"] for each in told["RunningJobs"]] == ["x", "x"]
        here, there = told["Lines"]
        assert (here["Engines"], here["QueuedJobs"], there["Engines"], there["QueuedJobs"]) == (
            ["simulated"],
            0,
            ["far"],
            1,
        )
        (used,) = there["Nodes"]
        assert (used["Name"], used["SlotsInUse"], used["CpusInUse"], used["GpusInUse"]) == ("x", 2, 4.0, 0)
        assert (told["SlotsInUse"], told["QueuedJobs"]) == (0, 1)
        quote = bench.anna(
            "trainyard",
            "QuoteJob",
            InstanceType="ml.m5.large",
            InstanceCount=1,
            Tags=[{"Key": "trainyard:engine", "Value": "far"}],
        )
        assert (quote["Shares"][0]["Node"], quote["FreeSlots"], quote["QueuedJobs"]) == ("x", 2, 1)


def test_the_position_of_a_job_counts_the_turns_of_accounts(tmp_path: Path) -> None:
    with open_bench(tmp_path) as bench:
        ben = requests.prepare(replace(bench.accounts.ben, yard=bench.anna.yard))
        for number in range(5):
            bench.create(f"job-{number}")
            bench.watch.forward(1)
        bench.create("bens", by=ben)
        assert ben("trainyard", "DescribeJob", TrainingJobName="bens")["QueuePosition"] == 2
        assert bench.anna("trainyard", "DescribeJob", TrainingJobName="job-1")["QueuePosition"] == 2
        assert bench.anna("trainyard", "DescribeJob", TrainingJobName="job-4")["QueuePosition"] == 5


def test_warm_workers_are_seen_by_their_user(accounts: Accounts, anna: As, tmp_path: Path) -> None:
    folder = tmp_path / "warm" / anna.account / "key"
    folder.mkdir(parents=True)
    facts = {"pid": os.getpid(), "started": process_start(os.getpid()), "python": "/usr/bin/python3"}
    (folder / "worker.json").write_text(json.dumps(facts))
    yard = replace(anna.yard, compute=replace(anna.yard.compute, warm=tmp_path / "warm"))
    (worker,) = replace(anna, yard=yard)("trainyard", "DescribeYard")["WarmWorkers"]
    assert (worker["Pid"], worker["Python"]) == (os.getpid(), "/usr/bin/python3")
    assert worker["MemoryBytes"] > 0
    assert replace(accounts.ben, yard=yard)("trainyard", "DescribeYard")["WarmWorkers"] == []
    assert len(replace(accounts.admin, yard=yard)("trainyard", "DescribeYard")["WarmWorkers"]) == 1


def test_a_running_job_shows_what_it_uses_of_its_hardware_now(anna: As) -> None:
    create(anna, "job")
    start(anna, name="job")
    series = [
        HardwareSeries(HardwareMetric.JOB_CPU_PERCENT),
        HardwareSeries(HardwareMetric.GPU_PERCENT, "gpu0"),
        HardwareSeries(HardwareMetric.GPU_PERCENT, "gpu1"),
        HardwareSeries(HardwareMetric.JOB_MEMORY_PERCENT),
    ]
    job_id = anna.yard.records.load(ResourceKey(anna.account, KIND, "job")).id
    with HardwareWriter(anna.yard.compute.jobs / job_id / "1" / "algo-1" / "hardware") as writer:
        writer.begin(series, 1_000_000)
        writer.append(to_micros(seconds(19)), [1.0, 1.0, 1.0, 1.0])
        writer.append(to_micros(seconds(20)), [60.0, 90.0, 70.0, math.nan])

    (now,) = anna.at(seconds(21))("trainyard", "DescribeYard")["RunningJobs"]
    (later,) = anna.at(seconds(60))("trainyard", "DescribeYard")["RunningJobs"]

    assert (now["CpuPercent"], now["GpuPercent"]) == (60.0, 80.0)
    assert "MemoryPercent" not in now
    assert "CpuPercent" not in later
