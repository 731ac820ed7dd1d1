"""Settings of every test run: one thread per process, and a summary of the skipped tests with their reasons.

The folders of tests are in memory where there is enough, because most tests spend their time on disk access.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

# Several processes run the tests in parallel. Threads that spin while another process has the core would make a small
# training a hundred times slower. torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

MEMORY = Path("/dev/shm")
PLENTY_BYTES = 8 << 30


def _has_plenty(folder: Path) -> bool:
    """Tell whether a file system in memory has room for the files of tests and can execute their programs."""
    if not os.access(folder, os.W_OK):
        return False
    status = os.statvfs(folder)
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available_bytes = int(memory["MemAvailable"].split()[0]) * 1024
    return not status.f_flag & os.ST_NOEXEC and min(status.f_bavail * status.f_frsize, available_bytes) > PLENTY_BYTES


if _has_plenty(MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


# Folders whose tests run whole jobs or whole clients. `make system` runs them, `make test` only those marked `flow`.
WHOLE_SYSTEM = {"system", "conformance", "docs", "faults", "browser"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `system` what `make test` leaves to `make system`, before pytest selects by marker."""
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).parts[0] in WHOLE_SYSTEM and item.get_closest_marker("flow") is None:
            item.add_marker(pytest.mark.system)


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
