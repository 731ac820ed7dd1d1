import pytest

from trainyard.formats.profiles.parameters import (
    ProfileKind,
    ProfileWindow,
    ProfilingParameters,
    PythonProfilerName,
    TimerName,
    parse_parameters,
)
from trainyard.foundation.errors import InvalidRequest

# What FrameworkProfile() of the sagemaker SDK sends.
DEFAULTS = {
    "LocalPath": "/opt/ml/output/profiler",
    "RotateMaxFileSizeInBytes": "10485760",
    "RotateFileCloseIntervalInSeconds": "60",
    "FileOpenFailThreshold": "50",
    "DetailedProfilingConfig": '{"StartStep": 5, "NumSteps": 1, }',
    "DataloaderProfilingConfig": '{"StartStep": 7, "NumSteps": 1, "MetricsRegex": ".*", }',
    "PythonProfilingConfig": (
        '{"StartStep": 9, "NumSteps": 3, "ProfilerName": "cprofile", "cProfileTimer": "default", }'
    ),
    "HorovodProfilingConfig": '{"StartStep": 13, "NumSteps": 1, }',
    "SMDataParallelProfilingConfig": '{"StartStep": 15, "NumSteps": 1, }',
}


def window(text: str, kind: ProfileKind = ProfileKind.DETAILED) -> ProfileWindow:
    return parse_parameters({kind: text}).windows[kind]


def test_no_parameters_take_no_profile() -> None:
    assert parse_parameters({}) == ProfilingParameters()
    assert parse_parameters({}).windows == {}


def test_the_defaults_of_the_sdk_are_read() -> None:
    parsed = parse_parameters(DEFAULTS)
    assert parsed == parse_parameters({name.lower(): text for name, text in DEFAULTS.items()})
    assert (parsed.path, parsed.file_bytes, parsed.file_s, parsed.open_failures) == (
        *("/opt/ml/output/profiler", 10485760, 60.0, 50),
    )
    assert {kind: (each.start_step, each.steps) for kind, each in parsed.windows.items()} == {
        ProfileKind.DETAILED: (5, 1),
        ProfileKind.DATALOADER: (7, 1),
        ProfileKind.PYTHON: (9, 3),
        ProfileKind.HOROVOD: (13, 1),
        ProfileKind.SMDATAPARALLEL: (15, 1),
    }
    assert parsed.windows[ProfileKind.PYTHON].timer is TimerName.DEFAULT


@pytest.mark.parametrize("kind", ProfileKind)
def test_a_kind_without_a_range_is_profiled_at_its_default_steps(kind: ProfileKind) -> None:
    given = parse_parameters(DEFAULTS).windows[kind]
    assert (window("{}", kind).start_step, window("", kind).steps) == (given.start_step, given.steps)


def test_steps_have_defaults_for_each_other() -> None:
    assert window('{"StartStep": 12}') == ProfileWindow(12, 1)
    assert window('{"NumSteps": "4"}') == ProfileWindow(0, 4)
    assert window("{'startstep': 12.0, 'NUMSTEPS': None}") == ProfileWindow(12, 1)


def test_a_time_range_has_no_steps() -> None:
    start = '{"StartTimeInSecSinceEpoch": 1700000000, '
    assert window(start + '"Duration": 2.5, }') == ProfileWindow(None, 1, 1.7e9, 2.5)
    assert window(start + '"DurationInSeconds": 2.5, }') == ProfileWindow(None, 1, 1.7e9, 2.5)
    assert window(start + "}") == ProfileWindow(None, 1, 1.7e9, None)
    assert window('{"Duration": 3}') == ProfileWindow(None, 1, None, 3)


def test_loaders_have_a_regex_and_python_profiles_a_profiler() -> None:
    loader = window(r'{"StartStep": 2, "MetricsRegex": "Data\d+", }', ProfileKind.DATALOADER)
    assert loader.metrics_regex == r"Data\d+"
    python = window('{"ProfilerName": "Pyinstrument", "StartStep": 2}', ProfileKind.PYTHON)
    assert (python.profiler, python.timer) == (PythonProfilerName.PYINSTRUMENT, TimerName.TOTAL_TIME)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"Detailed": "{}"}, 'unknown parameter "Detailed"; use LocalPath'),
        ({"DetailedProfilingConfig": "[5]"}, "must be an object such as"),
        ({"DetailedProfilingConfig": "{5: 1}"}, "must be an object such as"),
        ({"DetailedProfilingConfig": "__import__('os').abort()"}, "must be an object such as"),
        ({"DetailedProfilingConfig": "[" * 250}, "must be an object such as"),
        ({"DetailedProfilingConfig": '{"Steps": 1}'}, 'unknown member "steps"; it can have'),
        ({"DetailedProfilingConfig": '{"MetricsRegex": ".*"}'}, 'unknown member "metricsregex"'),
        (
            {"DetailedProfilingConfig": '{"StartStep": -1}'},
            'StartStep is "-1"; it must be a whole number of at least 0',
        ),
        ({"DetailedProfilingConfig": '{"NumSteps": 0}'}, 'NumSteps is "0"; it must be a whole number of at least 1'),
        ({"DetailedProfilingConfig": '{"NumSteps": True}'}, 'NumSteps is "True"'),
        ({"DetailedProfilingConfig": '{"NumSteps": 1.5}'}, 'NumSteps is "1.5"'),
        ({"DetailedProfilingConfig": '{"NumSteps": 1e400}'}, 'NumSteps is "inf"'),
        ({"DetailedProfilingConfig": '{"StartStep": 1, "Duration": 1}'}, "both steps and a time"),
        ({"DetailedProfilingConfig": '{"Duration": 0}'}, 'Duration is "0"; it must be a number above 0'),
        ({"DataloaderProfilingConfig": '{"MetricsRegex": "("}'}, "not a valid regular expression"),
        ({"PythonProfilingConfig": '{"ProfilerName": "py-spy"}'}, "must be one of cprofile, pyinstrument"),
        ({"PythonProfilingConfig": '{"cProfileTimer": "cpu"}'}, "must be one of total_time, cpu_time"),
        ({"RotateMaxFileSizeInBytes": "many"}, 'RotateMaxFileSizeInBytes is "many"'),
        ({"RotateFileCloseIntervalInSeconds": "nan"}, 'RotateFileCloseIntervalInSeconds is "nan"'),
        ({"FileOpenFailThreshold": "0"}, 'FileOpenFailThreshold is "0"'),
    ],
)
def test_an_invalid_parameter_is_named(parameters: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^ProfilingParameters") as caught:
        parse_parameters(parameters)
    assert words in str(caught.value)
