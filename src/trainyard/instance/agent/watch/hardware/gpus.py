"""The source about the GPUs of a job. All agents of a user on one machine share one reader of NVML.

Reading a GPU takes a lock of its driver, which the programs on it need too, so it is read once for all jobs. The
agents elect the reader by a lock on a shared file, to which it writes what it reads. When the reader ends, in whatever
way, the kernel releases its lock, and the next agent that tries takes over.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.foundation.clock import boottime
from trainyard.instance.agent.watch.hardware.gpu_readings import Readings, SharedReadings, is_fresh, shared_file
from trainyard.instance.agent.watch.hardware.nvml import GPU_METRICS, NvmlGpus, load_nvml

# How often an agent that is not the reader looks whether there still is one.
_ELECTION_S = 0.5
# NVML may not answer for as long as a GPU is being reset.
_END_S = 1.0
_ENERGY = GPU_METRICS.index(HardwareMetric.GPU_ENERGY_JOULES)
_UNKNOWN = [float("nan")] * len(GPU_METRICS)

log = logging.getLogger(__name__)


class GpuReader(Protocol):
    """Reads all GPUs of the machine, as NvmlGpus does."""

    def read(self, now_s: float, /) -> Readings: ...

    def close(self) -> None: ...


def open_nvml() -> GpuReader | None:
    library = load_nvml()
    return NvmlGpus(library) if library is not None else None


class GpuSource:
    """Samples the GPUs of a job: `gpus` are their numbers on the machine, and "gpu0" is the first of them.

    A thread of its own reads the GPUs, so that a driver that does not answer delays no other source. `open_reader`
    opens the GPUs of the machine if this agent is elected; None means that they cannot be read.
    """

    interval_s = 0.0

    def __init__(
        self,
        gpus: Sequence[int],
        *,
        interval_s: float,
        file: Path | None = None,
        open_reader: Callable[[], GpuReader | None] = open_nvml,
    ) -> None:
        self._gpus = gpus
        self._wanted_s = interval_s
        self._open_reader = open_reader
        self._shared = SharedReadings.open(file or shared_file())
        self._own: tuple[float, Readings] = (0.0, ())
        self._first_joules: dict[int, float] = {}
        self._is_over = threading.Event()
        self.is_reader = False
        self.series = [HardwareSeries(metric, f"gpu{number}") for number in range(len(gpus)) for metric in GPU_METRICS]
        self._thread = threading.Thread(target=self._serve, name="gpus", daemon=True)
        self._thread.start()

    def want(self, interval_s: float) -> None:
        """Change how often the GPUs are read."""
        self._wanted_s = interval_s

    def read(self, now_s: float) -> Sequence[float]:
        at_s, readings = self._own
        if not is_fresh(at_s, now_s, interval_s=self._wanted_s):
            readings = ()
        if self._shared is not None and not self.is_reader:
            self._shared.put_wish(self._wanted_s, now_s)
            readings = self._shared.read(now_s, interval_s=self._wanted_s) or ()
        values: list[float] = []
        for gpu in self._gpus:
            values += self._since_first(gpu, readings[gpu]) if gpu < len(readings) else _UNKNOWN
        return values

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(_END_S)
        # A thread that still waits for the driver keeps the file until the agent exits.
        if not self._thread.is_alive() and self._shared is not None:
            self._shared.close()

    def _since_first(self, gpu: int, values: Sequence[float]) -> Sequence[float]:
        joules = values[_ENERGY]
        if joules != joules:
            return values
        return [*values[:_ENERGY], joules - self._first_joules.setdefault(gpu, joules), *values[_ENERGY + 1 :]]

    def _serve(self) -> None:
        """Wait to be elected, then read the GPUs for all until the end."""
        while not self._is_elected():
            if self._is_over.wait(_ELECTION_S):
                return
        try:
            reader = self._open_reader()
        except Exception:
            log.warning("GPUs are not sampled", exc_info=True)
            return
        if reader is None:
            return
        try:
            self._read_until_end(reader)
        except Exception:
            log.warning("GPUs are not sampled any more", exc_info=True)
        finally:
            self.is_reader = False
            reader.close()

    def _is_elected(self) -> bool:
        return self._shared is None or self._shared.try_lock()

    def _read_until_end(self, reader: GpuReader) -> None:
        while True:
            now_s = boottime()
            readings = reader.read(now_s)
            self._own, self.is_reader = (now_s, readings), True
            if self._shared is not None:
                self._shared.write(readings, now_s)
            wish_s = self._shared.wish(now_s) if self._shared is not None else self._wanted_s
            if self._is_over.wait(max(0.0, min(self._wanted_s, wish_s) - (boottime() - now_s))):
                return
