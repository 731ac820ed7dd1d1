"""What came of training and tuning jobs, as tables. Making one asks the yard nothing; pandas is needed last."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from trainyard.following import Description
from trainyard.foundation.errors import Unavailable
from trainyard.metric_periods import period_of
from trainyard.session import Session
from trainyard.tuning_job import TuningJob
from trainyard.tuning_text import value_of

if TYPE_CHECKING:
    import pandas as pd

NAMESPACE = "/aws/sagemaker/TrainingJobs"

Record = dict[str, Any]


class AnalyticsMetricsBase(ABC):
    """A table that is asked for once and then kept."""

    def __init__(self, sagemaker_session: Session | None) -> None:
        self._session = sagemaker_session
        self._dataframe: pd.DataFrame | None = None

    @property
    def session(self) -> Session:
        """The session given, else one that is made now."""
        self._session = self._session or Session()
        return self._session

    def dataframe(self, force_refresh: bool = False) -> "pd.DataFrame":
        """The table as pandas has it, asked for anew where wanted; Unavailable without pandas."""
        if force_refresh:
            self.clear_cache()
        if self._dataframe is None:
            self._dataframe = _pandas().DataFrame(self.records())
        return self._dataframe

    def export_csv(self, filename: str) -> None:
        """Write the table to a file."""
        self.dataframe().to_csv(filename)

    @abstractmethod
    def records(self) -> list[Record]:
        """The rows of the table, for which pandas is not needed."""

    def clear_cache(self) -> None:
        """Forget what was asked."""
        self._dataframe = None


class HyperparameterTuningJobAnalytics(AnalyticsMetricsBase):
    """The training jobs of a tuning job: their hyperparameters, what they came to, and when they ran."""

    def __init__(self, hyperparameter_tuning_job_name: str, sagemaker_session: Session | None = None) -> None:
        super().__init__(sagemaker_session)
        self.name = hyperparameter_tuning_job_name
        self._description: dict[str, Any] | None = None
        self._summaries: list[dict[str, Any]] | None = None

    def __repr__(self) -> str:
        return f"<trainyard.HyperparameterTuningJobAnalytics for {self.name}>"

    def records(self) -> list[Record]:
        return [_record(summary) for summary in self.training_job_summaries()]

    def description(self, force_refresh: bool = False) -> dict[str, Any]:
        """What DescribeHyperParameterTuningJob answers."""
        if force_refresh:
            self.clear_cache()
        if self._description is None:
            self._description = self._job().describe()
        return self._description

    def training_job_summaries(self, force_refresh: bool = False) -> list[dict[str, Any]]:
        """What ListTrainingJobsForHyperParameterTuningJob answers, all pages of it, the first job first."""
        if force_refresh:
            self.clear_cache()
        if self._summaries is None:
            self._summaries = self._job().trials()
        return self._summaries

    @property
    def tuning_ranges(self) -> dict[str, Any]:
        """The ranges by the names of the hyperparameters; of several algorithms, by theirs first."""
        description = self.description()
        if "TrainingJobDefinition" in description:
            return _by_name(description["HyperParameterTuningJobConfig"]["ParameterRanges"])
        definitions = description["TrainingJobDefinitions"]
        return {each["DefinitionName"]: _by_name(each["HyperParameterRanges"]) for each in definitions}

    def clear_cache(self) -> None:
        super().clear_cache()
        self._description = self._summaries = None

    def _job(self) -> TuningJob:
        return TuningJob(self.session.api, self.name)


class TrainingJobAnalytics(AnalyticsMetricsBase):
    """The metrics of a training job: for each a mean per period, by the seconds since its first.

    The period is a minute unless it is given; for a job of more than a day, the least that one answer has room for.
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

    def records(self) -> list[Record]:
        description = self.session.describe_training_job(self.name)
        defined = description["AlgorithmSpecification"].get("MetricDefinitions", ())
        names = self._metric_names or [each["Name"] for each in defined]
        return [record for name in names for record in self._series(name, description)]

    def _series(self, metric: str, description: Description) -> list[Record]:
        start = self._start_time or description.get("TrainingStartTime") or description["CreationTime"]
        end = self._end_time or description.get("TrainingEndTime") or datetime.now(UTC)
        end += timedelta(minutes=1)  # CloudWatch leaves out the minute that the end lies in
        points = self.session.api.call(
            "cloudwatch",
            "GetMetricStatistics",
            Namespace=NAMESPACE,
            MetricName=metric,
            Dimensions=[{"Name": "TrainingJobName", "Value": self.name}],
            StartTime=start,
            EndTime=end,
            Period=self._period_s or int(period_of(start, end).total_seconds()),
            Statistics=["Average"],
        )["Datapoints"]
        series = sorted(points, key=lambda point: point["Timestamp"])
        return [
            {
                "timestamp": (point["Timestamp"] - series[0]["Timestamp"]).total_seconds(),
                "metric_name": metric,
                "value": point["Average"],
            }
            for point in series
        ]


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise Unavailable(
            "A dataframe needs pandas, which is not installed here: pip install 'trainyard[pandas]'. "
            "records() gives the same rows without it."
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
    """The number that a text is; any other text as it is, JSON too."""
    try:
        return float(text)
    except ValueError:
        return text


def _by_name(ranges: Mapping[str, Any]) -> dict[str, Any]:
    return {each["Name"]: each for listed in ranges.values() for each in listed}
