"""What every run does: keep to its share of the cores, and say at its end how many tests were skipped, and why.

Folders of tests lie in memory where there is plenty, for on a disk most tests wait for it most of the time.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

# Several processes share the tests. Threads of one that wait for each other by spinning while another has the core make
# a small training take a hundred times as long. Read by torch when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

MEMORY = Path("/dev/shm")
PLENTY_BYTES = 8 << 30


def _has_plenty(folder: Path) -> bool:
    """Whether a file system in memory has room for what tests write, and runs the programs that they make."""
    if not os.access(folder, os.W_OK):
        return False
    told = os.statvfs(folder)
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available_bytes = int(memory["MemAvailable"].split()[0]) * 1024
    return not told.f_flag & os.ST_NOEXEC and min(told.f_bavail * told.f_frsize, available_bytes) > PLENTY_BYTES


if _has_plenty(MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = terminalreporter.stats.get("skipped", [])
    if not reports:
        return
    reasons = Counter(_reason(report) for report in reports)
    terminalreporter.write_sep("-", f"{len(reports)} skipped, because")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5}  {reason}")


def _reason(report: pytest.TestReport) -> str:
    assert isinstance(report.longrepr, tuple), "pytest reports a skip as (file, line, reason)"
    return str(report.longrepr[2]).removeprefix("Skipped: ")
