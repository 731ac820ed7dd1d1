"""The profiler on a real yard: samples on the yard, in CloudWatch and on S3, and changes while a job runs."""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.system.fuzz.world import User
from tests.system.trainees import GROUP, Trainee
from tests.system.yards import trainee_of
from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.formats.profiles.hardware_reader import read_hardware
from trainyard.formats.profiles.hardware_segments import HardwareSegment, hardware_segments
from trainyard.foundation.clock import utc_now
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard, start_yard

WAIT = """
import time
print("waiting", flush=True)
while True:
    sum(range(10000))
    time.sleep(0.01)
"""
# A few steps of a program that the hook could time.
TRAIN = """
import time
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def anna(administrator: User) -> Trainee:
    return Trainee(administrator.add_user("anna")).prepare()


def instance_folder(yard: RunningYard, name: str) -> Path:
    for spec in yard.home.jobs.glob("*/*/algo-1/spec.json"):
        if json.loads(spec.read_text())["job_name"] == name:
            return spec.parent
    raise AssertionError(f"{name} has no instance")


def exported(anna: Trainee, prefix: str) -> list[dict[str, Any]]:
    s3 = anna.user.client("s3")
    bodies = [s3.get_object(Bucket=anna.bucket, Key=key)["Body"].read() for key in anna.keys(prefix)]
    return [json.loads(line) for body in bodies for line in body.splitlines()]


def host_statistics(anna: Trainee, host: str, metric: str) -> list[dict[str, Any]]:
    now = utc_now()
    answer = anna.user.client("cloudwatch").get_metric_statistics(
        Namespace=GROUP,
        MetricName=metric,
        Dimensions=[{"Name": "Host", "Value": host}],
        StartTime=now - timedelta(minutes=10),
        EndTime=now + timedelta(minutes=1),
        Period=60,
        Statistics=["Average", "SampleCount"],
        Unit="Percent",
    )
    points: list[dict[str, Any]] = answer["Datapoints"]
    return points


@pytest.mark.flow
def test_a_job_is_sampled_as_it_asks_and_as_updates_change_it(anna: Trainee, yard: RunningYard) -> None:
    config = {"S3OutputPath": "s3://data/profiles", "ProfilingIntervalInMilliseconds": 100}
    anna.start("sampled", WAIT, ProfilerConfig=config)
    anna.await_line("sampled", "waiting")
    folder = instance_folder(yard, "sampled") / "hardware"
    eventually(lambda: len(read_hardware(folder)) > 10)
    anna.sagemaker.update_training_job(
        TrainingJobName="sampled", ProfilerConfig={"ProfilingIntervalInMilliseconds": 1000}
    )
    assert anna.describe("sampled")["ProfilerConfig"]["ProfilingIntervalInMilliseconds"] == 1000
    eventually(lambda: intervals_ms(hardware_segments(folder)) == [100, 1000], within=timedelta(seconds=20))

    anna.sagemaker.update_training_job(TrainingJobName="sampled", ProfilerConfig={"DisableProfiler": True})
    # Everything that was sampled so far is stored then.
    eventually(lambda: exported(anna, "profiles/sampled/profiler-output/system/"), within=timedelta(seconds=20))
    count = len(read_hardware(folder))
    anna.sagemaker.update_training_job(
        TrainingJobName="sampled", ProfilerConfig={"ProfilingIntervalInMilliseconds": 200}
    )
    eventually(lambda: len(read_hardware(folder)) > count + 2, within=timedelta(seconds=20))
    assert intervals_ms(hardware_segments(folder))[-1] == 200
    anna.sagemaker.stop_training_job(TrainingJobName="sampled")
    anna.reach("sampled", "Stopped")

    table = read_hardware(folder)
    lines = exported(anna, "profiles/sampled/profiler-output/system/incremental/")
    cores = {line["Name"] for line in lines if line["Dimension"] == "CPUUtilization"}
    assert {f"cpu{number}" for number in range(len(cores))} == cores
    assert cores
    assert {line["NodeId"] for line in lines} == {"algo-1"}
    used = [line for line in lines if line["Name"] == "MemoryUsedPercent"]
    assert len(used) == len(table)
    assert {round(line["Timestamp"] * 1e6) for line in used} == set(table.times_us.tolist())
    listed = anna.user.client("cloudwatch").list_metrics(Dimensions=[{"Name": "Host", "Value": "sampled/algo-1"}])
    utilisation = {"CPUUtilization", "MemoryUtilization", "DiskUtilization"}
    assert {metric["MetricName"] for metric in listed["Metrics"]} == utilisation
    for metric in sorted(utilisation):
        points = host_statistics(anna, "sampled/algo-1", metric)
        assert sum(point["SampleCount"] for point in points) > 10
        assert all(point["Average"] > 0 for point in points)
    assert any(series.metric is HardwareMetric.JOB_CPU_PERCENT for series in table.series)


@pytest.mark.flow
def test_a_job_without_a_profiler_records_nothing(anna: Trainee, yard: RunningYard) -> None:
    told = anna.run("private", TRAIN, ProfilerConfig={"DisableProfiler": True})
    assert (told["TrainingJobStatus"], told["ProfilingStatus"]) == ("Completed", "Disabled")
    folder = instance_folder(yard, "private")
    assert not (folder / "hardware").exists()
    assert not (folder / "steps").exists()
    assert anna.keys("out/private/profiler-output") == []
    assert host_statistics(anna, "private/algo-1", "CPUUtilization") == []


def test_a_job_that_says_nothing_is_profiled_on_the_yard_only(anna: Trainee, yard: RunningYard) -> None:
    told = anna.run("plain", TRAIN)
    assert (told["TrainingJobStatus"], told["ProfilingStatus"]) == ("Completed", "Enabled")
    folder = instance_folder(yard, "plain")
    assert intervals_ms(hardware_segments(folder / "hardware")) == [1000]
    assert sorted(path.name for path in (folder / "steps").iterdir()) == ["worker_0.json", "worker_0.steps"]
    assert anna.keys("out/plain/profiler-output") == []


def test_an_update_reaches_a_job_whose_yard_is_killed_right_after_it(tmp_path: Path) -> None:
    first = start_yard(tmp_path / "yard")
    try:
        anna = trainee_of(first).prepare()
        anna.start("sampled", WAIT)
        anna.await_line("sampled", "waiting")
        config = {"ProfilingIntervalInMilliseconds": 100}
        anna.sagemaker.update_training_job(TrainingJobName="sampled", ProfilerConfig=config)
    finally:
        first.kill()
    with running_yard(tmp_path / "yard") as second:
        folder = instance_folder(second, "sampled") / "hardware"
        eventually(lambda: 100 in intervals_ms(hardware_segments(folder)), within=timedelta(seconds=30))
        anna = trainee_of(second)
        anna.sagemaker.stop_training_job(TrainingJobName="sampled")
        anna.reach("sampled", "Stopped")


def intervals_ms(segments: Sequence[HardwareSegment]) -> list[int]:
    """Return the intervals of the segments with samples, each once, in order."""
    found = [segment.header.interval_us // 1000 for segment in segments if segment.header and segment.count]
    return list(dict.fromkeys(found))
