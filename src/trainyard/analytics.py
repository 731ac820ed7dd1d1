"""Results of training and tuning jobs as tables. Only `dataframe` and `export_csv` need pandas."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from trainyard._sdk.training.cloudwatch import metric_datapoints
from trainyard._sdk.training.metrics import read_points
from trainyard._sdk.training.stream import Description
from trainyard._sdk.tuning.job import TuningJobHandle
from trainyard._sdk.tuning.text import value_of
from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.notebook_html import card, curve, table
from trainyard.session import Session

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "AnalyticsMetricsBase",
    "ExperimentAnalytics",
    "HyperparameterTuningJobAnalytics",
    "TrainingJobAnalytics",
]

# As that of a package without files, so that Python asks the finder for names that only sagemaker has.
__path__: list[str] = []


Record = dict[str, Any]


class AnalyticsMetricsBase(ABC):
    """The base of the tables. A table is fetched at the first use and then cached.

    Args:
        sagemaker_session: The session to use. Default: a new one, created at the first use.
    """

    def __init__(self, sagemaker_session: Session | None) -> None:
        self._session = sagemaker_session
        self._dataframe: pd.DataFrame | None = None

    @property
    def session(self) -> Session:
        """The session, created at the first use if none was given."""
        self._session = self._session or Session()
        return self._session

    def dataframe(self, force_refresh: bool = False) -> "pd.DataFrame":
        """Return the table as a pandas DataFrame.

        Args:
            force_refresh: Whether to fetch the table again.

        Raises:
            Unavailable: pandas is not installed.
        """
        if force_refresh:
            self.clear_cache()
        if self._dataframe is None:
            self._dataframe = _pandas().DataFrame(self.records())
        return self._dataframe

    def export_csv(self, filename: str) -> None:
        """Write the table to a CSV file.

        Args:
            filename: Path of the file.
        """
        self.dataframe().to_csv(filename)

    @abstractmethod
    def records(self) -> list[Record]:
        """Return the rows of the table. This does not need pandas."""

    def clear_cache(self) -> None:
        """Clear the cache, so that the next use fetches the table again."""
        self._dataframe = None


class HyperparameterTuningJobAnalytics(AnalyticsMetricsBase):
    """The training jobs of a tuning job: hyperparameters, final objective values and times.

    Args:
        hyperparameter_tuning_job_name: Name of the tuning job.
        sagemaker_session: The session to use. Default: a new one, created at the first use.
    """

    def __init__(self, hyperparameter_tuning_job_name: str, sagemaker_session: Session | None = None) -> None:
        super().__init__(sagemaker_session)
        self.name = hyperparameter_tuning_job_name
        self._description: dict[str, Any] | None = None
        self._summaries: list[dict[str, Any]] | None = None

    def __repr__(self) -> str:
        return f"<trainyard.HyperparameterTuningJobAnalytics for {self.name}>"

    def _repr_html_(self) -> str:
        return self._job()._repr_html_()

    def records(self) -> list[Record]:
        return [_record(summary) for summary in self.training_job_summaries()]

    def description(self, force_refresh: bool = False) -> dict[str, Any]:
        """Return the DescribeHyperParameterTuningJob response.

        Args:
            force_refresh: Whether to fetch it again.
        """
        if force_refresh:
            self.clear_cache()
        if self._description is None:
            self._description = self._job().describe()
        return self._description

    def training_job_summaries(self, force_refresh: bool = False) -> list[dict[str, Any]]:
        """Return the summaries of all training jobs, oldest first.

        Args:
            force_refresh: Whether to fetch them again.
        """
        if force_refresh:
            self.clear_cache()
        if self._summaries is None:
            self._summaries = self._job().trials()
        return self._summaries

    @property
    def tuning_ranges(self) -> dict[str, Any]:
        """The ranges by hyperparameter name; for several algorithms, by algorithm name and hyperparameter name."""
        description = self.description()
        if "TrainingJobDefinition" in description:
            return _by_name(description["HyperParameterTuningJobConfig"]["ParameterRanges"])
        definitions = description["TrainingJobDefinitions"]
        return {each["DefinitionName"]: _by_name(each["HyperParameterRanges"]) for each in definitions}

    def clear_cache(self) -> None:
        super().clear_cache()
        self._description = self._summaries = None

    def _job(self) -> TuningJobHandle:
        return TuningJobHandle(self.session.api, self.name)


class TrainingJobAnalytics(AnalyticsMetricsBase):
    """The metrics of a training job: all points, or with a `period` the mean of each, and the seconds since the first.

    The points of several instances are in the order of their times.

    Args:
        training_job_name: Name of the job.
        metric_names: The metrics. Default: all that the job defines.
        sagemaker_session: The session to use. Default: a new one, created at the first use.
        start_time: Start of the time range. Default: the start of the training.
        end_time: End of the time range. Default: the end of the training, or now.
        period: Length of a period in seconds, with which CloudWatch returns means. Default: every point that the job
            has reported.
    """

    def __init__(
        self,
        training_job_name: str,
        metric_names: Sequence[str] | None = None,
        sagemaker_session: Session | None = None,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        period: int | None = None,
    ) -> None:
        super().__init__(sagemaker_session)
        self.name = training_job_name
        self._metric_names = list(metric_names or ())
        self._start_time, self._end_time = start_time, end_time
        self._period_s = period

    def __repr__(self) -> str:
        return f"<trainyard.TrainingJobAnalytics for {self.name}>"

    def _repr_html_(self) -> str:
        found: dict[str, list[float]] = {}
        for record in self.records():
            found.setdefault(record["metric_name"], []).append(record["value"])
        rows = [
            (name, str(len(values)), f"{values[-1]:.6g}", f"{min(values):.6g}", f"{max(values):.6g}", curve(values))
            for name, values in found.items()
        ]
        columns = ("metric", "points", "last", "lowest", "highest", "")
        return card(
            f"Metrics of training job {self.name}", {} if rows else {"metrics": "none yet"}, table(columns, rows)
        )

    def records(self) -> list[Record]:
        description = self.session.describe_training_job(self.name)
        defined = description["AlgorithmSpecification"].get("MetricDefinitions", ())
        names = self._metric_names or [each["Name"] for each in defined]
        series = self._points if self._period_s is None else functools.partial(self._means, description)
        return [record for name in names for record in series(name)]

    def _points(self, metric: str) -> list[Record]:
        start_us, end_us = (to_micros(each) if each else None for each in (self._start_time, self._end_time))
        found = [
            (at_us, value)
            for points in read_points(self.session.api, self.name, metric)
            for at_us, value in zip(points.at_us, points.values, strict=True)
            if (start_us is None or at_us >= start_us) and (end_us is None or at_us <= end_us)
        ]
        found.sort(key=lambda point: point[0])
        return [
            {"timestamp": (at_us - found[0][0]) / 1_000_000, "metric_name": metric, "value": value}
            for at_us, value in found
        ]

    def _means(self, description: Description, metric: str) -> list[Record]:
        start = self._start_time or description.get("TrainingStartTime") or description["CreationTime"]
        end = self._end_time or description.get("TrainingEndTime") or datetime.now(UTC)
        # CloudWatch leaves out the minute of the end time.
        end += timedelta(minutes=1)
        points = metric_datapoints(
            self.session.api,
            self.name,
            metric,
            start=start,
            end=end,
            statistics=["Average"],
            period_s=self._period_s,
        )
        series = sorted(points, key=lambda point: point["Timestamp"])
        return [
            {
                "timestamp": (point["Timestamp"] - series[0]["Timestamp"]).total_seconds(),
                "metric_name": metric,
                "value": point["Average"],
            }
            for point in series
        ]


class ExperimentAnalytics(AnalyticsMetricsBase):
    """The trial components of an experiment or of a search: parameters, metrics and artifacts, one row for each.

    Args:
        experiment_name: Name of the experiment. Default: all components.
        search_expression: A SearchExpression that the components must match, as for the API.
        sort_by: What to sort by, such as `CreationTime`, `parameters.lr` or `metrics.loss.min`. Default: creation time.
        sort_order: `Ascending` or `Descending`.
        metric_names: The metrics to show. Default: all.
        parameter_names: The parameters to show. Default: all.
        sagemaker_session: The session to use. Default: a new one, created at the first use.
        input_artifact_names: The input artifacts to show. Default: all.
        output_artifact_names: The output artifacts to show. Default: all.
    """

    MAX_TRIAL_COMPONENTS = 10_000

    def __init__(
        self,
        experiment_name: str | None = None,
        search_expression: Mapping[str, Any] | None = None,
        sort_by: str | None = None,
        sort_order: str | None = None,
        metric_names: Sequence[str] | None = None,
        parameter_names: Sequence[str] | None = None,
        sagemaker_session: Session | None = None,
        input_artifact_names: Sequence[str] | None = None,
        output_artifact_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(sagemaker_session)
        self.name = experiment_name
        self._search_expression = dict(search_expression or {})
        self._sort_by, self._sort_order = sort_by or "CreationTime", sort_order or "Descending"
        self._metric_names, self._parameter_names = metric_names, parameter_names
        self._input_names, self._output_names = input_artifact_names, output_artifact_names

    def __repr__(self) -> str:
        return f"<trainyard.ExperimentAnalytics for {self.name or 'all components'}>"

    def records(self) -> list[Record]:
        return [self._record(component) for component in self.trial_components()]

    def trial_components(self) -> list[dict[str, Any]]:
        """Return the components as Search returns them, at most MAX_TRIAL_COMPONENTS."""
        expression = dict(self._search_expression)
        if self.name is not None:
            wanted = {"Name": "Parents.ExperimentName", "Operator": "Equals", "Value": self.name}
            expression = {"Filters": [*expression.get("Filters", ()), wanted]} | {
                name: value for name, value in expression.items() if name != "Filters"
            }
        request: dict[str, Any] = {"SearchExpression": expression} if expression else {}
        found: list[dict[str, Any]] = []
        while len(found) < self.MAX_TRIAL_COMPONENTS:
            answer = self.session.api.call(
                "sagemaker",
                "Search",
                Resource="ExperimentTrialComponent",
                SortBy=self._sort_by,
                SortOrder=self._sort_order,
                MaxResults=100,
                **request,
            )
            found += [each["TrialComponent"] for each in answer["Results"]]
            if "NextToken" not in answer:
                break
            request["NextToken"] = answer["NextToken"]
        return found[: self.MAX_TRIAL_COMPONENTS]

    def _record(self, component: Mapping[str, Any]) -> Record:
        record: Record = {name: component[name] for name in ("TrialComponentName", "DisplayName")}
        if "Source" in component:
            record["SourceArn"] = component["Source"]["SourceArn"]
        for name, shape in component["Parameters"].items():
            if _is_wanted(name, self._parameter_names):
                record[name] = shape["StringValue"] if "StringValue" in shape else shape["NumberValue"]
        for metric in component["Metrics"]:
            name = metric["MetricName"]
            if _is_wanted(name, self._metric_names):
                record |= {f"{name} - {each}": metric[each] for each in _STATISTICS if each in metric}
        for member, names in (("InputArtifacts", self._input_names), ("OutputArtifacts", self._output_names)):
            for name, artifact in component[member].items():
                if _is_wanted(name, names):
                    record[f"{name} - MediaType"] = artifact.get("MediaType")
                    record[f"{name} - Value"] = artifact["Value"]
        parents = component.get("Parents", ())
        record["Trials"] = [parent["TrialName"] for parent in parents]
        record["Experiments"] = list(dict.fromkeys(parent["ExperimentName"] for parent in parents))
        return record


_STATISTICS = ("Min", "Max", "Avg", "StdDev", "Last", "Count")


def _is_wanted(name: str, names: Sequence[str] | None) -> bool:
    return names is None or name in names


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise Unavailable(
            "A dataframe needs pandas, which is not installed: pip install 'trainyard[pandas]'. "
            "records() returns the same rows without it."
        ) from error
    return pd


def _record(summary: Description) -> Record:
    record: Record = {name: _number(text) for name, text in summary["TunedHyperParameters"].items()}
    record |= {
        "TrainingJobName": summary["TrainingJobName"],
        "TrainingJobStatus": summary["TrainingJobStatus"],
        "FinalObjectiveValue": value_of(summary),
    }
    start, end = summary.get("TrainingStartTime"), summary.get("TrainingEndTime")
    record |= {"TrainingStartTime": start, "TrainingEndTime": end}
    if start and end:
        record["TrainingElapsedTimeSeconds"] = (end - start).total_seconds()
    if "TrainingJobDefinitionName" in summary:
        record["TrainingJobDefinitionName"] = summary["TrainingJobDefinitionName"]
    return record


def _number(text: str) -> float | str:
    """Return a text as a number if it is one, else unchanged."""
    try:
        return float(text)
    except ValueError:
        return text


def _by_name(ranges: Mapping[str, Any]) -> dict[str, Any]:
    return {each["Name"]: each for listed in ranges.values() for each in listed}
