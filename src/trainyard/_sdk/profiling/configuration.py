"""What a job is asked to profile, and the members of a request that say so. Names are those of `sagemaker.debugger`."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, ClassVar, Self

from trainyard.foundation.errors import InvalidRequest

Shape = dict[str, Any]

DEFAULT_LOCAL_PATH = "/opt/ml/output/profiler"
# What a step range has if only one of its two numbers is given.
_FIRST_STEP, _ONE_STEP = 0, 1


class PythonProfiler(Enum):
    """The profilers of Python code."""

    CPROFILE = "cprofile"
    PYINSTRUMENT = "pyinstrument"


class cProfileTimer(Enum):  # noqa: N801 - the SDK's name
    """What cProfile measures. `DEFAULT` takes the other three in turn, one step each."""

    TOTAL_TIME = "total_time"
    CPU_TIME = "cpu_time"
    OFF_CPU_TIME = "off_cpu_time"
    DEFAULT = "default"


class ProfilingRange:
    """The base of the five kinds of profiles: in which steps, or at which time, one is taken.

    Give steps or a time, not both; without either, the default step of the kind is profiled.

    Args:
        start_step: The first step.
        num_steps: The number of steps.
        start_unix_time: When to start, as a Unix time in whole seconds.
        duration: How long to profile, in seconds.
        profile_default_steps: Whether to take the default steps, whatever else is given.

    Raises:
        InvalidRequest: A value is out of its range, or both steps and a time are given.
    """

    name: ClassVar[str]
    default_start_step: ClassVar[int]
    default_num_steps: ClassVar[int] = _ONE_STEP

    def __init__(
        self,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
        profile_default_steps: bool = False,
    ) -> None:
        if not isinstance(profile_default_steps, bool):
            raise InvalidRequest(f"profile_default_steps is {profile_default_steps!r}; it must be True or False.")
        given = (start_step, num_steps, start_unix_time, duration)
        if profile_default_steps or given == (None, None, None, None):
            start_step, num_steps = self.default_start_step, self.default_num_steps
        _require_whole("start_step", start_step, least=0)
        _require_whole("num_steps", num_steps, least=1)
        _require_unix_time(start_unix_time)
        if duration is not None:
            _require_positive("duration", duration)
        has_steps = start_step is not None or num_steps is not None
        if has_steps and (start_unix_time is not None or duration is not None):
            raise InvalidRequest(
                f"{type(self).__name__} has both steps and a time; give start_step and num_steps, or start_unix_time "
                "and duration."
            )
        self._members: Shape = (
            {
                "StartStep": _FIRST_STEP if start_step is None else start_step,
                "NumSteps": _ONE_STEP if num_steps is None else num_steps,
            }
            if has_steps
            else _without_none(StartTimeInSecSinceEpoch=start_unix_time, Duration=duration)
        )

    def to_json_string(self) -> str:
        """Return the value of the profiling parameter, written as the sagemaker SDK writes it."""
        # A comma after the last member, and strings without escapes.
        return (
            "{" + "".join(f"{_quote_text(name)}: {_quote_text(value)}, " for name, value in self._members.items()) + "}"
        )


class DetailedProfilingConfig(ProfilingRange):
    """Traces of all operators and kernels by the profiler of the framework: by default of step 5.

    Args:
        start_step: The first step.
        num_steps: The number of steps. Default: 1.
        start_unix_time: When to start, as a Unix time in whole seconds.
        duration: How long to profile, in seconds.
        profile_default_steps: Whether to take the default steps, whatever else is given.

    Raises:
        InvalidRequest: A value is out of its range, or both steps and a time are given.
    """

    name = "DetailedProfilingConfig"
    default_start_step = 5


class DataloaderProfilingConfig(ProfilingRange):
    """Times of data loaders and their workers: by default of step 7.

    Args:
        start_step: The first step.
        num_steps: The number of steps. Default: 1.
        start_unix_time: When to start, as a Unix time in whole seconds.
        duration: How long to profile, in seconds.
        profile_default_steps: Whether to take the default steps, whatever else is given.
        metrics_regex: Regular expression of the metrics to keep.

    Raises:
        InvalidRequest: A value is out of its range, or both steps and a time are given.
    """

    name = "DataloaderProfilingConfig"
    default_start_step = 7

    def __init__(
        self,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
        profile_default_steps: bool = False,
        metrics_regex: str = ".*",
    ) -> None:
        super().__init__(start_step, num_steps, start_unix_time, duration, profile_default_steps)
        try:
            re.compile(metrics_regex)
        except (re.error, TypeError) as error:
            raise InvalidRequest(
                f'metrics_regex is "{metrics_regex}", which is not a valid regular expression: {error}.'
            ) from error
        self.metrics_regex = metrics_regex
        self._members["MetricsRegex"] = metrics_regex


class PythonProfilingConfig(ProfilingRange):
    """Profiles of Python functions: by default of the three steps from step 9.

    Args:
        start_step: The first step.
        num_steps: The number of steps. Default: 1.
        start_unix_time: When to start, as a Unix time in whole seconds.
        duration: How long to profile, in seconds.
        profile_default_steps: Whether to take the default steps, each with another timer.
        python_profiler: The profiler: cProfile or pyinstrument.
        cprofile_timer: What cProfile measures. pyinstrument does not use it.

    Raises:
        InvalidRequest: A value is out of its range, or both steps and a time are given.
    """

    name = "PythonProfilingConfig"
    default_start_step = 9
    default_num_steps = 3

    def __init__(
        self,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
        profile_default_steps: bool = False,
        python_profiler: PythonProfiler = PythonProfiler.CPROFILE,
        cprofile_timer: cProfileTimer = cProfileTimer.TOTAL_TIME,
    ) -> None:
        super().__init__(start_step, num_steps, start_unix_time, duration, profile_default_steps)
        timer = cProfileTimer.DEFAULT if profile_default_steps else cprofile_timer
        if not isinstance(python_profiler, PythonProfiler):
            raise InvalidRequest(f"python_profiler is {python_profiler!r}; it must be a PythonProfiler.")
        if not isinstance(timer, cProfileTimer):
            raise InvalidRequest(f"cprofile_timer is {timer!r}; it must be a cProfileTimer.")
        self.python_profiler = python_profiler
        self.cprofile_timer = None if python_profiler is PythonProfiler.PYINSTRUMENT else timer
        self._members["ProfilerName"] = python_profiler.value
        if self.cprofile_timer is not None:
            self._members["cProfileTimer"] = self.cprofile_timer.value


class HorovodProfilingConfig(ProfilingRange):
    """Times of Horovod's collectives: by default of step 13.

    Args:
        start_step: The first step.
        num_steps: The number of steps. Default: 1.
        start_unix_time: When to start, as a Unix time in whole seconds.
        duration: How long to profile, in seconds.
        profile_default_steps: Whether to take the default steps, whatever else is given.

    Raises:
        InvalidRequest: A value is out of its range, or both steps and a time are given.
    """

    name = "HorovodProfilingConfig"
    default_start_step = 13


class SMDataParallelProfilingConfig(ProfilingRange):
    """Times of the collectives of smdistributed.dataparallel: by default of step 15.

    Args:
        start_step: The first step.
        num_steps: The number of steps. Default: 1.
        start_unix_time: When to start, as a Unix time in whole seconds.
        duration: How long to profile, in seconds.
        profile_default_steps: Whether to take the default steps, whatever else is given.

    Raises:
        InvalidRequest: A value is out of its range, or both steps and a time are given.
    """

    name = "SMDataParallelProfilingConfig"
    default_start_step = 15


_KINDS: tuple[type[ProfilingRange], ...] = (
    DetailedProfilingConfig,
    DataloaderProfilingConfig,
    PythonProfilingConfig,
    HorovodProfilingConfig,
    SMDataParallelProfilingConfig,
)


class FrameworkProfile:
    """Which profiles a program takes of itself, and in which of its steps.

    With one or more kinds, only those are taken. Without, all kinds are: in the steps or at the time given here, or
    else in the default steps of each. That a job times its steps does not depend on this.

    Args:
        local_path: Folder in the instance to which profiles are written.
        file_max_size: Size at which a file of events is closed, in bytes.
        file_close_interval: Age at which a file of events is closed, in seconds.
        file_open_fail_threshold: How often a file that cannot be opened is tried.
        detailed_profiling_config: Traces of operators and kernels.
        dataloader_profiling_config: Times of data loaders.
        python_profiling_config: Profiles of Python functions.
        horovod_profiling_config: Times of Horovod's collectives.
        smdataparallel_profiling_config: Times of the collectives of smdistributed.dataparallel.
        start_step: The first step, for all kinds.
        num_steps: The number of steps, for all kinds.
        start_unix_time: When to start, for all kinds, as a Unix time in whole seconds.
        duration: How long to profile, for all kinds, in seconds.

    Raises:
        InvalidRequest: A value is out of its range, or both steps and a time are given.
    """

    def __init__(
        self,
        local_path: str = DEFAULT_LOCAL_PATH,
        file_max_size: int = 10485760,
        file_close_interval: float = 60,
        file_open_fail_threshold: int = 50,
        detailed_profiling_config: DetailedProfilingConfig | None = None,
        dataloader_profiling_config: DataloaderProfilingConfig | None = None,
        python_profiling_config: PythonProfilingConfig | None = None,
        horovod_profiling_config: HorovodProfilingConfig | None = None,
        smdataparallel_profiling_config: SMDataParallelProfilingConfig | None = None,
        start_step: int | None = None,
        num_steps: int | None = None,
        start_unix_time: int | None = None,
        duration: float | None = None,
    ) -> None:
        if not isinstance(local_path, str):
            raise InvalidRequest(f"local_path is {local_path!r}; it must be a path.")
        _require_whole("file_max_size", file_max_size, least=1, is_optional=False)
        _require_positive("file_close_interval", file_close_interval)
        _require_whole("file_open_fail_threshold", file_open_fail_threshold, least=1, is_optional=False)
        configs: tuple[ProfilingRange | None, ...] = (
            detailed_profiling_config,
            dataloader_profiling_config,
            python_profiling_config,
            horovod_profiling_config,
            smdataparallel_profiling_config,
        )
        taken = [config for config in configs if config is not None]
        given = (start_step, num_steps, start_unix_time, duration)
        if not taken and given == (None, None, None, None):
            taken = [kind(profile_default_steps=True) for kind in _KINDS]
        elif not taken:
            taken = [kind(start_step, num_steps, start_unix_time, duration) for kind in _KINDS]
        self.profiling_parameters: dict[str, str] = {
            "LocalPath": local_path,
            "RotateMaxFileSizeInBytes": str(file_max_size),
            "RotateFileCloseIntervalInSeconds": str(file_close_interval),
            "FileOpenFailThreshold": str(file_open_fail_threshold),
            **{config.name: config.to_json_string() for config in taken},
        }

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> Self:
        """Return the profile with these parameters.

        Args:
            parameters: ProfilingParameters, as a job description has them.
        """
        profile = cls()
        profile.profiling_parameters = dict(parameters)
        return profile


class Profiler:
    """Parameters of SageMaker Profiler, a service of AWS. The yard notes them on the job and does not use them.

    Args:
        cpu_profiling_duration: How long to profile the CPU, in seconds.
        file_rotation_interval: Age at which a file is closed, in seconds.
    """

    def __init__(self, cpu_profiling_duration: str = "3600", file_rotation_interval: str = "600") -> None:
        self.profiling_parameters = {
            "CPUProfilingDuration": str(cpu_profiling_duration),
            "SMPFileRotationSecs": str(file_rotation_interval),
        }
        self.instanceType, self.volumeSizeInGB = "ml.m5.4xlarge", 128


class ProfilerConfig:
    """How a job is profiled. Without one, a job is profiled too, but nothing is stored on S3.

    Args:
        s3_output_path: S3 location for profiles and reports. Default: the output path of the job.
        system_monitor_interval_millis: Interval of the hardware samples, in milliseconds: 100, 200, 500, 1000, 5000
            or 60000. Default: left to the yard, which takes 1000.
        framework_profile_params: Which profiles the program takes of itself. Default: none but the times of its steps.
        profile_params: Parameters of SageMaker Profiler.
        disable_profiler: Whether to run the job without the profiler.

    Raises:
        InvalidRequest: An argument has the wrong type, or both kinds of parameters are given.
    """

    def __init__(
        self,
        s3_output_path: str | None = None,
        system_monitor_interval_millis: int | None = None,
        framework_profile_params: FrameworkProfile | None = None,
        profile_params: Profiler | None = None,
        disable_profiler: bool = False,
    ) -> None:
        if framework_profile_params is not None and not isinstance(framework_profile_params, FrameworkProfile):
            raise InvalidRequest("framework_profile_params must be a FrameworkProfile.")
        if profile_params is not None and not isinstance(profile_params, Profiler):
            raise InvalidRequest("profile_params must be a Profiler.")
        if profile_params and framework_profile_params:
            raise InvalidRequest("profile_params and framework_profile_params exclude each other; give one of them.")
        self.s3_output_path = s3_output_path
        self.system_monitor_interval_millis = system_monitor_interval_millis
        self.framework_profile_params, self.profile_params = framework_profile_params, profile_params
        self.disable_profiler = disable_profiler

    @classmethod
    def from_job_desc(cls, description: Shape, *, output_path: str) -> Self | None:
        """Return the configuration of a job description; None if it asks for nothing.

        Args:
            description: The ProfilerConfig of the job.
            output_path: The output path of the job. It is the default of `s3_output_path`.
        """
        if set(description) <= {"DisableProfiler"}:
            return None
        path, parameters = description.get("S3OutputPath"), description.get("ProfilingParameters")
        return cls(
            None if path == output_path else path,
            description.get("ProfilingIntervalInMilliseconds"),
            None if parameters is None else FrameworkProfile.from_parameters(parameters),
            disable_profiler=description.get("DisableProfiler", False),
        )

    def shape(self, output_path: str | None) -> Shape:
        """Return the ProfilerConfig of a request.

        Args:
            output_path: The output path of the job; None for a change of a running job, which keeps its path.
        """
        path = None if self.disable_profiler else self.s3_output_path or output_path
        parameters = self.framework_profile_params or self.profile_params
        shape: Shape = {"DisableProfiler": self.disable_profiler}
        return shape | _without_none(
            S3OutputPath=path,
            ProfilingIntervalInMilliseconds=self.system_monitor_interval_millis,
            ProfilingParameters=None if parameters is None else dict(parameters.profiling_parameters),
        )


def _without_none(**members: object) -> Shape:
    return {name: value for name, value in members.items() if value is not None}


def _quote_text(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _require_whole(name: str, value: object, *, least: int, is_optional: bool = True) -> None:
    if value is None and is_optional:
        return
    if not isinstance(value, int) or value < least:
        raise InvalidRequest(f"{name} is {value!r}; it must be a whole number of at least {least}.")


def _require_positive(name: str, value: object) -> None:
    if not isinstance(value, int | float) or value <= 0:
        raise InvalidRequest(f"{name} is {value!r}; it must be a number above 0.")


def _require_unix_time(value: object) -> None:
    if value is None:
        return
    try:
        if isinstance(value, int):
            datetime.fromtimestamp(value, UTC)
            return
    except (OverflowError, ValueError, OSError):
        pass
    raise InvalidRequest(f"start_unix_time is {value!r}; it must be a Unix time in whole seconds.")
