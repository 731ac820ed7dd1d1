"""A training job whose profile a notebook reads: `TrainingJob(name)`, and the readers of what was recorded."""

import sys
import time
from collections.abc import Callable
from typing import Any

from trainyard._sdk.connection import Api
from trainyard._sdk.profiling.events import time_text
from trainyard._sdk.profiling.readers import (
    AlgorithmMetricsReader,
    AnyReader,
    S3AlgorithmMetricsReader,
    S3SystemMetricsReader,
    SystemMetricsReader,
    now_us,
    source_at,
)
from trainyard._sdk.profiling.yard_readers import YardAlgorithmMetricsReader, YardSystemMetricsReader
from trainyard.foundation.errors import Unavailable
from trainyard.session import Session

_FINAL = ("Completed", "Failed", "Stopped")
_POLL_S = 2.0


class TrainingJob:
    """The profile of a training job.

    The samples of the hardware are read from S3 as soon as the job has stored some there, which takes a minute, and
    else from the yard, which always has them. The steps of the program are read from the yard, and from S3 the events
    of those that were recorded in detail.

    Args:
        training_job_name: Name of the job.
        region: Region of the yard. Default: that of the session.
        sagemaker_session: The session to use. Default: a new `Session()`.
        pause: Function that sleeps for some seconds; for tests.
    """

    def __init__(
        self,
        training_job_name: str,
        region: str | None = None,
        *,
        sagemaker_session: Session | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name, self.region = training_job_name, region
        self._session, self._pause = sagemaker_session or Session(), pause
        self.ds: dict[str, Any] = self.describe_training_job()
        self.profiler_config: dict[str, Any] | None = self.ds.get("ProfilerConfig")
        path = (self.profiler_config or {}).get("S3OutputPath")
        self.profiler_s3_output_path: str | None = path and f"{path.rstrip('/')}/{self.name}/profiler-output"
        self.system_metrics_reader: AnyReader | None = None
        self.framework_metrics_reader: AnyReader | None = None
        _say(f"ProfilerConfig:{self.profiler_config}")
        _say(f"s3 path:{self.profiler_s3_output_path}")

    @property
    def api(self) -> Api:
        """The API client that reads the profile."""
        return self._session.api

    def get_systems_metrics_reader(self) -> AnyReader:
        """Return the reader of the samples of the hardware."""
        if self.system_metrics_reader is None:
            self.system_metrics_reader = self._system_reader()
        return self.system_metrics_reader

    def get_framework_metrics_reader(self) -> AnyReader:
        """Return the reader of the steps of the program, their phases, and its data loaders."""
        if self.framework_metrics_reader is None:
            self.framework_metrics_reader = self._framework_reader()
        return self.framework_metrics_reader

    def get_sm_client(self) -> Api:
        """Return the API client."""
        return self.api

    def get_config_and_profiler_s3_output_path(self) -> tuple[dict[str, Any] | None, str | None]:
        """Return the ProfilerConfig of the job, and where its profile is on S3; None if it is not there."""
        return self.profiler_config, self.profiler_s3_output_path

    def wait_for_sys_profiling_data_to_be_available(self) -> None:
        """Wait until there are samples of the hardware.

        Raises:
            Unavailable: The job has ended without any.
        """
        self._wait_for("system", self.get_systems_metrics_reader())
        _say("\n\nProfiler data from system is available")

    def wait_for_framework_profiling_data_to_be_available(self) -> None:
        """Wait until there are steps of the program.

        Raises:
            Unavailable: The job has ended without any.
        """
        self._wait_for("framework", self.get_framework_metrics_reader())
        latest = self.get_framework_metrics_reader().get_timestamp_of_latest_available_file()
        _say("\n\nProfiler data from framework is available")
        _say(
            f"Found recorded framework annotations. Latest available timestamp microsseconds_since_epoch is:{latest} , "
            f"human_readable_timestamp in utc: {time_text(latest)}"
        )

    def describe_training_job(self) -> dict[str, Any]:
        """Return the DescribeTrainingJob response."""
        return self.api.call("sagemaker", "DescribeTrainingJob", TrainingJobName=self.name)

    def merge_timeline(self, output_directory: str = ".", start_us: int = 0, end_us: int | None = None) -> str:
        """Write the whole profile as one trace for Perfetto or Chrome, and return the path of the file.

        Args:
            output_directory: Folder for the file.
            start_us: When the trace begins, in microseconds since 1970. Default: with the profile.
            end_us: When it ends. Default: now.
        """
        from trainyard._sdk.profiling.merged_timeline import MergedTimeline

        merged = MergedTimeline(self, output_directory=output_directory)
        return merged.merge_timeline(start_us, now_us() if end_us is None else end_us, sys_metrics_filter={})

    def _wait_for(self, what: str, reader: AnyReader) -> None:
        said = ""
        while reader.get_timestamp_of_latest_available_file() == 0:
            described = self.describe_training_job()
            # After the status: a job that has ended has recorded everything.
            reader.refresh_event_file_list()
            if reader.get_timestamp_of_latest_available_file():
                return
            status, secondary = described["TrainingJobStatus"], described.get("SecondaryStatus", "")
            if status in _FINAL:
                raise Unavailable(f'Training job "{self.name}" is {status}, and has no profiler data from the {what}.')
            if f"{status} {secondary}" != said:
                said = f"{status} {secondary}"
                _say(f"Profiler data from {what} not available yet")
                _say(f"time: {time.time()} TrainingJobStatus:{status} TrainingJobSecondaryStatus:{secondary}")
            self._pause(_POLL_S)

    def _system_reader(self) -> AnyReader:
        if path := self.profiler_s3_output_path:
            stored = S3SystemMetricsReader(path, api=self.api)
            if stored.get_timestamp_of_latest_available_file():
                return stored
        return YardSystemMetricsReader(self.api, self.name)

    def _framework_reader(self) -> AnyReader:
        if path := self.profiler_s3_output_path:
            return YardAlgorithmMetricsReader(self.api, self.name, S3AlgorithmMetricsReader(path, api=self.api))
        return YardAlgorithmMetricsReader(self.api, self.name)


def readers_of(path: str | TrainingJob, api: Api | None) -> tuple[AnyReader, AnyReader]:
    """Return the readers of samples and of events at a path, or of a job."""
    if isinstance(path, TrainingJob):
        return path.get_systems_metrics_reader(), path.get_framework_metrics_reader()
    source = source_at(path, api)
    return SystemMetricsReader(source), AlgorithmMetricsReader(source)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
