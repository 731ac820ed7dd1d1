"""GPUs are read once for all agents of a machine.

No GPU is needed: the functions of NVIDIA's binding are replaced by ones that answer as it does, because nothing else
here can. Whether the real ones do is for a machine with a GPU.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.foundation.clock import boottime
from trainyard.instance.agent.watch.hardware.gpu_readings import SharedReadings
from trainyard.instance.agent.watch.hardware.gpus import GpuReader, GpuSource, open_nvml
from trainyard.instance.agent.watch.hardware.nvml import GPU_METRICS, NvmlGpus, NvmlLibrary, load_nvml
from trainyard.testing.eventually import eventually

M = HardwareMetric


class NvmlError(Exception):
    """What the binding raises."""


@dataclass
class Utilization:
    gpu: int
    memory: int


@dataclass
class Memory:
    total: int
    free: int
    used: int


@dataclass
class RecordedNvml:
    """Answers as the binding does for an H200 that works. `refused` are the functions that its GPUs do not support."""

    gpus: int = 2
    refused: frozenset[str] = frozenset()
    calls: list[str] = field(default_factory=list)
    joules: int = 1_000
    NVMLError: type[Exception] = NvmlError

    def nvmlInit(self) -> None:  # noqa: N802
        self.calls.append("init")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.calls.append("shutdown")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: Any, /) -> Utilization:  # noqa: N802
        return Utilization(90 + handle, 40)

    def nvmlDeviceGetMemoryInfo(self, _handle: Any, /) -> Memory:  # noqa: N802
        return Memory(total=150_000_000_000, free=112_500_000_000, used=37_500_000_000)

    def nvmlDeviceGetPowerUsage(self, _handle: Any, /) -> int:  # noqa: N802
        return 412_345

    def nvmlDeviceGetTotalEnergyConsumption(self, _handle: Any, /) -> int:  # noqa: N802
        self._ask("energy")
        self.joules += 7
        return self.joules * 1000

    def nvmlDeviceGetClockInfo(self, _handle: Any, kind: int, /) -> int:  # noqa: N802
        assert kind == 1
        return 1980

    def nvmlDeviceGetTemperature(self, _handle: Any, sensor: int, /) -> int:  # noqa: N802
        assert sensor == 0
        self._ask("temperature")
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _handle: Any, /) -> int:  # noqa: N802
        return 4

    def _ask(self, what: str) -> None:
        self.calls.append(what)
        if what in self.refused:
            raise NvmlError("Not Supported")


class CountingReader:
    """Reads GPUs whose utilisation is the number of the read."""

    def __init__(self, gpus: int = 2) -> None:
        self.gpus = gpus
        self.reads = 0
        self.is_closed = False

    def read(self, _now_s: float, /) -> Sequence[Sequence[float]]:
        self.reads += 1
        return [[float(self.reads + 100 * gpu)] * len(GPU_METRICS) for gpu in range(self.gpus)]

    def close(self) -> None:
        self.is_closed = True


ENERGY = GPU_METRICS.index(M.GPU_ENERGY_JOULES)


@pytest.fixture
def sources() -> Iterator[list[GpuSource]]:
    opened: list[GpuSource] = []
    yield opened
    for source in opened:
        source.close()


def values_of(source: GpuSource) -> Mapping[tuple[HardwareMetric, str], float]:
    values = source.read(boottime())
    return {(each.metric, each.device): value for each, value in zip(source.series, values, strict=True)}


def busy(source: GpuSource) -> float:
    return values_of(source)[M.GPU_PERCENT, "gpu0"]


def test_readings_have_the_units_of_their_names() -> None:
    gpus = NvmlGpus(RecordedNvml())
    first, second = gpus.read(0.0)
    assert dict(zip(GPU_METRICS, first, strict=True)) == {
        M.GPU_PERCENT: 90,
        M.GPU_MEMORY_BUSY_PERCENT: 40,
        M.GPU_MEMORY_PERCENT: 25.0,
        M.GPU_MEMORY_BYTES: 37_500_000_000,
        M.GPU_POWER_WATTS: 412.345,
        M.GPU_ENERGY_JOULES: 1007,
        M.GPU_CLOCK_MHZ: 1980,
        M.GPU_TEMPERATURE_CELSIUS: 61,
        M.GPU_THROTTLE_REASONS: 4,
    }
    assert second[0] == 91


def test_what_changes_slowly_is_read_once_a_second() -> None:
    library = RecordedNvml(gpus=1)
    gpus = NvmlGpus(library)
    for tenth in range(20):
        gpus.read(tenth / 10)
    gpus.close()
    assert library.calls.count("temperature") == 2
    assert library.calls.count("energy") == 1
    assert library.calls[-1] == "shutdown"


def test_energy_is_power_times_time_between_two_reads_of_its_counter() -> None:
    library = RecordedNvml(gpus=1)
    gpus = NvmlGpus(library)
    joules = [gpus.read(float(second))[0][ENERGY] for second in range(16)]
    # The counter says 1007 and, after 15 s, 1014; at 412 W it would be more, and energy does not decrease.
    assert joules == pytest.approx([1007 + 412.345 * second for second in range(15)] + [1007 + 412.345 * 14])
    library.joules = 20_000
    for second in range(16, 31):
        (values,) = gpus.read(float(second))
    assert values[ENERGY] == 20_007
    assert library.calls.count("energy") == 3


def test_what_a_gpu_does_not_support_is_missing_and_asked_for_again_only_after_a_while() -> None:
    library = RecordedNvml(gpus=1, refused=frozenset({"temperature"}))
    gpus = NvmlGpus(library)
    for second in range(65):
        (values,) = gpus.read(float(second))
        assert math.isnan(values[GPU_METRICS.index(M.GPU_TEMPERATURE_CELSIUS)])
        assert values[0] == 90
    assert library.calls.count("temperature") == 2


def test_without_a_counter_energy_is_power_times_time() -> None:
    library = RecordedNvml(gpus=1, refused=frozenset({"energy"}))
    gpus = NvmlGpus(library)
    joules = [gpus.read(float(second))[0][ENERGY] for second in range(65)]
    assert joules == pytest.approx([412.345 * second for second in range(65)])
    assert library.calls.count("energy") == 2


def test_the_names_of_the_binding_are_those_that_are_used() -> None:
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    names = [name for name in vars(NvmlLibrary) if name.startswith("nvml")]
    assert [name for name in names if not callable(getattr(pynvml, name, None))] == []
    assert (pynvml.NVML_CLOCK_SM, pynvml.NVML_TEMPERATURE_GPU) == (1, 0)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_has_no_reader() -> None:
    assert load_nvml() is None
    assert open_nvml() is None


def test_the_gpus_of_a_job_count_from_zero(tmp_path: Path, sources: list[GpuSource]) -> None:
    sources.append(GpuSource([1], interval_s=0.01, file=tmp_path / "gpus", open_reader=CountingReader))
    eventually(lambda: values_of(sources[0])[M.GPU_PERCENT, "gpu0"] > 100)


def test_one_agent_reads_for_all(tmp_path: Path, sources: list[GpuSource]) -> None:
    readers: list[CountingReader] = []

    def open_reader() -> GpuReader:
        readers.append(CountingReader())
        return readers[-1]

    sources += [GpuSource([0], interval_s=0.02, file=tmp_path / "gpus", open_reader=open_reader) for _ in range(3)]
    for source in sources:
        eventually(lambda source=source: busy(source) > 3)  # type: ignore[misc]
    assert len(readers) == 1
    assert [source.is_reader for source in sources].count(True) == 1


def test_another_agent_takes_over_when_the_reader_ends(tmp_path: Path, sources: list[GpuSource]) -> None:
    first = GpuSource([0], interval_s=0.02, file=tmp_path / "gpus", open_reader=CountingReader)
    eventually(lambda: first.is_reader)
    sources.append(GpuSource([0], interval_s=0.02, file=tmp_path / "gpus", open_reader=CountingReader))
    eventually(lambda: busy(sources[0]) > 0)
    assert not sources[0].is_reader
    first.close()
    eventually(lambda: sources[0].is_reader and busy(sources[0]) > 0)


def test_the_reader_reads_as_often_as_anybody_wants(tmp_path: Path, sources: list[GpuSource]) -> None:
    reader = CountingReader()
    sources.append(GpuSource([0], interval_s=0.2, file=tmp_path / "gpus", open_reader=lambda: reader))
    eventually(lambda: sources[0].is_reader)
    shared = SharedReadings.open(tmp_path / "gpus")
    assert shared is not None
    shared.put_wish(0.01, boottime())
    eventually(lambda: reader.reads > 30)
    # The wish of a slower one does not undo it.
    shared.put_wish(1.0, boottime())
    assert shared.wish(boottime()) == 0.01
    assert shared.wish(boottime() + 60) == math.inf
    shared.close()


def test_energy_counts_from_the_first_sample(tmp_path: Path, sources: list[GpuSource]) -> None:
    sources.append(
        GpuSource([0], interval_s=0.01, file=tmp_path / "gpus", open_reader=lambda: NvmlGpus(RecordedNvml(gpus=1)))
    )
    eventually(lambda: not math.isnan(busy(sources[0])))
    first = values_of(sources[0])[M.GPU_ENERGY_JOULES, "gpu0"]
    assert first < 1000
    eventually(lambda: values_of(sources[0])[M.GPU_ENERGY_JOULES, "gpu0"] > first)


def test_gpus_that_cannot_be_read_are_missing_values(tmp_path: Path, sources: list[GpuSource]) -> None:
    def fail() -> GpuReader:
        raise OSError("the driver is broken")

    sources.append(GpuSource([0], interval_s=0.01, file=tmp_path / "gpus", open_reader=fail))
    sources.append(GpuSource([5], interval_s=0.01, file=tmp_path / "other", open_reader=CountingReader))
    eventually(lambda: sources[1].is_reader)
    assert math.isnan(busy(sources[0]))
    assert math.isnan(busy(sources[1]))


def test_a_file_of_another_user_is_not_used(tmp_path: Path, sources: list[GpuSource]) -> None:
    (tmp_path / "gpus").symlink_to("/etc/hosts")
    assert SharedReadings.open(tmp_path / "gpus") is None
    if os.geteuid() == 0:
        (tmp_path / "foreign").write_bytes(b"")
        os.chown(tmp_path / "foreign", 54_321, 54_321)
        assert SharedReadings.open(tmp_path / "foreign") is None
    # Such an agent reads for itself.
    sources.append(GpuSource([0], interval_s=0.01, file=tmp_path / "gpus", open_reader=CountingReader))
    eventually(lambda: busy(sources[0]) > 0)


def test_old_readings_are_none(tmp_path: Path) -> None:
    shared = SharedReadings.open(tmp_path / "gpus")
    assert shared is not None
    assert shared.read(100.0, interval_s=1.0) is None
    assert shared.try_lock()
    shared.write([[1.0] * len(GPU_METRICS)], 100.0)
    assert shared.read(101.0, interval_s=1.0) == [(1.0,) * len(GPU_METRICS)]
    assert shared.read(104.0, interval_s=1.0) is None
    assert shared.read(104.0, interval_s=10.0) is not None
    shared.close()
