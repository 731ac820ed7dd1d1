"""Samples a machine and the processes below one of them, and tells what that costs.

Takes a library, the process above all others of a job, a number of seconds, and an interval in seconds. Prints as JSON
the CPU seconds that the samples took, how many there were, and how many values the last one had.
"""

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path


def main(library: str, pid: int, seconds: float, interval_s: float) -> None:
    if library == "trainyard":
        told = measure_ours(pid, seconds, interval_s)
    elif library == "trainyard-gpus":
        told = measure_ours(pid, seconds, interval_s, gpus=numbers_of_gpus())
    else:
        # The tree of processes is looked up at each sample, as psutil's documentation has it, or once in a second.
        told = measure_psutil(pid, seconds, interval_s, tree_every_s=0.0 if library == "psutil" else 1.0)
    print(json.dumps(told))


def numbers_of_gpus() -> Sequence[int]:
    from trainyard.instance.agent.watch.hardware.nvml import load_nvml

    library = load_nvml()
    assert library is not None, "a machine with GPUs has nvidia-ml-py"
    return range(library.nvmlDeviceGetCount())


def measure_ours(pid: int, seconds: float, interval_s: float, *, gpus: Sequence[int] = ()) -> dict[str, float]:
    """Run the loop of the agent, which also writes the samples. A thread of this process reads the GPUs."""
    from trainyard.formats.profiles.hardware_writer import HardwareWriter
    from trainyard.instance.agent.watch.hardware.contract import HardwareSource
    from trainyard.instance.agent.watch.hardware.gpus import GpuSource
    from trainyard.instance.agent.watch.hardware.job import JobCapacity, JobSource
    from trainyard.instance.agent.watch.hardware.machine import machine_sources
    from trainyard.instance.agent.watch.hardware.sampler import HardwareSampler
    from trainyard.instance.agent.watch.hardware.sampling import SampleLoop

    root, cores = Path("/"), os.sched_getaffinity(0)
    capacity = JobCapacity.of(root, pid, cores=len(cores))
    with tempfile.TemporaryDirectory() as folder:
        sources: list[HardwareSource] = [
            *machine_sources(root, cores, Path(folder)),
            JobSource(root, pid, capacity, cores=len(cores)),
        ]
        if gpus:
            # Agents on this machine that read its GPUs already would do it for this process too.
            sources.append(GpuSource(gpus, interval_s=interval_s, file=Path(folder) / "gpus"))
        sampler = HardwareSampler(sources)
        loop = SampleLoop(sampler, [HardwareWriter(Path(folder))], interval_s=interval_s)
        thread = threading.Thread(target=loop.run)
        thread.start()
        # Opening the files is no part of a sample.
        time.sleep(1)
        before, taken = time.process_time(), loop.taken
        time.sleep(seconds)
        used, samples = time.process_time() - before, loop.taken - taken
        loop.end()
        thread.join()
    return {"cpu_s": used, "samples": samples, "values": len(sampler.series)}


def measure_psutil(pid: int, seconds: float, interval_s: float, *, tree_every_s: float) -> dict[str, float]:
    """Read the same with psutil, and keep it in memory."""
    import psutil

    job = psutil.Process(pid)
    tree: list[psutil.Process] = []
    looked_up_at = 0.0

    def sample(now: float) -> list[float]:
        nonlocal tree, looked_up_at
        if now - looked_up_at >= tree_every_s:
            tree, looked_up_at = [job, *job.children(recursive=True)], now
        row: list[float] = []
        for core in psutil.cpu_times_percent(percpu=True):
            row += [100 - core.idle - core.iowait, core.iowait]
        memory = psutil.virtual_memory()
        row += [memory.used, memory.percent]
        for disk in psutil.disk_io_counters(perdisk=True).values():
            row += [disk.read_bytes, disk.write_bytes]
        for card in psutil.net_io_counters(pernic=True).values():
            row += [card.bytes_recv, card.bytes_sent]
        for process in tree:
            with process.oneshot():
                times, used = process.cpu_times(), process.memory_info()
                row += [times.user + times.system, used.rss, process.num_threads()]
                traffic = process.io_counters()
                row += [traffic.read_bytes, traffic.write_bytes]
        return row

    rows = [sample(time.monotonic())]
    before, begun = time.process_time(), time.monotonic()
    due = begun
    while due < begun + seconds:
        due += interval_s
        time.sleep(max(0.0, due - time.monotonic()))
        rows.append(sample(time.monotonic()))
    return {"cpu_s": time.process_time() - before, "samples": len(rows) - 1, "values": len(rows[-1])}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
