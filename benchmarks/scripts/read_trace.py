"""Reads one trace of torch.profiler and tells what that costs.

Takes a way, a file, and a small one of the same kind. The ways are `tables` and `profile`, which are ours without and
with the analysis of the tables; `json` of the standard library, which makes no tables; and `tb_profiler`. Prints as
JSON the CPU seconds without imports, the peak of the resident memory in MB, and how much there was to count.
"""

import json
import sys
import time
from pathlib import Path


def read_tables(path: Path) -> int:
    from trainyard.formats.profiles.traces.reader import read_trace

    with path.open("rb") as file:
        return len(read_trace(file).events)


def read_profile(path: Path) -> int:
    from trainyard.formats.profiles.traces.reader import read_trace
    from trainyard.insight.profiling.traces.trace_profile import profile_trace

    with path.open("rb") as file:
        return len(profile_trace(read_trace(file)).operators)


def read_json(path: Path) -> int:
    return len(json.loads(path.read_bytes())["traceEvents"])


def read_tb_profiler(path: Path) -> int:
    from torch_tb_profiler.profiler.data import RunProfileData

    return len(RunProfileData.parse("worker", 0, str(path), str(path.parent)).events)


READERS = {"tables": read_tables, "profile": read_profile, "json": read_json, "tb_profiler": read_tb_profiler}


def main(way: str, path: Path, small: Path) -> None:
    # This imports what is needed, which is no part of reading.
    READERS[way](small)
    before = time.process_time()
    events = READERS[way](path)
    used = time.process_time() - before
    print(json.dumps({"cpu_s": used, "peak_mb": peak_mb(), "count": events}))


def peak_mb() -> float:
    """Return the peak of the resident memory. That of getrusage(2) would include the process that started this one."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
