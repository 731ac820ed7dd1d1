import numpy as np
import pytest

from tests.profiles import HEALTHY, cpu_hardware, job
from tests.unit.insight.rules.profiler.checking import check


def test_each_series_of_each_host_is_summed_up() -> None:
    found = check("OverallSystemUsage", HEALTHY["two_hosts"]())
    assert not found.findings
    assert found.datapoints == 2400
    assert set(found.details) == {"algo-1", "algo-2"}
    names = [(row["metric"], row["device"]) for row in found.details["algo-1"]]
    assert names[0] == ("cpu_percent", "core0")
    assert ("gpu_percent", "gpu1") in names
    assert ("gpu_energy_joules", "gpu0") not in names


def test_percentiles_are_of_the_samples() -> None:
    memory = np.linspace(0, 100, 1001)
    (row,) = [
        row
        for row in check("OverallSystemUsage", job(1001, cpu_hardware(1001, memory=memory))).details["algo-1"]
        if row["metric"] == "job_memory_percent"
    ]
    expected = {"min": 0, "p50": 50, "p95": 95, "p99": 99, "max": 100, "mean": 50}
    assert {name: row[name] for name in expected} == pytest.approx(expected, abs=0.3)


def test_without_samples_there_is_nothing_to_sum_up() -> None:
    assert check("OverallSystemUsage", HEALTHY["empty"]()).undecided
