"""Where samples go besides the yard's own files: CloudWatch's metrics of a host, and AWS's files on S3."""

import json
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import BUCKET
from trainyard.formats.metrics import PointsFile, series_file
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import Location
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.watch.hardware.aws_export import AwsSamplesExport, ExportTarget
from trainyard.instance.agent.watch.hardware.host_metrics import HostMetricPoints
from trainyard.link.contract import FrameKind
from trainyard.link.spool import SpoolWriter, read_frames
from trainyard.objects.contract import Attributes, ObjectAccess
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.eventually import eventually

M = HardwareMetric

JOB_CPU, JOB_MEMORY, DISK = (HardwareSeries(each) for each in (M.JOB_CPU_PERCENT, M.JOB_MEMORY_PERCENT, M.DISK_PERCENT))
GPUS = [HardwareSeries(M.GPU_PERCENT, f"gpu{number}") for number in range(2)]
SECOND = 1_000_000
MINUTE = 60 * SECOND
NOON = 1_700_049_600 * SECOND  # a whole minute


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[SpoolWriter]:
    with SpoolWriter(tmp_path / "spool") as opened:
        yield opened


def points(folder: Path, name: str) -> list[tuple[float, ...]]:
    batches = PointsFile(series_file(folder, name)).read(0, 2**62)
    return [
        point
        for each in batches
        for point in zip(each.micros, each.sums, each.minima, each.maxima, each.counts, strict=True)
    ]


def test_each_minute_is_one_point_with_its_statistics(tmp_path: Path, spool: SpoolWriter) -> None:
    sink = HostMetricPoints(tmp_path / "hardware", Reports(spool), cores=4.0)
    sink.begin([JOB_CPU, JOB_MEMORY, *GPUS], SECOND)
    for second, value in ((10, 20.0), (59, 40.0), (60, 100.0)):
        sink.append(NOON + second * SECOND, [value, value, value, 50.0])
    assert points(tmp_path / "hardware", "MemoryUtilization") == [(NOON + 10 * SECOND, 60.0, 20.0, 40.0, 2.0)]
    sink.close()

    assert points(tmp_path / "hardware", "MemoryUtilization")[1:] == [(NOON + MINUTE, 100.0, 100.0, 100.0, 1.0)]
    # Cores and GPUs add up, as on AWS.
    assert points(tmp_path / "hardware", "CPUUtilization")[0][1:4] == (240.0, 80.0, 160.0)
    assert points(tmp_path / "hardware", "GPUUtilization")[0][1:4] == (160.0, 70.0, 90.0)
    assert not series_file(tmp_path / "hardware", "DiskUtilization").exists()


def test_metrics_are_reported_once_they_have_points(tmp_path: Path, spool: SpoolWriter) -> None:
    sink = HostMetricPoints(tmp_path / "hardware", Reports(spool), cores=1.0)
    sink.begin([JOB_CPU, DISK], SECOND)
    for minute in range(3):
        sink.append(NOON + minute * MINUTE, [math.nan if minute == 0 else 1.0, 2.0])
    sink.close()
    frames = [frame for frame in read_frames(tmp_path / "spool", 0).frames if frame.kind is FrameKind.HARDWARE]
    assert [frame.payload["metrics"] for frame in frames] == [
        ["DiskUtilization"],
        ["DiskUtilization", "CPUUtilization"],
    ]
    assert len(points(tmp_path / "hardware", "CPUUtilization")) == 2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    opened = FilesystemObjects(tmp_path / "objects")
    opened.create_bucket(BUCKET, region="us-west-2", now=utc_now())
    yield opened
    opened.close()


def export_to(
    open_store: Callable[[], ObjectAccess], *, is_enabled: bool = True, end_s: float = 10.0
) -> AwsSamplesExport:
    where = Location(BUCKET, "output/mnist/profiler-output/")
    target = ExportTarget(where, "algo-1", Attributes(), open_store=open_store, may_write=lambda: True)
    return AwsSamplesExport(target, is_enabled=is_enabled, end_s=end_s)


def stored(store: FilesystemObjects) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for each in store.list_objects(BUCKET, prefix="output/").objects:
        with store.open(Location(BUCKET, each.key)) as reader:
            found[each.key] = [json.loads(line) for line in reader.read(0, each.size).splitlines()]
    return found


def test_files_have_the_names_and_lines_that_readers_of_aws_expect(tmp_path: Path, store: FilesystemObjects) -> None:
    sink = export_to(lambda: FilesystemObjects(tmp_path / "objects"))
    series = [
        *(HardwareSeries(M.CPU_PERCENT, "total"), HardwareSeries(M.CPU_PERCENT, "core0")),
        *(HardwareSeries(M.IO_WAIT_PERCENT, "core0"), HardwareSeries(M.MEMORY_PERCENT), GPUS[1], JOB_CPU),
        HardwareSeries(M.NETWORK_SENT_BYTES_S),
    ]
    sink.begin(series, SECOND)
    sink.append(NOON + SECOND // 2, [50.0, 97.5, 3.0, 12.25, math.nan, 1.0, 1e6])
    sink.append(NOON + MINUTE, [50.0, 1.0, 1.0, 1.0, 88.0, 1.0, 1.0])
    sink.close()

    found = stored(store)

    first, second = (
        f"output/mnist/profiler-output/system/incremental/2023111512/{at}.algo-1.json"
        for at in (1700049600, 1700049660)
    )
    assert list(found) == [first, second]
    common = {"NodeId": "algo-1", "Timestamp": 1700049600.5}
    assert found[first] == [
        {"Type": "cpu", "Name": "cpu0", "Dimension": "CPUUtilization", "Value": 97.5, **common},
        {"Type": "cpu", "Name": "cpu0", "Dimension": "I/OWaitPercentage", "Value": 3.0, **common},
        {"Type": "memory", "Name": "MemoryUsedPercent", "Dimension": "", "Value": 12.25, **common},
        {"Type": "network", "Name": "TransmitBytesPerSecond", "Dimension": "Algorithm", "Value": 1e6, **common},
    ]
    assert {
        "Type": "gpu",
        "Name": "gpu1",
        "Dimension": "GPUUtilization",
        "Value": 88.0,
        "NodeId": "algo-1",
        "Timestamp": 1700049660.0,
    } in found[second]


def test_nothing_is_stored_unless_it_is_asked_for_and_that_may_change(tmp_path: Path, store: FilesystemObjects) -> None:
    sink = export_to(lambda: FilesystemObjects(tmp_path / "objects"), is_enabled=False)
    sink.begin([HardwareSeries(M.MEMORY_PERCENT)], SECOND)
    for second, is_enabled in ((0, False), (1, True), (2, True), (3, False)):
        sink.is_enabled = is_enabled
        sink.append(NOON + second * SECOND, [float(second)])
    sink.close()
    (lines,) = stored(store).values()
    assert [line["Value"] for line in lines] == [1.0, 2.0]


def test_a_store_that_cannot_be_reached_delays_nothing_and_what_is_given_up_is_counted() -> None:
    asked = threading.Event()

    def fail() -> ObjectAccess:
        asked.set()
        raise Unavailable("The store cannot be reached.")

    sink = export_to(fail, end_s=0.1)
    sink.begin([HardwareSeries(M.MEMORY_PERCENT)], SECOND)
    for minute in range(20):
        sink.append(NOON + minute * MINUTE, [1.0])
    eventually(asked.is_set)
    sink.close()
    assert sink.dropped == 20
