"""Statistics of the dataframes of a profile: of the job, of its steps, and of the use of the hardware."""

import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.extras import extra_of

try:
    import pandas as pd
except ModuleNotFoundError as error:
    raise (extra_of(error) or error) from error

Frame = Any

_QUANTILES = [0.5, 0.95, 0.99]
_SHOWN = ["mean", "min", "max", "50%", "95%", "99%"]
_STEP = "Step:ModeKeys"
_FIRST_MODES = ("Step:ModeKeys.TRAIN", "Step:ModeKeys.GLOBAL")


class StatsBy(Enum):
    """What statistics are grouped by."""

    TRAINING_PHASE = "training_phase"
    FRAMEWORK_METRICS = "framework_metric"
    PROCESS = "process"


class Resource(Enum):
    """The kinds of hardware."""

    CPU = "cpu"
    GPU = "gpu"
    IO = "i/o"
    NETWORK = "network"
    MEMORY = "memory"


class JobStats(dict[str, Any]):
    """The statistics of a job by their names. As text they are a table."""

    def __repr__(self) -> str:
        return repr(pd.DataFrame.from_dict(self, orient="index", columns=["value"]))


class PandasFrameAnalysis:
    """Computes statistics of the dataframes that `PandasFrame` returns.

    Args:
        system_df: The samples of the hardware.
        framework_df: The events of the program.
    """

    def __init__(self, system_df: Frame, framework_df: Frame) -> None:
        self.sys_metrics_df, self.framework_metrics_df = system_df.copy(), framework_df.copy()
        events = self.framework_metrics_df
        events["duration_us"] = events["end_time_us"] - events["start_time_us"]
        events["step"] = self._with_step_numbers()

    def get_job_statistics(self) -> JobStats:
        """Return when the job and its training loop began and ended, and their shares of the time.

        Times are UTC; durations are in microseconds.

        Raises:
            InvalidRequest: There are no samples, or no training steps.
        """
        samples, events = self.sys_metrics_df, self.framework_metrics_df
        modes = events["framework_metric"].isin(_FIRST_MODES)
        if samples.empty or not modes.any():
            raise InvalidRequest("The statistics of a job need samples of the hardware, and training steps.")
        first = events[modes].sort_values("start_time_us").iloc[0]
        began_us, ended_us = samples["timestamp_us"].min(), samples["timestamp_us"].max()
        loop_end_us, duration_us = events["end_time_us"].max(), ended_us - began_us
        parts = {
            "initialization": first["start_time_us"] - began_us,
            "training_loop": loop_end_us - first["start_time_us"],
            "finalization": ended_us - loop_end_us,
        }
        return JobStats(
            start_time=samples["timestamp"].min(),
            end_time=samples["timestamp"].max(),
            job_duration=duration_us,
            training_loop_start=first["start_time"],
            training_loop_end=events["end_time"].max(),
            training_loop_duration=parts["training_loop"],
            initialization=parts["initialization"],
            finalization=parts["finalization"],
            **{f"{name}_%": 100 * taken / max(duration_us, 1) for name, taken in parts.items()},
        )

    def get_step_statistics(self, by: StatsBy = StatsBy.TRAINING_PHASE) -> Frame:
        """Return the mean, the extremes and the percentiles of the durations of steps, in microseconds.

        Args:
            by: What to group by: the mode of the step, the name of the event, or its heading.

        Raises:
            InvalidRequest: `by` is not a StatsBy.
        """
        _require("by", by, StatsBy)
        events, column = self.framework_metrics_df, by.value
        if by is StatsBy.TRAINING_PHASE:
            column = "framework_metric"
            events = events[events["framework_metric"].str.contains(_STEP)]
        # Several processes work on a step at the same time.
        spans = events.groupby(["step", column]).agg({"start_time_us": "min", "end_time_us": "max"}).reset_index()
        spans["duration_us"] = spans["end_time_us"] - spans["start_time_us"]
        found = spans.groupby(column)["duration_us"].describe(percentiles=_QUANTILES)[_SHOWN].reset_index()
        found.columns = [by.value, *(f"duration_{name}_us" for name in ("mean", "min", "max", "p50", "p95", "p99"))]
        return found

    def get_utilization_stats(
        self,
        resource: Resource | Sequence[Resource] | None = None,
        by: StatsBy | None = None,
        phase: str | Sequence[str] | None = None,
    ) -> Frame:
        """Return the mean, the extremes and the percentiles of the use of the hardware, for each node.

        Args:
            resource: The kinds of hardware. Default: all.
            by: `StatsBy.TRAINING_PHASE` groups by what the program did as well.
            phase: With that, the modes of steps that count as phases. Default: all.

        Raises:
            InvalidRequest: An argument has the wrong type.
        """
        if by is not None:
            _require("by", by, StatsBy)
        is_by_phase = by is StatsBy.TRAINING_PHASE
        samples = self._with_phases(phase) if is_by_phase else self.sys_metrics_df
        parts = []
        for kind in _resources(resource, Resource):
            own = samples[samples["type"].str.contains(kind.value, regex=False)]
            if own.empty:
                continue
            groups = ["phase", "nodeID"] if is_by_phase else ["nodeID"]
            part = own.groupby(groups)["value"].describe(percentiles=_QUANTILES)[_SHOWN].reset_index()
            part.insert(0, "Resource", kind.value)
            parts.append(part)
        names = ["Resource", *(["Training_phase"] if is_by_phase else []), "nodeID"]
        names += [f"utilization_{name}" for name in ("mean", "min", "max", "p50", "p95", "p99")]
        if not parts:
            return pd.DataFrame(columns=names)
        found = pd.concat(parts, ignore_index=True)
        found.columns = names
        return found

    def get_device_usage_stats(
        self,
        device: Resource | Sequence[Resource] | None = None,
        utilization_ranges: Sequence[tuple[float, float]] | None = None,
    ) -> Frame:
        """Return how many samples of each node lie in ranges of use.

        Args:
            device: The kinds of hardware. Default: CPU and GPU.
            utilization_ranges: The ranges, in percent. Default: above 90, from 10 to 90, below 10.

        Raises:
            InvalidRequest: An argument has the wrong type, or a range is not two numbers.
        """
        ranges = [(90, 100), (10, 90), (0, 10)] if utilization_ranges is None else list(utilization_ranges)
        if not ranges or any(len(each) != 2 for each in ranges):
            raise InvalidRequest("utilization_ranges must be a list of ranges, such as [(0, 10), (10, 100)].")
        kinds = [kind.value for kind in _resources(device, (Resource.CPU, Resource.GPU))]
        samples = self.sys_metrics_df[self.sys_metrics_df["type"].isin(kinds)].copy()

        def range_of(value: float) -> tuple[float, float] | None:
            return next(((low, high) for low, high in ranges if low <= value <= high), None)

        samples["ranges"] = samples["value"].map(range_of)
        counted = samples.dropna(subset=["ranges"]).groupby(["type", "nodeID", "ranges"]).size()
        return counted.unstack(fill_value=0).reset_index() if len(counted) else pd.DataFrame()

    def get_training_phase_intervals(self, phase: str | Sequence[str] | None = None) -> Frame:
        """Return the periods before, in, between and after the modes of steps, such as training and evaluation.

        Args:
            phase: The modes of steps that count. Default: all.

        Raises:
            InvalidRequest: The program has no steps of such modes.
        """
        events = self.framework_metrics_df
        wanted = [phase] if isinstance(phase, str) else list(phase or ())
        steps = events[events["framework_metric"].str.contains(_STEP)].sort_values("start_time_us")
        if wanted:
            steps = steps[steps["framework_metric"].isin(wanted)]
        if steps.empty:
            raise InvalidRequest(f"The program has no steps of the phases {wanted or _STEP}.")
        run = steps["framework_metric"].ne(steps["framework_metric"].shift()).cumsum()
        runs = steps.groupby(run).agg({"start_time_us": "min", "end_time_us": "max", "framework_metric": "first"})
        rows = [(start_us, end_us, name) for start_us, end_us, name in runs.itertuples(index=False)]
        found = [(self.sys_metrics_df["timestamp_us"].min(), rows[0][0] - 1, f"Before {rows[0][2]}")]
        for number, (start_us, end_us, name) in enumerate(rows):
            found.append((start_us, end_us, name))
            if number + 1 < len(rows):
                following = rows[number + 1]
                between = f"Between {' and '.join(sorted((name, following[2])))}"
                found.append((end_us + 1, following[0] - 1, between))
        found.append((rows[-1][1] + 1, self.sys_metrics_df["timestamp_us"].max(), f"After {rows[-1][2]}"))
        return pd.DataFrame(found, columns=["start_time_us", "end_time_us", "phase"])

    def _with_step_numbers(self) -> Any:
        """Return the step of each event: its own, or that in whose time it lies; -1 for none."""
        events = self.framework_metrics_df
        steps = events[events["framework_metric"].str.contains(_STEP) & (events["step"] != -1)]
        numbers = events["step"].astype("int64")
        if steps.empty or events.empty:
            return numbers
        spans = steps.groupby("step").agg({"start_time_us": "min", "end_time_us": "max"}).sort_values("start_time_us")
        place = spans["start_time_us"].searchsorted(events["start_time_us"], side="right") - 1
        inside = (place >= 0) & (events["end_time_us"].to_numpy() <= spans["end_time_us"].to_numpy()[place])
        return numbers.where((numbers != -1) | ~inside, spans.index.to_numpy()[place])

    def _with_phases(self, phase: str | Sequence[str] | None) -> Frame:
        samples = self.sys_metrics_df.copy()
        samples["phase"] = None
        for interval in self.get_training_phase_intervals(phase).itertuples(index=False):
            is_inside = samples["timestamp_us"].between(interval.start_time_us, interval.end_time_us)
            samples.loc[is_inside, "phase"] = interval.phase
        return samples


class PT_dataloader_analysis:  # noqa: N801 - AWS's name
    """Prints what the data loaders of a program did, and returns what took twice as long as usual.

    Args:
        pandas_frame: The dataframes of the profile.
    """

    def __init__(self, pandas_frame: Any) -> None:
        self.pd_data_frame = pandas_frame
        self.dataIter_metric, self.initialize_metric, self.dataWorker_metric = (
            pandas_frame.get_all_dataloader_metrics(selected_framework_metrics=[pattern])
            for pattern in (".*DataLoaderIter::GetNext", "DataLoaderIterInitialize", "DataLoaderWorker")
        )

    def analyze_dataloaderIter_initialization(self) -> None:  # noqa: N802 - AWS's name
        """Print how the iterators of data loaders are set up, and how long that took."""
        if self.initialize_metric.empty:
            _say("Trace events corresponding to DataLoaderIter initialization are not present")
            return
        for kind in ("_MultiProcessingDataLoaderIter.__init__", "_SingleProcessDataLoaderIter.__init__"):
            own = self.initialize_metric[self.initialize_metric["framework_metric"] == kind]
            if own.empty:
                _say(f"Training is not configured to use {kind} iterator")
                continue
            pinning, workers = own["pin_memory"].iloc[0], own["num_workers"].iloc[0]
            _say(f"Training is configured to use {kind} with pin_memory enabled = {pinning}")
            _say(f"and number of workers = {workers}")
            _say(f"The {kind} is initialized for {len(own)} times during training")
            _say(_durations(own["duration_us"]))

    def analyze_dataloaderWorkers(self) -> Frame:  # noqa: N802 - AWS's name
        """Print how many workers ran and how long, and return those that ran twice as long as usual, or None."""
        return self._outliers(self.dataWorker_metric, "DataLoaderWorker processes", "workers spun off")

    def analyze_dataloader_getnext(self) -> Frame:
        """Print how long the program waited for batches, and return the waits of twice the usual time, or None."""
        return self._outliers(self.dataIter_metric, "DataLoaderIter::GetNext calls", "GetNext calls made")

    def analyze_batchtime(self) -> Frame:
        """Print the time from one batch to the next, and return those of twice the usual time, or None."""
        if self.dataIter_metric.empty:
            _say("Trace events corresponding to DataLoaderIter::GetNext calls are not present")
            return None
        waits = self.dataIter_metric.sort_values(["node_id", "pid", "start_time_us"])
        groups = waits.groupby(["node_id", "pid"])
        waits["BatchTime_in_seconds"] = groups["start_time_us"].diff() / 1e6
        waits["previous_batch_start"] = groups["start_time"].shift()
        usual = waits["BatchTime_in_seconds"].median()
        _say(f"Median time spent on each batch of data = {usual} seconds")
        columns = ["previous_batch_start", "start_time", "BatchTime_in_seconds", "worker_id"]
        return _longest(waits[waits["BatchTime_in_seconds"] >= 2 * usual], columns, "BatchTime_in_seconds")

    def plot_the_window(
        self,
        start_timestamp: float,
        end_timestamp: float,
        select_events: Sequence[str] = (".*",),
        select_dimensions: Sequence[str] = (".*",),
    ) -> Any:
        """Draw the samples of the hardware in a period, and return the chart.

        Args:
            start_timestamp: When the period begins, in microseconds since 1970.
            end_timestamp: When it ends.
            select_events: Regular expressions of the names to draw.
            select_dimensions: Regular expressions of the dimensions to draw.
        """
        from trainyard._sdk.profiling.charts.timelines import TimelineCharts

        return TimelineCharts(
            self.pd_data_frame.system_metrics_reader,
            self.pd_data_frame.framework_metrics_reader,
            starttime=start_timestamp,
            endtime=end_timestamp,
            select_events=select_events,
            select_dimensions=select_dimensions,
        )

    def _outliers(self, events: Frame, what: str, counted: str) -> Frame:
        if events.empty:
            _say(f"Trace events corresponding to {what} are not present")
            return None
        _say(f"Total number of {counted} during the training {len(events)}")
        _say(_durations(events["duration_us"]))
        far = events[events["duration_us"] >= 2 * events["duration_us"].median()]
        return _longest(far, ["start_time", "end_time", "duration_us", "worker_id"], "duration_us")


def _longest(rows: Frame, columns: Sequence[str], by: str) -> Frame:
    if rows.empty:
        _say("No outliers found")
        return None
    _say("Outliers (duration > 2 * median):")
    return rows[list(columns)].sort_values(by, ascending=False).reset_index(drop=True)


def _durations(values: Any) -> str:
    return f"Median duration {values.median()} and maximum duration {values.max()}, in microseconds"


def _resources(given: Resource | Sequence[Resource] | None, otherwise: Any) -> list[Resource]:
    chosen = list(otherwise) if given is None else [given] if isinstance(given, Resource) else list(given)
    for each in chosen:
        _require("resource", each, Resource)
    return chosen


def _require(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise InvalidRequest(f"{name} is {value!r}; it must be a {kind.__name__}.")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
