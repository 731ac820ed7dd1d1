"""Profiles of chosen steps of real trainings with torch."""

import cProfile
import itertools
import json
import os
import pstats
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from trainyard.formats.profiles.contract import PARTS_FOLDER
from trainyard.formats.profiles.traces.contract import Trace
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.instance.hook.profiling import torch_profile, torch_timer, windows, windows_on_demand
from trainyard.instance.hook.profiling.step_file import StepFile
from trainyard.instance.hook.profiling.torch_timer import TorchTimer
from trainyard.instance.hook.profiling.windows import ProfileWindows
from trainyard.instance.hook.profiling.windows_on_demand import ProfiledSteps, WindowsOnDemand
from trainyard.link.event_protocol import PROFILE_WANTED, PROFILER_CONFIG
from trainyard.testing.eventually import eventually

DETAILED, PYTHON, LOADER = "DetailedProfilingConfig", "PythonProfilingConfig", "DataloaderProfilingConfig"


class Training:
    """A training whose steps are profiled as files below its /opt/ml say."""

    def __init__(self, ml: Path) -> None:
        self.ml = ml
        self.notes: list[str] = []
        (ml / "input/config").mkdir(parents=True)
        (ml / ".trainyard").mkdir()
        self.configure()
        self._timer: TorchTimer | None = None
        self._requests = 0

    @property
    def timer(self) -> TorchTimer:
        if self._timer is None:
            self._timer = TorchTimer(
                lambda facts: StepFile(self.ml / "steps", "worker_0", facts),
                note=self.notes.append,
                make_windows=self._make_windows,
            )
        return self._timer

    def configure(self, **parameters: Any) -> None:
        given = {name: json.dumps(value) for name, value in parameters.items()}
        self.write(PROFILER_CONFIG, {"DisableProfiler": False, "ProfilingParameters": given})

    def request(self, steps: int) -> None:
        self._requests += 1
        self.write(PROFILE_WANTED, {"number": self._requests, "steps": steps})

    def write(self, name: str, content: object) -> None:
        """Replace a file, as the agent does."""
        new = self.ml / "new"
        new.write_text(json.dumps(content))
        new.replace(self.ml / name)

    def train(self, steps: int, *, workers: int = 0, at: Callable[[int], object] = lambda _: None) -> None:
        """Train so many steps; call `at` with the number of each, in the middle of it."""
        _ = self.timer
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = TensorDataset(torch.randn(steps * 2, 4), torch.randint(2, (steps * 2,)))
        for number, (x, y) in enumerate(DataLoader(data, batch_size=2, num_workers=workers)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            at(number)
            optimizer.step()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.close()

    def files(self, pattern: str) -> list[Path]:
        found = (self.ml / "output/profiler").rglob(pattern)
        return sorted(path for path in found if PARTS_FOLDER not in path.parts)

    def traces(self) -> list[Trace]:
        """End, and return the traces that were written, in the order of their steps."""
        self.end()
        found = []
        for path in self.files("*.pt.trace.json.gz"):
            with path.open("rb") as file:
                found.append(read_trace(file))
        return found

    def python_profiles(self) -> list[pstats.Stats]:
        self.end()
        return [pstats.Stats(str(path)) for path in self.files("python_stats")]

    def events(self, kind: str = "pythontimeline") -> list[dict[str, Any]]:
        self.end()
        return [each for path in self.files(f"*_{kind}.json") for each in json.loads(path.read_text())]

    def _make_windows(self, timer: TorchTimer) -> ProfiledSteps:
        def make() -> ProfileWindows:
            return ProfileWindows(
                self.ml, host="algo-1", worker=lambda: "worker_0", note=self.notes.append, timer=timer
            )

        return WindowsOnDemand(self.ml, make, note=self.notes.append)


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    # The files are looked at before every step.
    monkeypatch.setattr(torch_timer, "BATCH_S", 0.0)
    monkeypatch.setattr(windows, "LOOK_S", 0.0)
    monkeypatch.setattr(windows_on_demand, "LOOK_S", 0.0)
    made = Training(tmp_path)
    yield made
    made.end()
    assert not torch.autograd._profiler_enabled()
    assert not list(tmp_path.rglob(PARTS_FOLDER))


def steps_of(trace: Trace) -> list[int]:
    return [int(number) for number in trace.steps.numbers]


def names(events: list[dict[str, Any]]) -> set[str]:
    return {each["name"] for each in events if each["ph"] == "X"}


def test_a_window_has_its_steps_although_others_are_handed_on_together(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_timer, "BATCH_S", 3600.0)
    training.configure(**{DETAILED: {"StartStep": 10, "NumSteps": 2}})
    training.train(20)
    (trace,) = training.traces()
    assert steps_of(trace) == [10, 11]


def test_torch_profiles_the_steps_that_the_configuration_names(training: Training) -> None:
    training.configure(**{DETAILED: {"StartStep": 3, "NumSteps": 2}})
    training.train(8)
    (trace,) = training.traces()
    assert (trace.producer, trace.is_complete, steps_of(trace)) == ("PyTorch", True, [3, 4])
    assert trace.has_shapes
    assert trace.has_memory
    (path,) = training.files("*.gz")
    assert path.parent.name == "000000003"
    assert path.parents[2].relative_to(training.ml) == Path("output/profiler/framework/pytorch/detailed_profiling")
    assert path.name.startswith("algo-1-worker_0.")
    assert training.notes == []


def test_each_step_has_a_python_profile_of_its_own(training: Training) -> None:
    training.configure(**{PYTHON: {"StartStep": 2, "NumSteps": 3, "cProfileTimer": "default"}})
    training.train(8, at=expensive)
    profiles = training.python_profiles()
    assert [each.parent.name.split("-")[1] for each in training.files("python_stats")] == ["2", "3", "4"]
    for profile in profiles:
        called = {name for (_, _, name) in profile.stats}  # type: ignore[attr-defined]
        assert "expensive" in called
    assert training.notes == []


def expensive(_: int) -> None:
    sum(range(1000))


def test_two_profiles_that_record_everything_never_overlap(training: Training) -> None:
    both = {"StartStep": 2, "NumSteps": 2}
    training.configure(**{DETAILED: both, PYTHON: both})
    training.train(8)
    (trace,) = training.traces()
    assert steps_of(trace) == [2, 3]
    assert [each.parent.name.split("-")[1] for each in training.files("python_stats")] == ["4", "5"]


def test_data_loaders_and_phases_are_recorded_as_events(training: Training) -> None:
    training.configure(**{LOADER: {"StartStep": 3, "NumSteps": 3}})
    training.train(4)
    training.train(6)
    events = training.events()
    (first, *_) = events
    assert 0 <= time.time() * 1e6 - first["args"]["start_time_since_epoch_in_micros"] < 600e6
    waits = [each for each in events if each["name"] == "SingleProcessDataLoaderIter::GetNext"]
    steps = [each for each in events if each["name"] == "Step:ModeKeys.TRAIN"]
    # The window begins in the first of three.
    assert len(waits) == 2
    assert sum(each["name"] == "DataWait" for each in events) >= 3
    assert [each["args"]["step_num"] for each in steps] == ["3", "4", "5"]
    assert waits[0]["args"] == {"num_workers": 0, "pin_memory": False}
    assert {"_SingleProcessDataLoaderIter.__init__", "Forward", "Backward", "Optimizer"} <= names(events)
    (loaders,) = (each["args"]["loaders"] for each in events if each["name"] == "DataLoader")
    assert loaders[0]["workers"] == 0
    (path,) = training.files("*_pythontimeline.json")
    with path.open("rb") as file:
        assert read_trace(file).is_unix_time


def test_only_events_that_the_regex_selects_are_recorded(training: Training) -> None:
    training.configure(**{LOADER: {"StartStep": 0, "NumSteps": 3, "MetricsRegex": ".*getnext"}})
    training.train(6)
    assert names(training.events()) == {"SingleProcessDataLoaderIter::GetNext"}


def test_the_batches_that_workers_have_ready_are_counted(training: Training) -> None:
    training.configure(**{LOADER: {"StartStep": 0, "NumSteps": 9}})
    training.train(6, workers=1)
    waits = [each for each in training.events() if each["name"].endswith("::GetNext")]
    assert [each["args"]["num_workers"] for each in waits[:6]] == [1] * 6
    assert all(0 <= each["args"]["batches_ready"] <= 2 for each in waits[:6])


class IsProfiled(Dataset[Any]):  # type: ignore[misc]
    """Says of the process that makes each sample whether torch records in it."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, _: int) -> torch.Tensor:
        return torch.tensor(float(torch.autograd._profiler_enabled()))


def test_workers_that_are_forked_in_a_window_are_not_profiled(training: Training) -> None:
    training.configure(**{DETAILED: {"StartStep": 1, "NumSteps": 2}})
    seen: list[float] = []

    def load(step: int) -> None:
        if step == 2:
            assert torch.autograd._profiler_enabled()
            seen.extend(float(batch[0]) for batch in DataLoader(IsProfiled(), num_workers=1))

    training.train(5, at=load)
    (trace,) = training.traces()
    assert seen == [0.0] * 4
    assert steps_of(trace)[0] == 1


def test_a_request_profiles_the_next_steps(training: Training) -> None:
    training.train(6, at=lambda step: training.request(2) if step == 2 else None)
    (trace,) = training.traces()
    assert steps_of(trace) == [3, 4]


def test_a_request_that_comes_during_another_is_carried_out_after_it(training: Training) -> None:
    training.train(9, at=lambda step: training.request(2) if step in (1, 2) else None)
    assert [steps_of(trace) for trace in training.traces()] == [[2, 3], [4, 5]]


def test_a_request_for_no_steps_is_refused_in_a_note(training: Training) -> None:
    training.train(5, at=lambda step: training.request(0) if step == 2 else None)
    assert training.traces() == []
    assert training.notes == ["No step is profiled: 0 steps were asked for. Ask for at least one."]


def test_a_window_that_grows_too_large_is_cut_and_says_so(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_profile, "MAX_GROWTH_BYTES", -(1 << 40))
    training.train(8, at=lambda step: training.request(1_000_000) if step == 0 else None)
    (trace,) = training.traces()
    assert steps_of(trace) == [1, 2, 3]
    (note,) = training.notes
    assert note.startswith("The torch profile was cut after 3 steps: the memory of the process had grown by")


def test_a_window_by_time_begins_now_and_ends_in_time(training: Training) -> None:
    training.configure(**{DETAILED: {"Duration": 0.2}})
    training.train(30, at=lambda _: time.sleep(0.02))
    (trace,) = training.traces()
    assert steps_of(trace)[0] == 0
    assert 1 <= len(trace.steps) < 30


def test_new_parameters_replace_windows_that_have_not_begun(training: Training) -> None:
    training.configure(**{DETAILED: {"StartStep": 5}})
    training.train(10, at=lambda step: training.configure(**{DETAILED: {"StartStep": 7}}) if step == 2 else None)
    (trace,) = training.traces()
    assert steps_of(trace) == [7]


def test_a_window_that_is_taken_is_not_taken_again_when_other_parameters_change(training: Training) -> None:
    first, second = {DETAILED: {"StartStep": 1}}, {PYTHON: {"StartStep": 6, "NumSteps": 1}}
    training.configure(**first)
    training.train(9, at=lambda step: training.configure(**first, **second) if step == 4 else None)
    assert [steps_of(trace) for trace in training.traces()] == [[1]]
    assert len(training.python_profiles()) == 1


def test_a_disabled_profiler_ends_the_window_that_runs(training: Training) -> None:
    training.configure(**{DETAILED: {"StartStep": 1, "NumSteps": 100}})
    off = {"DisableProfiler": True, "ProfilingParameters": {}}
    training.train(9, at=lambda step: training.write(PROFILER_CONFIG, off) if step == 3 else None)
    (trace,) = training.traces()
    assert steps_of(trace) == [1, 2, 3]


@pytest.mark.parametrize("garbage", ["", "{", "[1]", '{"ProfilingParameters": {"Unheard": "of"}}', "\x00" * 100])
def test_a_configuration_that_is_garbage_changes_nothing(training: Training, garbage: str) -> None:
    training.configure(**{DETAILED: {"StartStep": 4}})

    def spoil(step: int) -> None:
        if step == 2:
            (training.ml / PROFILER_CONFIG).write_text(garbage)

    training.train(8, at=spoil)
    (trace,) = training.traces()
    assert steps_of(trace) == [4]
    (note,) = training.notes
    assert "the profiles of the program stay as they were" in note.replace("The", "the")


def test_steps_that_are_over_and_steps_that_never_come_are_mentioned(training: Training) -> None:
    def configure(step: int) -> None:
        if step == 4:
            training.configure(**{DETAILED: {"StartStep": 1}, PYTHON: {"StartStep": 100}})

    training.train(8, at=configure)
    assert training.traces() == []
    assert training.notes == [
        "The torch profile was not taken: its steps were over before the program knew of it.",
        "The Python profile of step 100 was not taken: the training ended before it.",
    ]


def test_no_profile_is_taken_while_the_program_profiles_itself(training: Training) -> None:
    training.configure(**{DETAILED: {"StartStep": 2}})
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        training.train(5)
    assert training.traces() == []
    assert any(each.key == "aten::linear" for each in own.key_averages())
    assert training.notes == ["The torch profile was not taken, because a profiler of the program itself is running."]


def test_a_profiler_of_the_program_ends_a_window(training: Training) -> None:
    training.configure(**{DETAILED: {"StartStep": 1, "NumSteps": 100}})
    own = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])

    def profile(step: int) -> None:
        if step == 3:
            own.start()
        elif step == 5:
            own.stop()

    training.train(8, at=profile)
    (trace,) = training.traces()
    assert steps_of(trace) == [1, 2, 3]
    assert any(each.key == "aten::linear" for each in own.key_averages())
    assert training.notes == ["The torch profile ended early: the program started a profiler of its own."]


def test_a_python_profiler_of_the_program_ends_a_window(training: Training) -> None:
    training.configure(**{PYTHON: {"StartStep": 1, "NumSteps": 100}})
    own = cProfile.Profile()

    def profile(step: int) -> None:
        if step == 3:
            own.enable()
        elif step == 5:
            own.disable()

    training.train(8, at=profile)
    assert len(training.python_profiles()) == 3
    own.create_stats()
    assert any(name == "train" or "step" in name for (_, _, name) in own.stats)
    assert training.notes == ["The Python profile ended early: the program started a Python profiler of its own."]
    assert "enable" not in vars(cProfile.Profile)


def test_without_pyinstrument_cprofile_is_used(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyinstrument", None)
    training.configure(**{PYTHON: {"StartStep": 1, "NumSteps": 1, "ProfilerName": "pyinstrument"}})
    training.train(4)
    assert len(training.python_profiles()) == 1
    (note,) = training.notes
    assert note.startswith("pyinstrument is not installed in the environment of the job, so cProfile is used")


def test_a_folder_that_cannot_be_written_costs_the_profile_and_nothing_else(training: Training) -> None:
    (training.ml / "output").write_text("not a folder")
    training.configure(**{DETAILED: {"StartStep": 1}, PYTHON: {"StartStep": 3}, LOADER: {"StartStep": 1}})
    training.train(8)
    training.end()
    assert training.notes
    assert all(note == "Writing a profile failed; training continues: Not a directory." for note in training.notes)


def test_profiles_that_fail_again_and_again_are_given_up(training: Training) -> None:
    (training.ml / "output").write_text("not a folder")
    limit = {"FileOpenFailThreshold": 2, "RotateMaxFileSizeInBytes": 1}
    training.configure(
        **{LOADER: {"StartStep": 0, "NumSteps": 1000}, PYTHON: {"StartStep": 2, "NumSteps": 1000}}, **limit
    )
    training.train(60, at=lambda _: time.sleep(0.001))
    training.end()
    assert training.notes[-1] == "No more profiles are taken after 2 errors."
    assert sys.getprofile() is None


# A training in a process of its own, with the path of its /opt/ml as its argument.
PROGRAM = """
import json, os, resource, sys, time
from pathlib import Path
ml = Path(sys.argv[1])
import torch
from torch import nn
from trainyard.instance.hook.profiling.attachment import attach_profiler
attach_profiler("torch", ml, os.environ, note=lambda text: print(f"note: {text}\\n", end="", flush=True))
limit, steps, pause_s = (float(os.environ.get(name, "0")) for name in ("LIMIT", "STEPS", "PAUSE"))
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(int(steps)):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print(f"step {step}\\n", end="", flush=True)
    time.sleep(pause_s)
print("windows:", "trainyard.instance.hook.profiling.windows" in sys.modules)
"""


def start(ml: Path, **environment: str) -> "subprocess.Popen[str]":
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(ml)],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_without_a_window_nothing_is_imported_and_nothing_written(tmp_path: Path) -> None:
    training = Training(tmp_path)
    output, _ = start(tmp_path, STEPS="3").communicate()
    assert output.splitlines()[-1] == "windows: False"
    assert training.files("*") == []


def test_a_disk_that_is_full_costs_the_profile_and_leaves_no_part_of_it(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.configure(**{DETAILED: {"StartStep": 1}, PYTHON: {"StartStep": 3, "NumSteps": 1}})
    process = start(tmp_path, STEPS="6", LIMIT="3000")
    output, _ = process.communicate()
    assert process.returncode == 0
    assert "step 5" in output
    assert "note: Writing a profile failed; training continues: " in output
    assert [path for path in training.files("*") if path.is_file()] == []


def test_a_program_that_is_killed_in_a_window_leaves_no_torn_profile(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.configure(**{DETAILED: {"StartStep": 1, "NumSteps": 1000}, PYTHON: {"StartStep": 1001}})
    process = start(tmp_path, STEPS="1000", PAUSE="0.01")
    assert process.stdout is not None
    while process.stdout.readline() != "step 3\n":
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert [path for path in training.files("*") if path.is_file() and PARTS_FOLDER not in path.parts] == []


def test_each_rank_writes_files_of_its_own(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.configure(**{DETAILED: {"StartStep": 1}, PYTHON: {"StartStep": 3, "NumSteps": 1}})
    ranks = [start(tmp_path, STEPS="6", RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    for rank in ranks:
        rank.communicate()
    workers = [path.name.partition(".")[0].rpartition("-")[2] for path in training.files("*.gz")]
    assert sorted(workers) == ["worker_0", "worker_1"]
    assert len(training.files("python_stats")) == 2


def test_a_request_reaches_a_program_that_runs(tmp_path: Path) -> None:
    training = Training(tmp_path)
    process = start(tmp_path, STEPS="100000", PAUSE="0.01")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        training.request(2)
        eventually(lambda: training.files("*.pt.trace.json.gz"), "the trace")
    finally:
        process.kill()
        process.communicate()
    (trace,) = training.traces()
    assert len(trace.steps) == 2


def test_a_profiler_that_is_enabled_later_profiles_what_is_asked_for_then(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.write(PROFILER_CONFIG, {"DisableProfiler": True, "ProfilingParameters": {}})
    process = start(tmp_path, STEPS="100000", PAUSE="0.01")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert not (tmp_path / ".trainyard/steps").exists()
        training.configure()
        eventually(lambda: list(tmp_path.glob(".trainyard/steps/*.steps")), "the step times")
        training.request(2)
        eventually(lambda: training.files("*.pt.trace.json.gz"), "the trace")
    finally:
        process.kill()
        process.communicate()
    (trace,) = training.traces()
    assert len(trace.steps) == 2


class RecordedProfiler:
    """Stands in for pyinstrument, which the environment of the tests lacks: what of it is used, and nothing else."""

    def __init__(self) -> None:
        self.is_running = False

    def start(self) -> None:
        self.is_running = True

    def stop(self) -> None:
        assert self.is_running
        self.is_running = False

    def output(self, *, renderer: object) -> str:
        assert not self.is_running
        return f'{{"renderer": "{type(renderer).__name__}"}}'

    def output_html(self) -> str:
        return "<html>"


def test_pyinstrument_profiles_all_steps_of_a_window_together(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderers = types.ModuleType("pyinstrument.renderers")
    renderers.__dict__["JSONRenderer"] = type("JSONRenderer", (), {})
    package = types.ModuleType("pyinstrument")
    package.__dict__["Profiler"] = RecordedProfiler
    monkeypatch.setitem(sys.modules, "pyinstrument", package)
    monkeypatch.setitem(sys.modules, "pyinstrument.renderers", renderers)
    training.configure(**{PYTHON: {"StartStep": 0, "NumSteps": 3, "ProfilerName": "Pyinstrument"}})
    training.train(6)
    training.end()
    (stats,) = training.files("python_stats.json")
    assert json.loads(stats.read_text()) == {"renderer": "JSONRenderer"}
    assert stats.with_name("python_stats.html").exists()
    assert stats.parents[1].parent.name == "pyinstrument"
    assert [stats.parent.name.split("-")[at] for at in (1, 4)] == ["0", "3"]


def test_communication_is_recorded_in_a_timeline_of_its_own(training: Training) -> None:
    training.configure(HorovodProfilingConfig={"StartStep": 1, "NumSteps": 2})
    _ = training.timer
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        training.train(5, at=lambda _: torch.distributed.all_reduce(torch.ones(3)))
    finally:
        torch.distributed.destroy_process_group()
    events = [each for each in training.events("horovod_timeline") if each["ph"] == "X"]
    assert names(events) == {"Communication"}
    assert [step for step, _ in itertools.groupby(each["args"]["step_num"] for each in events)] == ["1", "2"]
    assert training.events() == []
