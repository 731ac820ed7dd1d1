"""Runs training scripts with the profiler in them and the sampler of the hardware beside them, without a yard."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from trainyard.formats.profiles.hardware_writer import HardwareWriter
from trainyard.insight.profiling.contract import InstanceFacts, JobProfile
from trainyard.insight.profiling.loading import InstanceSource, load_profile
from trainyard.instance.agent.watch.hardware.contract import HardwareSource
from trainyard.instance.agent.watch.hardware.gpus import GpuSource
from trainyard.instance.agent.watch.hardware.job import JobCapacity, JobSource
from trainyard.instance.agent.watch.hardware.machine import machine_sources
from trainyard.instance.agent.watch.hardware.sampler import HardwareSampler
from trainyard.instance.agent.watch.hardware.sampling import SampleLoop
from trainyard.link.event_protocol import PROFILER_CONFIG, STEP_TIMES

PROGRAMS = Path(__file__).parent / "planted_programs"
HOST = "algo-1"
HAS_GPU = Path("/dev/nvidiactl").exists()
_ROOT = Path("/")
_INTERVAL_S = 0.1
# Programs are short, so that samples have to be taken more often than a job would allow them to cost.
_MAX_SHARE = 0.02
_LIMIT_S = 180
# Threads that compute together wait for each other, which takes all the time on a machine that other tests keep busy.
_THREADS = "1"

# What the hook does in the program of a job before its first line.
_RUN = """
import os, runpy, sys
from pathlib import Path
import torch
from trainyard.instance.hook.profiling.attachment import attach_profiler
attach_profiler("torch", Path(sys.argv[1]), os.environ, note=lambda text: print(text, file=sys.stderr))
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# The process above all ranks, which a launcher is in a job.
_LAUNCH = """
import os, subprocess, sys
count, command = sys.argv[1], sys.argv[2:]
ranks = [{"RANK": str(each), "LOCAL_RANK": str(each), "WORLD_SIZE": count} for each in range(int(count))]
started = [subprocess.Popen(command, env={**os.environ, **each}) for each in ranks]
sys.exit(max(each.wait() for each in started))
"""


def run_profiled(
    folder: Path,
    program: str,
    options: Sequence[str] = (),
    *,
    ranks: int = 1,
    environment: Mapping[str, str] | None = None,
) -> JobProfile:
    """Run a planted program in an empty folder; return its profile, as that of a job on this machine."""
    ml, hardware = folder / "ml", folder / "hardware"
    config = ml / PROFILER_CONFIG
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"DisableProfiler": False}))
    command = [sys.executable, "-c", _RUN, str(ml), str(PROGRAMS / program), *options]
    if ranks > 1:
        command = [sys.executable, "-c", _LAUNCH, str(ranks), *command]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "OMP_NUM_THREADS": _THREADS}
    started_us = time.time_ns() // 1000
    with (folder / "output").open("wb") as output:
        running = subprocess.Popen(
            command,
            env={**os.environ, **variables, **(environment or {})},
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        _prefer(running.pid)
        cores = os.sched_getaffinity(0)
        capacity = JobCapacity.of(_ROOT, running.pid, cores=len(cores))
        try:
            with _sampled(hardware, running.pid, capacity):
                code = running.wait(_LIMIT_S)
        finally:
            running.kill()
            running.wait()
    assert code == 0, (folder / "output").read_text()
    facts = InstanceFacts(
        "ml.test.large",
        capacity.cores,
        round(capacity.memory_bytes),
        ("GPU",) if HAS_GPU else (),
        price_per_hour=0.1,
        currency="USD",
    )
    source = InstanceSource(HOST, hardware, ml / STEP_TIMES, facts)
    return load_profile(Path(program).stem, [source], started_us=started_us, ended_us=time.time_ns() // 1000)


def _prefer(pid: int) -> None:
    """Let a process that leads a session go before the other tests, which would take its cores, if that is allowed."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, -10)
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-10")


@contextmanager
def _sampled(folder: Path, pid: int, capacity: JobCapacity) -> Iterator[None]:
    """Sample the hardware as the agent does."""
    cores = os.sched_getaffinity(0)
    sources: list[HardwareSource] = [*machine_sources(_ROOT, cores, folder.parent)]
    sources.append(JobSource(_ROOT, pid, capacity, cores=len(cores)))
    if HAS_GPU:
        sources.append(GpuSource([0], interval_s=_INTERVAL_S))
    loop = SampleLoop(HardwareSampler(sources, max_share=_MAX_SHARE), [HardwareWriter(folder)], interval_s=_INTERVAL_S)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield
    finally:
        loop.end()
        thread.join()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
