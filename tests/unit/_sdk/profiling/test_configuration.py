"""What the profiler is asked for. The shapes are those that version 2.257 of the sagemaker SDK sends."""

from typing import Any

import pytest

from trainyard.formats.profiles.parameters import ProfileKind, parse_parameters
from trainyard.foundation.errors import InvalidRequest
from trainyard.profiler import (
    DataloaderProfilingConfig,
    DetailedProfilingConfig,
    FrameworkProfile,
    HorovodProfilingConfig,
    Profiler,
    ProfilerConfig,
    PythonProfiler,
    PythonProfilingConfig,
    SMDataParallelProfilingConfig,
    cProfileTimer,
)

FILES = {
    "LocalPath": "/opt/ml/output/profiler",
    "RotateMaxFileSizeInBytes": "10485760",
    "RotateFileCloseIntervalInSeconds": "60",
    "FileOpenFailThreshold": "50",
}


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (DetailedProfilingConfig(), '{"StartStep": 5, "NumSteps": 1, }'),
        (DetailedProfilingConfig(2, 3), '{"StartStep": 2, "NumSteps": 3, }'),
        (DetailedProfilingConfig(num_steps=3), '{"StartStep": 0, "NumSteps": 3, }'),
        (DetailedProfilingConfig(2, profile_default_steps=True), '{"StartStep": 5, "NumSteps": 1, }'),
        (
            DetailedProfilingConfig(start_unix_time=17, duration=2.5),
            '{"StartTimeInSecSinceEpoch": 17, "Duration": 2.5, }',
        ),
        (HorovodProfilingConfig(duration=10), '{"Duration": 10, }'),
        (HorovodProfilingConfig(), '{"StartStep": 13, "NumSteps": 1, }'),
        (SMDataParallelProfilingConfig(), '{"StartStep": 15, "NumSteps": 1, }'),
        (DataloaderProfilingConfig(), '{"StartStep": 7, "NumSteps": 1, "MetricsRegex": ".*", }'),
        (DataloaderProfilingConfig(2, metrics_regex="a.*"), '{"StartStep": 2, "NumSteps": 1, "MetricsRegex": "a.*", }'),
        (
            PythonProfilingConfig(),
            '{"StartStep": 9, "NumSteps": 3, "ProfilerName": "cprofile", "cProfileTimer": "total_time", }',
        ),
        (
            PythonProfilingConfig(profile_default_steps=True),
            '{"StartStep": 9, "NumSteps": 3, "ProfilerName": "cprofile", "cProfileTimer": "default", }',
        ),
        (
            PythonProfilingConfig(1, python_profiler=PythonProfiler.PYINSTRUMENT),
            '{"StartStep": 1, "NumSteps": 1, "ProfilerName": "pyinstrument", }',
        ),
        (
            PythonProfilingConfig(1, cprofile_timer=cProfileTimer.CPU_TIME),
            '{"StartStep": 1, "NumSteps": 1, "ProfilerName": "cprofile", "cProfileTimer": "cpu_time", }',
        ),
    ],
)
def test_a_range_is_written_as_the_sagemaker_sdk_writes_it(config: Any, text: str) -> None:
    assert config.to_json_string() == text


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (DetailedProfilingConfig, {"start_step": -1}, "start_step is -1"),
        (DetailedProfilingConfig, {"num_steps": 0}, "num_steps is 0"),
        (DetailedProfilingConfig, {"start_unix_time": 1.5}, "start_unix_time is 1.5"),
        (DetailedProfilingConfig, {"start_unix_time": 10**30}, "start_unix_time is 1000"),
        (DetailedProfilingConfig, {"duration": 0}, "duration is 0"),
        (DetailedProfilingConfig, {"start_step": 1, "duration": 2}, "both steps and a time"),
        (DetailedProfilingConfig, {"profile_default_steps": 1}, "True or False"),
        (DataloaderProfilingConfig, {"metrics_regex": "("}, "regular expression"),
        (PythonProfilingConfig, {"python_profiler": "cprofile"}, "must be a PythonProfiler"),
        (PythonProfilingConfig, {"cprofile_timer": "cpu_time"}, "must be a cProfileTimer"),
        (FrameworkProfile, {"local_path": 3}, "local_path is 3"),
        (FrameworkProfile, {"file_max_size": 0}, "file_max_size is 0"),
        (FrameworkProfile, {"file_close_interval": 0}, "file_close_interval is 0"),
        (FrameworkProfile, {"file_open_fail_threshold": None}, "file_open_fail_threshold is None"),
        (FrameworkProfile, {"start_step": 1, "duration": 2}, "both steps and a time"),
        (ProfilerConfig, {"framework_profile_params": {}}, "must be a FrameworkProfile"),
        (ProfilerConfig, {"profile_params": {}}, "must be a Profiler"),
        (
            ProfilerConfig,
            {"framework_profile_params": FrameworkProfile(), "profile_params": Profiler()},
            "exclude each other",
        ),
    ],
)
def test_invalid_values_are_refused_where_they_are_written(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        kind(**options)


def test_a_profile_without_arguments_takes_every_kind_in_its_default_steps() -> None:
    assert FrameworkProfile().profiling_parameters == FILES | {
        "DetailedProfilingConfig": '{"StartStep": 5, "NumSteps": 1, }',
        "DataloaderProfilingConfig": '{"StartStep": 7, "NumSteps": 1, "MetricsRegex": ".*", }',
        "PythonProfilingConfig": (
            '{"StartStep": 9, "NumSteps": 3, "ProfilerName": "cprofile", "cProfileTimer": "default", }'
        ),
        "HorovodProfilingConfig": '{"StartStep": 13, "NumSteps": 1, }',
        "SMDataParallelProfilingConfig": '{"StartStep": 15, "NumSteps": 1, }',
    }


def test_a_range_of_the_profile_is_that_of_every_kind() -> None:
    parameters = FrameworkProfile("/mine", 1, 0.5, 2, start_step=6).profiling_parameters
    assert parameters["LocalPath"] == "/mine"
    assert parameters["RotateFileCloseIntervalInSeconds"] == "0.5"
    ranges = [text for name, text in parameters.items() if name.endswith("ProfilingConfig")]
    assert len(ranges) == 5
    assert all(text.startswith('{"StartStep": 6, "NumSteps": 1, ') for text in ranges)


def test_with_a_kind_only_that_one_is_taken() -> None:
    profile = FrameworkProfile(detailed_profiling_config=DetailedProfilingConfig(2, 1), start_step=9)
    assert profile.profiling_parameters == FILES | {"DetailedProfilingConfig": '{"StartStep": 2, "NumSteps": 1, }'}


def test_the_yard_reads_what_is_written() -> None:
    profile = FrameworkProfile(
        detailed_profiling_config=DetailedProfilingConfig(2, 1),
        dataloader_profiling_config=DataloaderProfilingConfig(duration=3, metrics_regex=r"a\"b"),
    )
    windows = parse_parameters(profile.profiling_parameters).windows
    assert windows.keys() == {ProfileKind.DETAILED, ProfileKind.DATALOADER}
    assert windows[ProfileKind.DETAILED].start_step == 2
    assert windows[ProfileKind.DATALOADER].duration_s == 3


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (ProfilerConfig(), {"DisableProfiler": False, "S3OutputPath": "s3://b/out"}),
        (
            ProfilerConfig("s3://b/p", 500),
            {"DisableProfiler": False, "S3OutputPath": "s3://b/p", "ProfilingIntervalInMilliseconds": 500},
        ),
        (ProfilerConfig("s3://b/p", disable_profiler=True), {"DisableProfiler": True}),
        (
            ProfilerConfig(profile_params=Profiler("7")),
            {
                "DisableProfiler": False,
                "S3OutputPath": "s3://b/out",
                "ProfilingParameters": {"CPUProfilingDuration": "7", "SMPFileRotationSecs": "600"},
            },
        ),
    ],
)
def test_the_configuration_of_a_job_stores_with_its_output_by_default(
    config: ProfilerConfig, shape: dict[str, Any]
) -> None:
    assert config.shape("s3://b/out") == shape


def test_a_description_that_says_nothing_is_no_configuration() -> None:
    assert ProfilerConfig.from_job_desc({"DisableProfiler": False}, output_path="s3://b") is None
    assert ProfilerConfig.from_job_desc({}, output_path="s3://b") is None
