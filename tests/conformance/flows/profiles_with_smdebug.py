"""Prints what smdebug.profiler, AWS's or ours, reads and computes of a profile. The argument is its folder."""

import json
import sys
from typing import Any

from smdebug.profiler import LocalAlgorithmMetricsReader, LocalSystemMetricsReader
from smdebug.profiler.analysis.python_profile_analysis import cProfileAnalysis
from smdebug.profiler.analysis.utils.pandas_data_analysis import PandasFrameAnalysis, Resource, StatsBy
from smdebug.profiler.analysis.utils.profiler_data_to_pandas import PandasFrame
from smdebug.profiler.analysis.utils.python_profile_analysis_utils import StepPhase
from smdebug.profiler.utils import TimeUnits, us_since_epoch_to_human_readable_time

FOREVER_US = 4 * 10**15


def main(folder: str) -> None:
    frame = PandasFrame(folder)
    samples, events = frame.get_all_system_metrics(), frame.get_all_framework_metrics()
    found = {
        "readers": readers(folder),
        "samples": rows(samples),
        "events": rows(events),
        "by step": [rows(each) for each in frame.get_profiler_data_by_step(2, 4)],
        "analysis": analysis(PandasFrameAnalysis(samples, events)),
        "functions": functions(f"{folder}/framework/pytorch/cProfile"),
        "text": us_since_epoch_to_human_readable_time(1_700_000_000_123_456),
    }
    print(json.dumps(found, default=str))


def readers(folder: str) -> dict[str, Any]:
    system, framework = LocalSystemMetricsReader(folder), LocalAlgorithmMetricsReader(folder)
    first_us = system.get_timestamp_of_first_available_file()
    period = first_us + 20_000_000, first_us + 22_000_000
    return {
        "first": first_us,
        "last event": framework.get_timestamp_of_latest_available_file(),
        "samples": sorted(sample(each) for each in system.get_events(*period)),
        "cpu": sorted(sample(each) for each in system.get_events(*period, TimeUnits.MICROSECONDS, "cpu")),
        "events": sorted(event(each) for each in framework.get_events(*period)),
        "by step": sorted(event(each) for each in framework.get_events_by_step(2, 4)),
        "none": [event(each) for each in framework.get_events_by_step(2, 10_000)],
    }


def sample(each: Any) -> list[Any]:
    return [each.type, each.name, each.dimension, each.value, each.node_id, each.timestamp]


def event(each: Any) -> list[Any]:
    known = dict(each.event_args or {})
    return [each.event_name, each.event_phase, each.start_time, each.end_time, each.duration, each.node_id, str(known)]


def analysis(found: Any) -> dict[str, Any]:
    job = found.get_job_statistics()
    names = ("start_time", "end_time", "job_duration", "training_loop_start", "initialization", "finalization")
    return {
        "job": {name: value(job[name]) for name in names},
        **{f"steps by {by.value}": rows(found.get_step_statistics(by)) for by in StatsBy},
        "use": rows(found.get_utilization_stats()),
        "use of CPU": rows(found.get_utilization_stats(resource=Resource.CPU)),
    }


def functions(folder: str) -> list[Any]:
    stats = cProfileAnalysis(local_profile_dir=folder).fetch_profile_stats_by_step(9, 11, end_phase=StepPhase.STEP_END)
    return sorted([each.function_name, each.total_calls] for each in stats.function_stats_list)


def rows(table: Any) -> list[Any]:
    """Return the columns of a table, and its rows in an order that does not depend on how it was made.

    Without the threads: AWS's library makes up their numbers, in every process others.
    """
    table = table.drop(columns="tid", errors="ignore")
    return [list(table.columns), *sorted([value(each) for each in row] for row in table.values.tolist())]


def value(each: Any) -> Any:
    return round(float(each), 6) if isinstance(each, int | float) or hasattr(each, "item") else str(each)


if __name__ == "__main__":
    main(sys.argv[1])
