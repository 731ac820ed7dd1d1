"""What the sources of the machine make of files as kernels write them."""

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.instance.agent.watch.hardware.contract import HardwareSource
from trainyard.instance.agent.watch.hardware.machine import (
    CpuSource,
    DiskSource,
    MemorySource,
    NetworkSource,
    PressureSource,
    machine_sources,
)

M = HardwareMetric

STAT = """cpu  0 0 0 0 0 0 0 0 0 0
cpu0 {0}
cpu1 {1}
cpu2 500 0 500 0 0 0 0 0 0 0
intr 2863 0 0
ctxt 1
"""
NETWORK = """Inter-|   Receive                            |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 9999999    1    0    0    0     0          0         0 9999999    1    0    0    0     0       0          0
  eth0:{received}    1    0    0    0     0          0         0     {sent}    1    0    0    0     0       0          0
veth12: 7777    1    0    0    0     0          0         0 7777    1    0    0    0     0       0          0
"""
PRESSURE = (
    "some avg10=60.22 avg60=75.27 avg300=66.16 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"
)


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def read(source: HardwareSource, now_s: float) -> Mapping[tuple[HardwareMetric, str], float]:
    values = source.read(now_s)
    return {(each.metric, each.device): value for each, value in zip(source.series, values, strict=True)}


def test_cores_are_busy_for_the_share_of_time_in_which_they_work(tmp_path: Path) -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice
    put(tmp_path, "proc/stat", STAT.format("100 0 0 900 0 0 0 0 0 0", "0 0 0 1000 0 0 0 0 0 0"))
    source = CpuSource(tmp_path, {0, 1})
    assert all(math.isnan(value) for value in source.read(0.0))
    put(tmp_path, "proc/stat", STAT.format("110 5 5 960 10 5 5 0 0 0", "0 0 0 1075 25 0 0 0 0 0"))

    values = read(source, 1.0)

    assert values == {
        (M.CPU_PERCENT, "total"): 15.0,
        (M.CPU_PERCENT, "core0"): 30.0,
        (M.CPU_PERCENT, "core1"): 0.0,
        (M.IO_WAIT_PERCENT, "total"): 17.5,
        (M.IO_WAIT_PERCENT, "core0"): 10.0,
        (M.IO_WAIT_PERCENT, "core1"): 25.0,
    }


def test_within_one_tick_of_the_kernel_the_cores_stay_as_busy_as_they_were(tmp_path: Path) -> None:
    source = CpuSource(tmp_path, {0, 1})
    for user in (0, 50):
        put(tmp_path, "proc/stat", STAT.format(f"{user} 0 0 {user} 0 0 0 0 0 0", "0 0 0 0 0 0 0 0 0 0"))
        source.read(user)
    assert read(source, 51.0)[M.CPU_PERCENT, "core0"] == 50.0


def test_a_core_that_is_switched_off_changes_the_series(tmp_path: Path) -> None:
    put(tmp_path, "proc/stat", STAT.format("0 0 0 1 0 0 0 0 0 0", "0 0 0 1 0 0 0 0 0 0"))
    source = CpuSource(tmp_path, {0, 1})
    source.read(0.0)
    before = source.series
    put(tmp_path, "proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 5 0 0 0 0 0 0\nintr 1\n")
    source.read(1.0)
    assert source.series is not before
    assert [each.device for each in source.series] == ["total", "core0", "total", "core0"]


def test_memory_is_what_is_not_available(tmp_path: Path) -> None:
    put(tmp_path, "proc/meminfo", "MemTotal:  4000 kB\nMemFree:  100 kB\nMemAvailable:  1000 kB\nBuffers:  2 kB\n")
    values = read(MemorySource(tmp_path), 0.0)
    assert values == {(M.MEMORY_BYTES, ""): 3000 * 1024, (M.MEMORY_PERCENT, ""): 75.0}


def test_traffic_is_that_of_real_disks(tmp_path: Path) -> None:
    # Sectors read and written are the third and the seventh number.
    for name in ("sda", "loop0", "dm-0", "nvme0n1"):
        put(tmp_path, f"sys/block/{name}/stat", "  10 0 1000 5 20 0 2000 5 0 5 5\n")
    source = DiskSource(tmp_path, tmp_path)
    first = read(source, 100.0)
    put(tmp_path, "sys/block/sda/stat", "  11 0 1010 5 21 0 2040 5 0 5 5\n")

    values = read(source, 102.0)

    assert math.isnan(first[M.DISK_READ_BYTES_S, ""])
    assert values[M.DISK_READ_BYTES_S, ""] == 10 * 512 / 2
    assert values[M.DISK_WRITE_BYTES_S, ""] == 40 * 512 / 2
    assert 0 < values[M.DISK_PERCENT, ""] <= 100


@pytest.mark.parametrize("has_cards", [True, False])
def test_traffic_that_stays_on_the_machine_does_not_count(tmp_path: Path, has_cards: bool) -> None:
    for name in ("lo", "eth0", "veth12"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    if has_cards:
        (tmp_path / "sys/class/net/eth0/device").mkdir()
    put(tmp_path, "proc/net/dev", NETWORK.format(received=1000, sent=2000))
    source = NetworkSource(tmp_path)
    source.read(10.0)
    put(tmp_path, "proc/net/dev", NETWORK.format(received=1500, sent=2100).replace("9999999", "99999999"))

    values = read(source, 10.5)

    assert values == {(M.NETWORK_RECEIVED_BYTES_S, ""): 1000.0, (M.NETWORK_SENT_BYTES_S, ""): 200.0}


def test_pressure_is_the_share_of_time_in_which_programs_waited(tmp_path: Path) -> None:
    for name in ("cpu", "io", "memory"):
        put(tmp_path, f"proc/pressure/{name}", PRESSURE.format(some=1_000_000, full=500_000))
    source = PressureSource(tmp_path)
    source.read(0.0)
    put(tmp_path, "proc/pressure/io", PRESSURE.format(some=1_500_000, full=700_000))

    values = read(source, 2.0)

    assert values[M.PRESSURE_SOME_PERCENT, "io"] == 25.0
    assert values[M.PRESSURE_FULL_PERCENT, "io"] == 10.0
    assert values[M.PRESSURE_SOME_PERCENT, "cpu"] == 0.0
    assert (M.PRESSURE_FULL_PERCENT, "cpu") not in values


def test_a_kernel_that_does_not_measure_pressure_has_no_series_of_it(tmp_path: Path) -> None:
    put(tmp_path, "proc/pressure/cpu", "")
    assert PressureSource(tmp_path).series == []


def test_files_that_are_missing_are_values_that_are_missing(tmp_path: Path) -> None:
    for source in machine_sources(tmp_path, {0}, tmp_path):
        for now_s in (0.0, 1.0):
            values = read(source, now_s)
        assert all(math.isnan(value) for (metric, _), value in values.items() if metric is not M.DISK_PERCENT)
        source.close()


def test_this_machine_can_be_sampled() -> None:
    sources = machine_sources(Path("/"), {0}, Path("/tmp"))
    for source in sources:
        source.read(0.0)
    values = {key: value for source in sources for key, value in read(source, 1.0).items()}
    assert 0 <= values[M.MEMORY_PERCENT, ""] <= 100
    assert values[M.NETWORK_RECEIVED_BYTES_S, ""] >= 0
    assert 0 <= values[M.DISK_PERCENT, ""] <= 100
    assert (M.CPU_PERCENT, "core0") in values
