"""What a job uses: by its control groups, or over its processes."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from trainyard.formats.profiles.contract import HardwareMetric
from trainyard.instance.agent.watch.hardware.job import JobCapacity, JobSource
from trainyard.instance.agent.watch.hardware.processes import ProcessTree
from trainyard.testing.eventually import eventually

M = HardwareMetric

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
GROUP = "sys/fs/cgroup/trainyard-job"
# One process that keeps a core busy, one that holds memory, and one that made both.
PROGRAM = """
import os, subprocess, sys, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
held = "b = b'x' * 50_000_000; import sys; print('held', flush=True); sys.stdin.read()"
busy = "print('busy', flush=True)\\nwhile True: pass"
children = [subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) for code in (held, busy)]
time.sleep(60)
"""


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def put_process(
    root: Path, pid: int, *, ticks: int = 0, children: str = "", resident: int = 0, shared: int = 0
) -> None:
    fields = f"S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 3 0 5 0 {resident}"
    put(root, f"proc/{pid}/stat", f"{pid} (a name) with ) in it) {fields} 0 0\n")
    put(root, f"proc/{pid}/statm", f"100000 {resident} {shared} 1 0 1 0\n")
    put(root, f"proc/{pid}/task/{pid}/children", children)


def source_of(root: Path, *, cores: float = 2.0, memory_bytes: float = 1_000_000_000) -> JobSource:
    return JobSource(root, 7, JobCapacity(cores, memory_bytes), cores=4)


def read(source: JobSource, now_s: float) -> Mapping[HardwareMetric, float]:
    values = source.read(now_s)
    return {each.metric: value for each, value in zip(source.series, values, strict=True)}


@pytest.fixture
def grouped(tmp_path: Path) -> Path:
    """A machine on which the job has a control group of its own."""
    put(tmp_path, "proc/self/mountinfo", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    put(tmp_path, "proc/7/cgroup", "0::/trainyard-job\n")
    put_process(tmp_path, 7, children="8 ")
    put_process(tmp_path, 8)
    put(tmp_path, f"{GROUP}/cpu.max", "200000 100000\n")
    put(tmp_path, f"{GROUP}/cpu.stat", "usage_usec 1000000\nnr_periods 10\nnr_throttled 1\n")
    put(tmp_path, f"{GROUP}/memory.current", "500000000\n")
    put(tmp_path, f"{GROUP}/memory.stat", "anon 1\ninactive_file 100000000\n")
    put(tmp_path, f"{GROUP}/memory.max", "800000000\n")
    put(tmp_path, f"{GROUP}/io.stat", "8:0 rbytes=1000 wbytes=2000 rios=1\n8:16 rbytes=1 wbytes=1\n")
    put(tmp_path, f"{GROUP}/cgroup.procs", "7\n8\n")
    return tmp_path


def test_a_control_group_tells_what_the_job_uses(grouped: Path) -> None:
    source = source_of(grouped)
    source.read(100.0)
    put(grouped, f"{GROUP}/cpu.stat", "usage_usec 4000000\nnr_periods 30\nnr_throttled 11\n")
    put(grouped, f"{GROUP}/io.stat", "8:0 rbytes=5000 wbytes=2000 rios=1\n8:16 rbytes=1 wbytes=8001\n")

    values = read(source, 102.0)

    assert values[M.JOB_CPU_PERCENT] == pytest.approx(75.0)
    assert values[M.JOB_MEMORY_BYTES] == 400_000_000
    assert values[M.JOB_MEMORY_PERCENT] == pytest.approx(40.0)
    assert values[M.JOB_READ_BYTES_S] == 2000
    assert values[M.JOB_WRITE_BYTES_S] == 4000
    assert values[M.JOB_PROCESSES] == 2
    assert values[M.JOB_THREADS] == 6
    assert values[M.JOB_THROTTLED_PERCENT] == 50.0


def test_limits_of_its_groups_are_what_the_job_may_use(grouped: Path) -> None:
    put(grouped, "proc/meminfo", "MemTotal:  4000000 kB\n")
    assert JobCapacity.of(grouped, 7, cores=8) == JobCapacity(2.0, 800_000_000)
    assert JobCapacity.of(grouped, 7, cores=1).cores == 1
    put(grouped, f"{GROUP}/cpu.max", "max 100000\n")
    put(grouped, f"{GROUP}/memory.max", "max\n")
    assert JobCapacity.of(grouped, 7, cores=8) == JobCapacity(8, 4_096_000_000)


def test_version_1_counts_in_files_of_other_names(tmp_path: Path) -> None:
    put(
        tmp_path,
        "proc/self/mountinfo",
        "1 1 0:1 / /sys/cpuacct rw - cgroup cgroup rw,cpuacct\n1 1 0:2 / /sys/memory rw - cgroup cgroup rw,memory\n",
    )
    put(tmp_path, "proc/self/cgroup", "2:cpuacct:/\n1:memory:/\n")
    put(tmp_path, "proc/7/cgroup", "2:cpuacct:/job\n1:memory:/job\n")
    put(tmp_path, "sys/cpuacct/job/cpuacct.usage", "1000000000\n")
    put(tmp_path, "sys/memory/job/memory.usage_in_bytes", "300\n")
    put(tmp_path, "sys/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n")
    source = source_of(tmp_path)
    source.read(0.0)
    put(tmp_path, "sys/cpuacct/job/cpuacct.usage", "2000000000\n")

    values = read(source, 1.0)

    assert values[M.JOB_CPU_PERCENT] == pytest.approx(50.0)
    assert values[M.JOB_MEMORY_BYTES] == 200
    assert M.JOB_THROTTLED_PERCENT not in values


def test_without_control_groups_the_processes_are_added_up(tmp_path: Path) -> None:
    put_process(tmp_path, 7, ticks=100, children="8 9", resident=50, shared=40)
    put_process(tmp_path, 8, ticks=0, resident=60, shared=30)
    put_process(tmp_path, 9, ticks=0, resident=10, shared=10)
    source = source_of(tmp_path)
    source.read(0.0)
    put_process(tmp_path, 8, ticks=TICKS, resident=60, shared=30)

    values = read(source, 1.0)

    assert values[M.JOB_CPU_PERCENT] == pytest.approx(50.0)
    assert values[M.JOB_MEMORY_BYTES] == (10 + 30 + 0 + 40) * PAGE
    assert (values[M.JOB_PROCESSES], values[M.JOB_THREADS]) == (3, 9)
    assert math.isnan(values[M.JOB_READ_BYTES_S])


def test_the_time_of_a_process_that_was_found_late_never_exceeds_what_the_machine_has(tmp_path: Path) -> None:
    put_process(tmp_path, 7)
    source = source_of(tmp_path, cores=4.0)
    source.read(0.0)
    put_process(tmp_path, 7, children="8")
    put_process(tmp_path, 8, ticks=10 * TICKS)

    shown = [read(source, now_s)[M.JOB_CPU_PERCENT] for now_s in (2.0, 3.0, 4.0)]

    # Ten seconds in all: four cores have eight in the first two seconds.
    assert shown == pytest.approx([100.0, 50.0, 0.0])


def test_a_process_that_ends_does_not_disturb_the_others(tmp_path: Path) -> None:
    put_process(tmp_path, 7, ticks=10, children="8")
    put_process(tmp_path, 8, ticks=50)
    source = source_of(tmp_path)
    source.read(0.0)
    for name in ("stat", "statm"):
        os.truncate(tmp_path / "proc/8" / name, 0)
    put_process(tmp_path, 7, ticks=10 + 50 + TICKS, children="")

    values = read(source, 1.0)

    assert values[M.JOB_CPU_PERCENT] == pytest.approx(50.0)


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert {started.stdout.readline(), started.stdout.readline()} == {"held\n", "busy\n"}
        yield started
        for child in _tree_of(started.pid)[::-1]:
            os.kill(child, 9)


def _tree_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in _tree_of(int(child)))]


def test_a_real_tree_of_processes_is_measured(program: subprocess.Popen[str]) -> None:
    tree = ProcessTree(Path("/"), program.pid)
    tree.refresh()
    before = tree.use()
    assert (before.processes, before.threads) == (3, 4)
    assert tree.memory_bytes() > 50_000_000
    assert tree.traffic() is not None
    eventually(lambda: tree.use().cpu_s > before.cpu_s)
    tree.close()
