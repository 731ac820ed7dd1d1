"""A job that writes 50 MB of log per second: its cost for the agent and the server, and its effect on other clients.

    python -m benchmarks.log_flood [--rate MB-PER-SECOND] [--seconds N]

There are two floods, one without metrics and one with three metric definitions whose expressions never match. CPU is
that of the agent and of the server during the flood, in cores; memory is the highest value seen. Another client
describes a job before and during the flood. At the end, every written byte must be in the log.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measurement import memory, own_cpu_seconds, write_results
from benchmarks.yard_jobs import SCRIPTS, Jobs, open_jobs
from trainyard.formats.logs.segments import segments_of
from trainyard.link.agent_process import find_agent_process
from trainyard.link.folders import InstanceFolder
from trainyard.link.specs import read_spec

SCRIPT = SCRIPTS / "flood.py"
METRICS = [
    {"Name": "loss", "Regex": "loss: ([0-9.]+)"},
    {"Name": "accuracy", "Regex": r"accuracy=(\S+)"},
    {"Name": "rate", "Regex": r"\[rate\] ([0-9.]+) images/s"},
]

# As scripts/flood.py writes them.
LINE_BYTES = 104
FILLING = b" " + b"x" * (LINE_BYTES - 22) + b"\n"

_QUIET_S = 5.0
_CALL_EVERY_S = 0.01
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Flood:
    """One flood. CPU in cores, memory in MB, latencies of the other client in milliseconds."""

    written_mb_per_s: float
    lost_bytes: int
    agent_cpu: float
    agent_memory: float
    server_cpu: float
    server_memory: float
    server_memory_before: float
    p50_before: float
    p99_before: float
    p50_during: float
    p99_during: float


def main() -> None:
    arguments = _arguments()
    floods: dict[str, Flood] = {}
    with (
        tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder,
        open_jobs(Path(folder) / "home", python=Path(sys.executable)) as jobs,
    ):
        floods["no metric"] = _flood(jobs, [], rate=arguments.rate, seconds=arguments.seconds)
        floods["three metrics"] = _flood(jobs, METRICS, rate=arguments.rate, seconds=arguments.seconds)
    _print(floods)
    plain = {name: asdict(each) for name, each in floods.items()}
    path = write_results("log_flood", {"rate": arguments.rate, "seconds": arguments.seconds, "floods": plain})
    print(f"\nAll of it is in {path}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what a flood of log lines costs.")
    parser.add_argument("--rate", type=float, default=50.0, help="MB a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    return parser.parse_args()


class Watcher:
    """Another client of the yard, which also samples the memory of the server and of an agent."""

    def __init__(self, jobs: Jobs, *, name: str, agent: int | None = None) -> None:
        self.latencies_ms: list[float] = []
        self.agent_memory = 0.0
        self.server_memory = 0.0
        self._jobs, self._name, self._agent = jobs, name, agent

    def watch(self, seconds: float) -> float:
        """Call repeatedly for some time, and return how long that took."""
        begun = time.perf_counter()
        looked_at = 0.0
        while (now := time.perf_counter()) - begun < seconds:
            self._jobs.describe(self._name)
            self.latencies_ms.append((time.perf_counter() - now) * 1000)
            if now - looked_at > _LOOK_EVERY_S:
                looked_at = now
                self._look()
            time.sleep(_CALL_EVERY_S)
        return time.perf_counter() - begun

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    def _look(self) -> None:
        self.server_memory = max(self.server_memory, memory(self._jobs.yard.process.pid).proportional)
        if self._agent is not None:
            self.agent_memory = max(self.agent_memory, memory(self._agent).proportional)


def _flood(jobs: Jobs, metrics: Sequence[Mapping[str, str]], *, rate: float, seconds: float) -> Flood:
    quiet = Watcher(jobs, name=_idle_job(jobs))
    quiet.watch(_QUIET_S)
    arguments = {"rate": str(rate), "seconds": str(seconds)}
    name = jobs.create(SCRIPT, jobs.upload(SCRIPT), arguments=arguments, metrics=metrics)
    folder = _folder_of(jobs, name)
    agent, server = _agent_of(folder), jobs.yard.process.pid
    busy = Watcher(jobs, name=name, agent=agent)
    before = own_cpu_seconds(agent), own_cpu_seconds(server)
    spent = busy.watch(seconds * 0.9)
    agent_s, server_s = own_cpu_seconds(agent) - before[0], own_cpu_seconds(server) - before[1]
    jobs.finish(name)
    lines, took = _closing_words(folder)
    return Flood(
        written_mb_per_s=lines * LINE_BYTES / took / 1e6,
        lost_bytes=_lost_bytes(folder, lines),
        agent_cpu=agent_s / spent,
        agent_memory=busy.agent_memory,
        server_cpu=server_s / spent,
        server_memory=busy.server_memory,
        server_memory_before=quiet.server_memory,
        p50_before=quiet.percentile(0.5),
        p99_before=quiet.percentile(0.99),
        p50_during=busy.percentile(0.5),
        p99_during=busy.percentile(0.99),
    )


def _idle_job(jobs: Jobs) -> str:
    """Run a job to its end, for the other client to describe before the flood."""
    script = SCRIPTS / "first_line.py"
    name = jobs.create(script, jobs.upload(script))
    jobs.finish(name)
    return name


def _folder_of(jobs: Jobs, name: str) -> InstanceFolder:
    """Return the folder of the only instance of a job, once its program has written something."""
    while True:
        for spec in jobs.yard.home.jobs.glob("*/1/algo-1/spec.json"):
            folder = InstanceFolder(spec.parent)
            if read_spec(folder.root).job_name == name and any(each.end for each in segments_of(folder.logs)):
                return folder
        time.sleep(0.01)


def _agent_of(folder: InstanceFolder) -> int:
    presence = find_agent_process(folder.root)
    assert presence is not None, "an instance that has written something has an agent"
    return presence.pid


def _closing_words(folder: InstanceFolder) -> tuple[int, float]:
    """Return how many lines the program says it wrote, and in how many seconds."""
    match = re.search(rb"wrote (\d+) lines in ([\d.]+) s\n", _tail(folder))
    assert match is not None, "the last line of the program is in the log"
    return int(match[1]), float(match[2])


def _tail(folder: InstanceFolder) -> bytes:
    with segments_of(folder.logs)[-1].log_file.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        return file.read()


def _lost_bytes(folder: InstanceFolder, lines: int) -> int:
    """Return how many bytes of the lines are missing in the log."""
    lost, number = 0, 0
    rest = b""
    for segment in segments_of(folder.logs):
        data = rest + segment.log_file.read_bytes()
        if not number:
            data = re.sub(rb"\A(?:\[trainyard\].*\n)*", b"", data)  # lines of the agent
        count = min(len(data) // LINE_BYTES, lines - number)
        wanted = b"".join(b"%020d%s" % (each, FILLING) for each in range(number, number + count))
        if data[: len(wanted)] != wanted:
            lost += sum(a != b for a, b in zip(data, wanted, strict=False))
        rest, number = data[len(wanted) :], number + count
    return lost + (lines - number) * LINE_BYTES


def _print(floods: Mapping[str, Flood]) -> None:
    rows: dict[str, Callable[[Flood], str]] = {
        "written, MB/s": lambda flood: f"{flood.written_mb_per_s:.1f}",
        "lost, bytes; goal 0": lambda flood: f"{flood.lost_bytes}{'   missed' if flood.lost_bytes else ''}",
        "CPU of the agent, % of a core": lambda flood: f"{flood.agent_cpu * 100:.1f}",
        "CPU of the server, % of a core": lambda flood: f"{flood.server_cpu * 100:.1f}",
        "memory of the agent, MB": lambda flood: f"{flood.agent_memory:.0f}",
        "memory of the server, MB": lambda flood: f"{flood.server_memory_before:.0f} -> {flood.server_memory:.0f}",
        "another call, p50 ms": lambda flood: f"{flood.p50_before:.1f} -> {flood.p50_during:.1f}",
        "another call, p99 ms": lambda flood: f"{flood.p99_before:.1f} -> {flood.p99_during:.1f}",
    }
    print(f"\n{'':34}" + "".join(f"{name:>20}" for name in floods))
    for title, shown in rows.items():
        print(f"{title:34}" + "".join(f"{shown(flood):>20}" for flood in floods.values()))


if __name__ == "__main__":
    main()
