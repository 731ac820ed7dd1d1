"""ProfilingParameters: which profiles a program takes of itself, and in which of its steps.

They are a map of strings. The values that describe a profile are objects as text, which AWS's SDK writes almost as
JSON: with a comma after the last member, and without escapes in strings. Names are compared without case, as in AWS's
library, which evaluates the text as Python. Standard library only: agents and hooks read the parameters too.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from trainyard.foundation.errors import InvalidRequest

DEFAULT_PATH = "/opt/ml/output/profiler"


class ProfileKind(StrEnum):
    """The kinds of profiles, by the names of their parameters."""

    DETAILED = "DetailedProfilingConfig"
    DATALOADER = "DataloaderProfilingConfig"
    PYTHON = "PythonProfilingConfig"
    HOROVOD = "HorovodProfilingConfig"
    SMDATAPARALLEL = "SMDataParallelProfilingConfig"


class PythonProfilerName(StrEnum):
    CPROFILE = "cprofile"
    PYINSTRUMENT = "pyinstrument"


class TimerName(StrEnum):
    """What cProfile counts. DEFAULT takes the other three in turn, one step each."""

    TOTAL_TIME = "total_time"
    CPU_TIME = "cpu_time"
    OFF_CPU_TIME = "off_cpu_time"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ProfileWindow:
    """When one kind of profile is taken, and how.

    With a `start_step`, for `steps` steps from there. Without, for `duration_s` seconds from the Unix time `start_s`;
    that is now if `start_s` is None, and for one step if `duration_s` is None. Only data loaders have a regex, only
    Python profiles a profiler and a timer.
    """

    start_step: int | None = None
    steps: int = 1
    start_s: float | None = None
    duration_s: float | None = None
    metrics_regex: str = ".*"
    profiler: PythonProfilerName = PythonProfilerName.CPROFILE
    timer: TimerName = TimerName.TOTAL_TIME


@dataclass(frozen=True, slots=True)
class ProfilingParameters:
    """The parsed parameters. `windows` has the profiles that are taken; without any, the program takes none."""

    path: str = DEFAULT_PATH
    file_bytes: int = 10485760  # a file of events is closed at this size
    file_s: float = 60  # or after this time
    open_failures: int = 50
    windows: Mapping[ProfileKind, ProfileWindow] = field(default_factory=dict)


_PATH, _SIZE, _INTERVAL, _FAILURES = (
    *("LocalPath", "RotateMaxFileSizeInBytes", "RotateFileCloseIntervalInSeconds"),
    "FileOpenFailThreshold",
)
# Of SageMaker Profiler, a later product of AWS, which profiles by a library of its own.
DEEP_PROFILER = ("CPUProfilingDuration", "SMPFileRotationSecs")
KNOWN = (_PATH, _SIZE, _INTERVAL, _FAILURES, *ProfileKind, *DEEP_PROFILER)

_START_STEP, _STEPS, _START, _DURATION = "startstep", "numsteps", "starttimeinsecsinceepoch", "duration"
# AWS's SDK writes the first, its library reads the second.
_DURATIONS = (_DURATION, "durationinseconds")
_REGEX, _PROFILER, _TIMER = "metricsregex", "profilername", "cprofiletimer"
_TIMES = {_START_STEP, _STEPS, _START, *_DURATIONS}
_MEMBERS = {
    ProfileKind.DATALOADER: _TIMES | {_REGEX},
    ProfileKind.PYTHON: _TIMES | {_PROFILER, _TIMER},
}
# Which steps are profiled if the parameter names none.
_DEFAULT_STEPS = {
    ProfileKind.DETAILED: (5, 1),
    ProfileKind.DATALOADER: (7, 1),
    ProfileKind.PYTHON: (9, 3),
    ProfileKind.HOROVOD: (13, 1),
    ProfileKind.SMDATAPARALLEL: (15, 1),
}

# A member of an object with the comma behind it.
_MEMBER = re.compile(
    r"""\s*(?P<quote>["'])(?P<name>\w+)(?P=quote)\s*:\s*"""
    r"""(?:(?P<mark>["'])(?P<text>.*?)(?P=mark)|(?P<literal>[\w.+-]+))\s*(?:,|(?=\}\Z))"""
)
_LITERALS = {"None": None, "null": None, "True": True, "False": False}

_Word = TypeVar("_Word", bound=StrEnum)
_Number = int | float


def parse_parameters(given: Mapping[str, str], *, member: str = "ProfilingParameters") -> ProfilingParameters:
    """Parse the parameters of a request; InvalidRequest names one that is unknown or invalid. `member` is its name."""
    names = {name.lower(): name for name in KNOWN}
    values = {}
    for key, value in given.items():
        if key.lower() not in names:
            raise InvalidRequest(f'{member} has the unknown parameter "{key}"; use {", ".join(KNOWN)}.')
        values[names[key.lower()]] = value
    defaults = ProfilingParameters()
    return ProfilingParameters(
        values.get(_PATH) or defaults.path,
        _whole(f"{member}.{_SIZE}", values.get(_SIZE, str(defaults.file_bytes)), least=1),
        _positive(f"{member}.{_INTERVAL}", values.get(_INTERVAL, str(defaults.file_s))),
        _whole(f"{member}.{_FAILURES}", values.get(_FAILURES, str(defaults.open_failures)), least=1),
        {kind: _window(kind, values[kind], f"{member}.{kind}") for kind in ProfileKind if kind in values},
    )


def _window(kind: ProfileKind, text: str, what: str) -> ProfileWindow:
    members = _members(text, what)
    known = _MEMBERS.get(kind, _TIMES)
    for name in members:
        if name not in known:
            raise InvalidRequest(f'{what} has the unknown member "{name}"; it can have {", ".join(sorted(known))}.')
    has_steps = any(name in members for name in (_START_STEP, _STEPS))
    has_time = any(name in members for name in (_START, *_DURATIONS))
    if has_steps and has_time:
        raise InvalidRequest(f"{what} has both steps and a time; give one of them.")
    first, steps = (0, 1) if has_steps or has_time else _DEFAULT_STEPS[kind]
    duration = next((members[name] for name in _DURATIONS if name in members), None)
    return ProfileWindow(
        None if has_time else _whole(f"{what} StartStep", members.get(_START_STEP, first), least=0),
        _whole(f"{what} NumSteps", members.get(_STEPS, steps), least=1),
        _positive(f"{what} StartTimeInSecSinceEpoch", members[_START]) if _START in members else None,
        None if duration is None else _positive(f"{what} Duration", duration),
        _regex(f"{what} MetricsRegex", members.get(_REGEX, ".*")),
        _word(f"{what} ProfilerName", members.get(_PROFILER, PythonProfilerName.CPROFILE), PythonProfilerName),
        _word(f"{what} cProfileTimer", members.get(_TIMER, TimerName.TOTAL_TIME), TimerName),
    )


def _members(text: str, what: str) -> dict[str, object]:
    """Return the members of an object as text, with their names in lower case."""
    try:
        value = json.loads(text.strip() or "{}")
    except (ValueError, RecursionError):
        value = _unescaped_members(text.strip())
    if not isinstance(value, dict):
        raise InvalidRequest(f'{what} is {text!r}; it must be an object such as {{"StartStep": 5, "NumSteps": 1}}.')
    return {name.lower(): member for name, member in value.items() if member is not None}


def _unescaped_members(text: str) -> dict[str, object] | None:
    """Parse an object as AWS's SDK writes it; None if the text is none."""
    found: dict[str, object] = {}
    position = 1
    while match := _MEMBER.match(text, position):
        position = match.end()
        literal = match["literal"]
        found[match["name"]] = match["text"] if literal is None else _LITERALS.get(literal, literal)
    return found if text.startswith("{") and text[position:].strip() == "}" else None


def _whole(what: str, value: object, *, least: int) -> int:
    """Return a whole number, which may be written as text or with a point, such as "1e7"."""
    number = _number(value)
    if number is None or number != int(number) or number < least:
        raise InvalidRequest(f'{what} is "{value}"; it must be a whole number of at least {least}.')
    return int(number)


def _positive(what: str, value: object) -> float:
    number = _number(value)
    if number is None or number <= 0:
        raise InvalidRequest(f'{what} is "{value}"; it must be a number above 0.')
    return float(number)


def _number(value: object) -> _Number | None:
    """Return a finite number, or None if the value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    parse: Callable[[str], _Number] = float
    try:
        number = parse(value) if isinstance(value, str) else value
        return number if math.isfinite(number) else None
    except (ValueError, OverflowError):
        return None


def _regex(what: str, value: object) -> str:
    try:
        re.compile(str(value))
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidRequest(f'{what} is "{value}", which is not a valid regular expression: {error}.') from error
    return str(value)


def _word(what: str, value: object, words: type[_Word]) -> _Word:
    try:
        return words(str(value).lower())
    except ValueError:
        raise InvalidRequest(f'{what} is "{value}"; it must be one of {", ".join(words)}.') from None
