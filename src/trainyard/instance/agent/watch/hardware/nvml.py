"""Reads NVIDIA's GPUs through NVML, by the binding nvidia-ml-py where it is installed."""

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from trainyard.formats.profiles.contract import HardwareMetric

NAN = float("nan")

# The values of a reading, in this order. Only differences of energy mean something.
GPU_METRICS = (
    HardwareMetric.GPU_PERCENT,
    HardwareMetric.GPU_MEMORY_BUSY_PERCENT,
    HardwareMetric.GPU_MEMORY_PERCENT,
    HardwareMetric.GPU_MEMORY_BYTES,
    HardwareMetric.GPU_POWER_WATTS,
    HardwareMetric.GPU_ENERGY_JOULES,
    HardwareMetric.GPU_CLOCK_MHZ,
    HardwareMetric.GPU_TEMPERATURE_CELSIUS,
    HardwareMetric.GPU_THROTTLE_REASONS,
)

# Clocks, temperature and throttle reasons are slower to read, and change slowly.
_SLOW_S = 1.0
# On an H200 the counter of energy takes 3.5 ms of a processor, all else together 0.01 ms (2026-11-19).
_COUNTER_S = 15.0
_RETRY_S = 60.0
# NVML_CLOCK_SM and NVML_TEMPERATURE_GPU.
_CLOCK_SM, _TEMPERATURE_GPU = 1, 0

log = logging.getLogger(__name__)


class NvmlLibrary(Protocol):
    """The functions of nvidia-ml-py that are used. Handles are opaque; any call may raise `NVMLError`."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...  # noqa: N802 - NVIDIA's names, here and below
    def nvmlShutdown(self) -> None: ...  # noqa: N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> Any: ...  # noqa: N802
    def nvmlDeviceGetUtilizationRates(self, handle: Any, /) -> Any: ...  # noqa: N802
    def nvmlDeviceGetMemoryInfo(self, handle: Any, /) -> Any: ...  # noqa: N802
    def nvmlDeviceGetPowerUsage(self, handle: Any, /) -> int: ...  # noqa: N802
    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, /) -> int: ...  # noqa: N802
    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, /) -> int: ...  # noqa: N802
    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int, /) -> int: ...  # noqa: N802
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, /) -> int: ...  # noqa: N802


def load_nvml() -> NvmlLibrary | None:
    """Return the initialised library; None without the binding, the driver or a GPU. Takes up to seconds."""
    try:
        library = cast(NvmlLibrary, importlib.import_module("pynvml"))
    except ImportError:
        return None
    try:
        library.nvmlInit()
        return library if library.nvmlDeviceGetCount() else None
    except library.NVMLError as error:
        log.info("GPUs are not sampled", extra={"why": str(error)})
        return None


class NvmlGpus:
    """All GPUs of the machine, in NVML's order, which is that of nvidia-smi. One thread uses it."""

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        self._gpus = [
            _Gpu(library, library.nvmlDeviceGetHandleByIndex(index)) for index in range(library.nvmlDeviceGetCount())
        ]
        self._next_slow_s = 0.0

    def __len__(self) -> int:
        return len(self._gpus)

    def read(self, now_s: float) -> Sequence[Sequence[float]]:
        """Return the values of each GPU in the order of GPU_METRICS; NaN for what a GPU cannot tell."""
        if now_s >= self._next_slow_s:
            self._next_slow_s = now_s + _SLOW_S
            for gpu in self._gpus:
                gpu.read_slow(now_s)
        return [gpu.read(now_s) for gpu in self._gpus]

    def close(self) -> None:
        try:
            self._library.nvmlShutdown()
        except self._library.NVMLError as error:
            log.info("NVML was not shut down", extra={"why": str(error)})


class _Gpu:
    def __init__(self, library: NvmlLibrary, handle: Any) -> None:
        self._library = library
        self._handle = handle
        self._slow: Sequence[float] = (NAN, NAN, NAN)
        self._energy = _EnergyMeter()
        # When what the GPU did not answer is asked for again: it may lack the sensor, or be in a reset.
        self._asked_again_s: dict[str, float] = {}

    def read(self, now_s: float) -> Sequence[float]:
        nvml, handle = self._library, self._handle
        busy = self._ask("utilization", now_s, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._ask("memory", now_s, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        milliwatts = self._ask("power", now_s, lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        watts = NAN if milliwatts is None else milliwatts / 1000
        if self._energy.is_due(now_s):
            counted = self._ask("energy", now_s, lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
            self._energy.set(NAN if counted is None else counted / 1000, now_s)
        return (
            *((float(busy.gpu), float(busy.memory)) if busy is not None else (NAN, NAN)),
            *((100.0 * memory.used / memory.total, float(memory.used)) if memory is not None else (NAN, NAN)),
            watts,
            self._energy.advance(watts, now_s),
            *self._slow,
        )

    def read_slow(self, now_s: float) -> None:
        nvml, handle = self._library, self._handle
        clock = self._ask("clock", now_s, lambda: nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM))
        heat = self._ask("temperature", now_s, lambda: nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU))
        reasons = self._ask("reasons", now_s, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        self._slow = [NAN if each is None else float(each) for each in (clock, heat, reasons)]

    def _ask(self, what: str, now_s: float, call: Callable[[], Any]) -> Any:
        if now_s < self._asked_again_s.get(what, 0.0):
            return None
        try:
            return call()
        except self._library.NVMLError:
            self._asked_again_s[what] = now_s + _RETRY_S
            return None


class _EnergyMeter:
    """The energy that a GPU has used: its counter, which is read seldom, and power times time since then.

    Without a counter it is power times time alone, and without either it is unknown. It never decreases.
    """

    def __init__(self) -> None:
        self._joules = NAN
        self._due_s = 0.0
        self._at_s = 0.0

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._due_s

    def set(self, joules: float, now_s: float) -> None:
        """Take the value of the counter; NaN if it cannot be read."""
        self._due_s = now_s + _COUNTER_S
        if joules == joules:
            # Power times time may have come out higher.
            self._joules = joules if self._joules != self._joules else max(self._joules, joules)
            self._at_s = now_s

    def advance(self, watts: float, now_s: float) -> float:
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        if watts == watts:
            self._joules = self._joules + watts * elapsed_s if self._joules == self._joules else 0.0
        return self._joules
