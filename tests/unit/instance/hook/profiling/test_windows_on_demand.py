import json
from pathlib import Path

import pytest

from trainyard.formats.profiles.step_times import StepRow
from trainyard.instance.hook.profiling import windows_on_demand
from trainyard.instance.hook.profiling.windows_on_demand import WindowsOnDemand
from trainyard.link.event_protocol import PROFILE_WANTED, PROFILER_CONFIG


class RecordedWindows:
    """Windows that record what they are told."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def begin_step(self, number: int, _ended: StepRow | None) -> int:
        self.calls.append(number)
        return number + 3

    def close(self) -> None:
        self.calls.append("close")

    def forget(self) -> None:
        self.calls.append("forget")


@pytest.fixture
def ml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(windows_on_demand, "LOOK_S", 0.0)
    (tmp_path / "input/config").mkdir(parents=True)
    (tmp_path / ".trainyard").mkdir()
    configure(tmp_path, {"LocalPath": "/opt/ml/output/profiler"})
    return tmp_path


def configure(ml: Path, parameters: dict[str, str]) -> None:
    (ml / PROFILER_CONFIG).write_text(json.dumps({"DisableProfiler": False, "ProfilingParameters": parameters}))


def test_windows_are_made_when_the_configuration_first_asks_for_one(ml: Path) -> None:
    windows = RecordedWindows()
    waiting = WindowsOnDemand(ml, lambda: windows, note=pytest.fail)
    waiting.begin_step(0, None)
    assert windows.calls == []
    configure(ml, {"detailedprofilingconfig": "{}"})
    # What the windows are due for is when they are called again.
    assert [waiting.begin_step(number, None) for number in (1, 2)] == [4, 5]
    waiting.close()
    assert windows.calls == [1, 2, "close"]


def test_a_request_makes_windows_too(ml: Path) -> None:
    windows = RecordedWindows()
    waiting = WindowsOnDemand(ml, lambda: windows, note=pytest.fail)
    waiting.begin_step(0, None)
    (ml / PROFILE_WANTED).write_text("{}")
    waiting.begin_step(1, None)
    waiting.forget()
    assert windows.calls == [1, "forget"]


def test_windows_that_cannot_be_made_are_noted_once(ml: Path) -> None:
    notes: list[str] = []

    def fail() -> RecordedWindows:
        raise ImportError("no torch.profiler")

    waiting = WindowsOnDemand(ml, fail, note=notes.append)
    (ml / PROFILE_WANTED).write_text("{}")
    for number in range(3):
        waiting.begin_step(number, None)
    waiting.close()
    (note,) = notes
    assert note.startswith("The steps of the program cannot be profiled; training continues: ")


def test_without_files_nothing_happens(tmp_path: Path) -> None:
    waiting = WindowsOnDemand(tmp_path, lambda: pytest.fail("nobody asked"), note=pytest.fail)
    waiting.begin_step(0, None)
    waiting.close()
