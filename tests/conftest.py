"""What every run does: keep to its share of the cores, and say at its end how many tests were skipped, and why."""

import os
from collections import Counter

import pytest

# Several processes share the tests. Threads of one that wait for each other by spinning while another has the core make
# a small training take a hundred times as long. Read by torch when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")


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
