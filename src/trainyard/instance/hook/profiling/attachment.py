"""Attaches the profiler to a framework that the program has just imported."""

import functools
import json
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainyard.instance.hook.profiling.step_file import StepFile
from trainyard.instance.hook.worker import current_rank
from trainyard.link.event_protocol import PROFILER_CONFIG, STEP_TIMES

Note = Callable[[str], None]

# What SageMaker tells a program about its instances.
_RESOURCES = "input/config/resourceconfig.json"
# How long a program may take from its start until it has imported its framework: a request that came meanwhile counts.
_START_S = 60.0


def attach_profiler(framework: str, ml: Path, environment: Mapping[str, str], *, note: Note) -> None:
    """Time the steps of a program from now on, or from when its job enables its profiler. Never raises.

    A second call for the same framework does nothing.
    """
    if framework not in _ATTACH or framework in _attached:
        return
    config = ml / PROFILER_CONFIG
    if _is_enabled(config):
        _attached.append(framework)
        _attach(framework, ml, environment, note)
    elif framework == "torch" and config.exists():
        from trainyard.instance.hook.profiling.late_attachment import LateAttachment

        _attached.append(framework)
        LateAttachment(lambda: _is_enabled(config), lambda: _attach(framework, ml, environment, note))


def _attach(framework: str, ml: Path, environment: Mapping[str, str], note: Note) -> None:
    try:
        _ATTACH[framework](ml, environment, note)
    except Exception as error:
        note(f"The steps of the program are not timed; training continues: {error!r}.")


def _attach_torch(ml: Path, environment: Mapping[str, str], note: Note) -> None:
    from trainyard.instance.hook.profiling.torch_timer import TorchTimer
    from trainyard.instance.hook.profiling.trial import read_trial
    from trainyard.instance.hook.profiling.windows_on_demand import WindowsOnDemand

    since_s = time.time() - _START_S

    def make_windows(timer: TorchTimer) -> WindowsOnDemand:
        make = functools.partial(_make_windows, ml, environment, timer, note=note, since_s=since_s)
        return WindowsOnDemand(ml, make, note=note, since_s=since_s)

    trial = read_trial(environment, note=note)
    TorchTimer(lambda facts: _open_file(ml, environment, facts), note=note, make_windows=make_windows, trial=trial)


def _attach_xgboost(ml: Path, environment: Mapping[str, str], note: Note) -> None:
    from trainyard.instance.hook.profiling.trial import read_trial
    from trainyard.instance.hook.profiling.xgboost_timer import XGBoostTimer

    trial = read_trial(environment, note=note)
    XGBoostTimer(lambda facts: _open_file(ml, environment, facts), note=note, trial=trial)


_ATTACH: Mapping[str, Callable[[Path, Mapping[str, str], Note], None]] = {
    "torch": _attach_torch,
    "xgboost": _attach_xgboost,
}
_attached: list[str] = []


def _is_enabled(config: Path) -> bool:
    try:
        return json.loads(config.read_bytes()).get("DisableProfiler") is not True
    except (OSError, ValueError, AttributeError):
        return False


def _open_file(ml: Path, environment: Mapping[str, str], facts: Callable[[], Mapping[str, Any]]) -> StepFile:
    return StepFile(ml / STEP_TIMES, current_rank(environment).name, facts)


def _make_windows(ml: Path, environment: Mapping[str, str], timer: Any, *, note: Note, since_s: float) -> Any:
    from trainyard.instance.hook.profiling.windows import ProfileWindows

    # Which rank this is may be known only later.
    return ProfileWindows(
        ml, host=_host(ml), worker=lambda: current_rank(environment).name, note=note, timer=timer, since_s=since_s
    )


def _host(ml: Path) -> str:
    """Return the name of the instance, such as algo-1."""
    try:
        return str(json.loads((ml / _RESOURCES).read_bytes())["current_host"])
    except (OSError, ValueError, KeyError, TypeError):
        return socket.gethostname()
