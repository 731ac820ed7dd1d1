"""Steps from an adapter, through the writer thread, to files and subscribers."""

import errno
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainyard.formats.tensors.contract import ABSENT, Kind, Mode, Statistic, Step
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.formats.tensors.trials.trial import create_trial
from trainyard.foundation.sources import FolderSource
from trainyard.instance.hook import flush_schedule, step_writer
from trainyard.instance.hook.configuration import parse_config
from trainyard.instance.hook.contract import HookContext, ResumePoint, TensorRequest
from trainyard.instance.hook.recording import HookRecording
from trainyard.instance.hook.worker import WorkerRank
from trainyard.testing.eventually import eventually


class Elsewhere:
    """A folder as another process sees it: what this process holds back is not there."""

    def __init__(self, folder: Path) -> None:
        files = FolderSource(folder)
        self.place, self.entries, self.folders = files.place, files.entries, files.folders
        self.size, self.read = files.size, files.read


class Follower:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self.has_ended = False

    def take(self, step: Step) -> None:
        self.steps.append(step)

    def end(self) -> None:
        self.has_ended = True

    def send_event(self, kind: str, payload: Mapping[str, Any]) -> None:
        self.told.append((kind, payload))

    @property
    def notes(self) -> list[str]:
        return [payload["text"] for kind, payload in self.told if kind == "note"]


def record(
    folder: Path,
    follower: Follower,
    *,
    requests: tuple[TensorRequest, ...] = (),
    worker: WorkerRank | None = None,
    resume_points: Mapping[str, ResumePoint] | None = None,
    **hook: str,
) -> HookRecording:
    content = {
        "LocalPath": str(folder),
        "HookParameters": {"save_interval": "2", **hook},
        "CollectionConfigurations": [{"CollectionName": "outputs", "CollectionParameters": {"include_regex": "out"}}],
    }
    context = HookContext([follower], requests, (), follower.send_event, resume_points or {})
    return HookRecording(parse_config(content), context, worker=worker or WorkerRank())


def test_observed_tensors_are_written_and_published(tmp_path: Path) -> None:
    follower = Follower()
    recording = record(tmp_path, follower)
    for number in range(4):
        recording.begin(Mode.TRAIN)
        recording.observe_scalar("loss", 1.0 / (number + 1), kind=Kind.LOSS)
        recording.observe("out", np.arange(6.0).reshape(2, 3) * number, kind=Kind.OUTPUT)
        assert not recording.is_wanted("weight", Kind.WEIGHT)
        recording.observe("weight", np.ones(3), kind=Kind.WEIGHT)
        recording.finish()
    recording.close()
    assert [step.number for step in follower.steps] == [0, 1, 2, 3]
    assert follower.has_ended
    trial = create_trial(str(tmp_path))
    assert trial.tensor("out").steps() == [0, 2]
    np.testing.assert_array_equal(trial.tensor("out").value(2), np.arange(6.0).reshape(2, 3) * 2)
    assert trial.loaded_all_steps
    assert not trial.has_tensor("weight")
    assert follower.steps[3].statistics[follower.steps[3].table.places["out"], Statistic.MAX] == 15.0


def test_an_open_step_is_finished_when_the_next_begins(tmp_path: Path) -> None:
    follower = Follower()
    recording = record(tmp_path, follower)
    recording.begin(Mode.TRAIN)
    recording.begin(Mode.EVAL)
    recording.begin(Mode.EVAL)
    recording.close()
    told = [(step.number, step.mode, step.mode_step) for step in follower.steps]
    assert told == [(0, Mode.TRAIN, 0), (1, Mode.EVAL, 0), (2, Mode.EVAL, 1)]


def test_an_interrupted_training_continues_its_count_and_keeps_its_steps(tmp_path: Path) -> None:
    first, second = Follower(), Follower()
    recording = record(tmp_path, first)
    for mode in (Mode.TRAIN, Mode.TRAIN, Mode.EVAL):
        recording.begin(mode)
        recording.observe_scalar("loss", 1.0, kind=Kind.LOSS)
    recording.close()
    manifest = json.loads((tmp_path / "worker_0.manifest.json").read_text())
    counted = {Mode(mode): count for mode, count in manifest["mode_steps"].items()}
    resume_points = {"worker_0": ResumePoint(manifest["last_step"] + 1, counted)}
    recording = record(tmp_path, second, resume_points=resume_points)
    for mode in (Mode.TRAIN, Mode.EVAL):
        recording.begin(mode)
        recording.observe_scalar("loss", 0.5, kind=Kind.LOSS)
    recording.close()
    assert [(step.number, step.mode_step) for step in second.steps] == [(3, 2), (4, 1)]
    trial = create_trial(tmp_path)
    assert list(trial.series("loss", "mean").values) == [1.0, 1.0, 1.0, 0.5, 0.5]


def test_a_step_in_which_a_subscriber_found_something_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Alarmed(Follower):
        def needs_flush(self) -> bool:
            return self.steps[-1].number == 1

    for delay in ("MIN_DELAY_S", "MAX_DELAY_S"):
        monkeypatch.setattr(flush_schedule, delay, 3600.0)
    recording = record(tmp_path, Alarmed())
    for _ in range(2):
        recording.begin(Mode.TRAIN)
        recording.observe_scalar("loss", 1.0, kind=Kind.LOSS)
    recording.finish()
    eventually(lambda: any(tmp_path.glob("steps/*/*.arrows")))
    eventually(lambda: list(create_trial(Elsewhere(tmp_path)).series("loss").steps) == [0, 1])
    recording.close()


def test_a_reader_in_the_same_process_sees_every_finished_step(tmp_path: Path) -> None:
    recording = record(tmp_path, Follower())
    trial = None
    for number in range(30):
        recording.begin(Mode.TRAIN)
        recording.observe_scalar("loss", 1.0, kind=Kind.LOSS)
        recording.finish()
        trial = trial or create_trial(tmp_path)
        assert list(trial.series("loss").steps) == list(range(number + 1))
    assert trial is not None
    assert "in progress" in trial._repr_html_()
    recording.close()
    assert trial.loaded_all_steps
    assert all(text in trial._repr_html_() for text in ("30, the last is 29", "has ended", "loss", "<polyline"))


def test_a_reader_elsewhere_sees_a_finished_step_while_the_program_pauses(tmp_path: Path) -> None:
    recording = record(tmp_path, Follower())
    made = 0

    def are_all_seen() -> bool:
        return len(create_trial(Elsewhere(tmp_path)).series("loss").steps) == made

    for made in range(1, 70):
        recording.begin(Mode.TRAIN)
        recording.observe_scalar("loss", 1.0, kind=Kind.LOSS)
        recording.finish()
        if made in (1, 2, 40, 69):
            eventually(lambda: any(tmp_path.glob("*.manifest.json")))
            eventually(are_all_seen)
    recording.close()


def test_an_addition_to_a_step_that_was_read_is_recorded_with_it(tmp_path: Path) -> None:
    recording = record(tmp_path, Follower(), save_interval="1")
    for number in range(3):
        recording.begin(Mode.TRAIN)
        recording.observe_scalar("loss", float(number), kind=Kind.LOSS)
        recording.observe("out", np.arange(4.0))
        assert recording.open_step is not None
        recording.open_step.may_be_amended = True
        recording.finish()
        assert create_trial(tmp_path).steps()[-1] == number
        assert recording.reopen() is not None
        recording.observe("more", np.arange(2.0))
        recording.observe_scalar("scalar/late", float(number))
    recording.close()
    trial = create_trial(tmp_path)
    assert trial.steps() == [0, 1, 2]
    assert list(trial.series("loss").values) == list(trial.series("scalar/late").values) == [0, 1, 2]
    assert trial.tensor("out").value(2).tolist() == [0, 1, 2, 3]
    assert trial.tensor("more").value(2).tolist() == [0, 1]


def test_statistics_are_those_of_numpy_for_values_of_every_sort(tmp_path: Path) -> None:
    follower = Follower()
    recording = record(tmp_path, follower)
    values = np.array([0.0, -1.0, 3.0, 0.0, 2.5], np.float32)
    broken = np.array([1.0, np.nan, np.inf, 0.0])
    recording.begin(Mode.TRAIN)
    recording.observe("out_a", values)
    recording.observe("out_b", broken)
    recording.observe("out_c", np.array([], np.float64))
    recording.close()
    (step,) = follower.steps
    row = step.statistics[step.table.places["out_a"]]
    np.testing.assert_allclose(row[:5], [0.9, values.std(), 1.3, -1.0, 3.0], rtol=1e-6)
    assert row[Statistic.ZEROS] == 2
    assert list(step.statistics[step.table.places["out_b"]][5:]) == [1, 1, 1]
    assert step.statistics[step.table.places["out_c"], Statistic.NANS] == ABSENT


def test_reductions_that_need_the_values_are_saved_beside_them(tmp_path: Path) -> None:
    recording = record(tmp_path, Follower(), reductions="prod,abs_min,mean")
    recording.begin(Mode.TRAIN)
    recording.observe("out", np.array([2.0, -0.5, 3.0]), kind=Kind.OUTPUT)
    recording.close()
    tensor = create_trial(str(tmp_path)).tensor("out")
    assert tensor.reduction_value(0, "prod") == pytest.approx(-3.0)
    assert tensor.reduction_value(0, "min", abs=True) == pytest.approx(0.5)
    assert tensor.reduction_value(0, "mean") == pytest.approx(1.5)


def test_a_subscriber_that_fails_is_removed_and_the_rest_continues(tmp_path: Path) -> None:
    class Failing:
        def take(self, step: Step) -> None:
            raise ValueError("a broken rule")

        def end(self) -> None:
            raise AssertionError("it is told no more")

    follower = Follower()
    recording = record(tmp_path, follower)
    recording.context = HookContext([Failing(), follower], (), (), follower.send_event)
    for _ in range(3):
        recording.begin(Mode.TRAIN)
    recording.close()
    assert len(follower.steps) == 3
    assert follower.notes == ["Failing has failed at step 0 and gets no more steps: ValueError('a broken rule')."]
    assert create_trial(str(tmp_path)).loaded_all_steps


def test_a_folder_that_cannot_be_made_costs_the_files_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    follower = Follower()
    recording = record(tmp_path / "file" / "tensors", follower)
    for _ in range(3):
        recording.begin(Mode.TRAIN)
    recording.close()
    assert len(follower.steps) == 3
    assert recording.dropped == 3
    assert "could not be written" in follower.notes[0]


def test_a_disk_that_is_full_for_a_while_costs_the_steps_of_that_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower()
    recording = record(tmp_path, follower)
    append = TrialWriter.append

    def full(writer: TrialWriter, step: Step) -> None:  # a disk that is really full takes a mount of its own
        if step.number in (1, 2):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(writer, step)

    monkeypatch.setattr(TrialWriter, "append", full)
    for _ in range(5):
        recording.begin(Mode.TRAIN)
        recording.observe_scalar("loss", 1.0)
    recording.close()
    assert recording.dropped == 2
    assert create_trial(str(tmp_path)).steps() == [0, 3, 4]
    assert len([note for note in follower.notes if "No space left" in note]) == 1


def test_steps_that_arrive_too_fast_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    going = Event()

    class Slow(Follower):
        def take(self, step: Step) -> None:
            going.wait(30)
            super().take(step)

    monkeypatch.setattr(step_writer, "MAX_QUEUED_STEPS", 4)
    follower = Slow()
    recording = record(tmp_path, follower)
    for _ in range(20):
        recording.begin(Mode.TRAIN)
    recording.finish()
    going.set()
    recording.close()
    assert len(follower.steps) + recording.dropped == 20
    assert recording.dropped >= 14


def test_queued_raw_tensors_stay_within_their_memory_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_writer, "MAX_QUEUED_RAW_BYTES", 10_000)
    follower = Follower()
    recording = record(tmp_path, follower)
    recording.begin(Mode.TRAIN)
    recording.observe("out_a", np.zeros(1000))
    recording.observe("out_b", np.zeros(1000))
    recording.close()
    assert len(list((tmp_path / "values").rglob("*.safetensors"))) == 1
    assert follower.notes != []


def test_only_the_first_worker_writes_unless_all_are_asked_for(tmp_path: Path) -> None:
    for workers, files in (("one", 0), ("all", 1)):
        follower = Follower()
        recording = record(tmp_path / workers, follower, worker=WorkerRank(1, 2), include_workers=workers)
        recording.begin(Mode.TRAIN)
        recording.close()
        assert len(list((tmp_path / workers).rglob("worker_1.manifest.json"))) == files
        assert [step.worker for step in follower.steps] == ["worker_1"]


def test_an_error_inside_ends_the_recording_and_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    follower = Follower()
    recording = record(tmp_path, follower)
    recording.begin(Mode.TRAIN)

    class Unreadable:
        def __array__(self, *_: object) -> Any:
            raise RuntimeError("no array")

    with caplog.at_level(logging.CRITICAL):
        recording.observe("out", Unreadable())
    recording.begin(Mode.TRAIN)
    recording.observe("out", np.zeros(3))
    recording.close()
    assert recording.is_off
    assert follower.steps == []
    assert "RuntimeError: no array" in follower.notes[0]


def test_text_is_saved_without_statistics(tmp_path: Path) -> None:
    follower = Follower()
    recording = record(tmp_path, follower)
    recording.begin(Mode.GLOBAL)
    recording.observe("out", np.array(["gain", "größe"]))
    recording.close()
    (step,) = follower.steps
    assert step.table.tensors[0].dtype == "str"
    assert step.statistics[0, Statistic.NANS] == ABSENT


def test_progress_is_sent_at_the_end(tmp_path: Path) -> None:
    follower = Follower()
    recording = record(tmp_path, follower)
    for _ in range(3):
        recording.begin(Mode.TRAIN)
    recording.close()
    kind, payload = follower.told[-1]
    assert kind == "progress"
    assert (payload["worker"], payload["step"], payload["dropped"]) == ("worker_0", 2, 0)


def test_tensors_that_the_budget_excludes_are_counted_as_lacking(tmp_path: Path) -> None:
    follower = Follower()
    recording = record(tmp_path, follower, requests=(TensorRequest(regexes=("weight",)),), overhead_budget="0")
    recording.throttle.spend(10**9)
    recording.begin(Mode.TRAIN)
    recording.throttle.spend(10**9)
    for _ in range(2):
        recording.begin(Mode.TRAIN)
        for name in ("weight_a", "weight_b"):
            if recording.is_wanted(name, Kind.WEIGHT):
                recording.observe(name, np.ones(3), kind=Kind.WEIGHT)
        recording.observe_scalar("loss", 0.5, kind=Kind.LOSS)
    recording.close()
    assert [step.lacks for step in follower.steps] == [0, 2, 2]
    assert follower.steps[2].scalars[0] == 0.5
