"""The points, hardware samples and steps of a job, as the charts of its page read them."""

from contextlib import aclosing
from datetime import datetime
from typing import Any

from trainyard.foundation.clock import from_micros
from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.pages.job.live import compact_points
from trainyard.server.dashboard.visit import BadRequest

# As many points of all metrics as a browser draws and keeps without trouble, and of one as a wide screen can show.
_PAGE_POINTS = 100_000
_MIN_POINTS, MAX_POINTS = 200, 2000
_HARDWARE_PERIODS = 400
_STEP_ROWS = 1000
# What the page shows. The profiler has the rest.
_HARDWARE = (
    *("job_cpu_percent", "job_memory_bytes", "job_read_bytes_s", "job_write_bytes_s"),
    *("network_received_bytes_s", "network_sent_bytes_s"),
    *("gpu_percent", "gpu_memory_bytes", "gpu_power_watts"),
)


def points_of_each(metric_count: int) -> int:
    """Return how many points of each metric to send where a page shows so many metrics."""
    return max(_MIN_POINTS, min(MAX_POINTS, _PAGE_POINTS // max(1, metric_count)))


async def read_all_points(visit: Visit, name: str, max_points: int) -> list[dict[str, Any]]:
    """Return the points of all metrics of a job that has ended."""
    asked = {"TrainingJobName": name, "MaxPoints": max_points}
    async with aclosing(visit.api.lines("trainyard", "FollowMetrics", asked)) as lines:
        return [compact_points(line) async for line in lines if line["kind"] == "points"]


async def read_metric_points(visit: Visit, name: str, metric: str) -> list[dict[str, Any]]:
    """Return the points of one metric, in the time range that the query names."""
    asked: dict[str, Any] = {"TrainingJobName": name, "MetricName": metric, "MaxPoints": MAX_POINTS}
    for member, parameter in (("StartTime", "from"), ("EndTime", "to")):
        if parameter in visit.query:
            asked[member] = _time_in(visit, parameter)
    async with aclosing(visit.api.lines("trainyard", "ReadMetric", asked)) as lines:
        return [compact_points(line | {"metric": metric}) async for line in lines if line]


async def read_hardware(visit: Visit, name: str) -> dict[str, Any]:
    """Return the hardware of each instance over time, and when which step of the program was done."""
    asked = {"TrainingJobName": name, "MaxPoints": _HARDWARE_PERIODS, "Metrics": list(_HARDWARE)}
    async with aclosing(visit.api.lines("trainyard", "ReadHardware", asked)) as lines:
        series = [_series(line) async for line in lines if line]
    return {"series": series, "steps": await read_steps(visit, name)}


async def read_steps(visit: Visit, name: str) -> list[dict[str, Any]]:
    """Return when which step was done, of one worker for each attempt: the steps of all workers go together."""
    found: dict[int, dict[str, Any]] = {}
    asked = {"TrainingJobName": name, "SpreadRows": _STEP_ROWS}
    async with aclosing(visit.api.lines("trainyard", "ReadSteps", asked)) as lines:
        async for line in lines:
            if line.get("numbers") and line["attempt"] not in found:
                found[line["attempt"]] = {
                    "attempt": line["attempt"],
                    "at": [at_us / 1e6 for at_us in line["ended_us"]],
                    "numbers": [
                        number + count - 1 for number, count in zip(line["numbers"], line["counts"], strict=True)
                    ],
                }
    return list(found.values())


def _series(line: dict[str, Any]) -> dict[str, Any]:
    labels = {name: line[name] for name in ("instance", "attempt", "metric", "device")}
    values = {name: line[name] for name in ("values", "minima", "maxima")}
    return labels | values | {"at": [at_us / 1e6 for at_us in line["at_us"]]}


def _time_in(visit: Visit, parameter: str) -> datetime:
    try:
        return from_micros(round(float(visit.query[parameter]) * 1e6))
    except (ValueError, OverflowError):
        raise BadRequest(f"{parameter} must be a time in seconds since 1970.") from None
