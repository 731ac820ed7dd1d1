"""Steps that are kept, written and run again."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.instance.recorder.training import Training
from trainyard.formats.tensors.contract import Mode, Step, TensorTable
from trainyard.instance.recorder import flight_recorder
from trainyard.instance.recorder.flight_recorder import FlightRecorder
from trainyard.instance.recorder.records import read_record
from trainyard.instance.recorder.replay import Replayer

FIRED = 21


class Left(Exception):
    """The program would have ended here."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Stage:
    def __init__(self, root: Path, *, max_bytes: int = 1 << 26) -> None:
        self.folder = root / "records"
        self.output = root / "replay"
        self.notes: list[str] = []
        self.recorder = FlightRecorder(
            self.folder, unfinished=root / "new", steps=2, max_bytes=max_bytes, note=self.notes.append
        )

    def record(self, parts: int = 1, *, fired: int = FIRED) -> list[float]:
        """Train, with rules that judge each step at once and fire at one of them."""

        def judge(number: int) -> None:
            self.recorder.take(step(number))
            if number == fired:
                self.recorder.fire(number, "NotANumber", wait_s=10.0)

        return Training(1).run(self.recorder, after=judge, parts=parts)

    def replay(self, number: int, *, parts: int = 1) -> dict[str, Any]:
        told: list[Any] = []
        replayer = Replayer(
            self.folder, number, worker="worker_0", output=self.output, send_event=lambda *words: told.append(words)
        )
        with pytest.raises(Left):
            Training(2).run(replayer, parts=parts)
        assert told[0][0] == "note"
        found: dict[str, Any] = json.loads((self.output / "worker_0.json").read_text())
        return found


def step(number: int) -> Step:
    nothing = np.empty(0, np.float32)
    return Step(
        number, Mode.TRAIN, number, 0, "worker_0", TensorTable(()), np.empty((0, 8), np.float32), nothing,
        np.empty(0, np.float64),
    )  # fmt: skip


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def leave(code: int) -> None:
        codes.append(code)
        raise Left

    monkeypatch.setattr(os, "_exit", leave)
    return codes


@pytest.mark.parametrize("interval", [1, 5, 1000])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_step_is_run_again_bit_for_bit_by_a_program_with_other_weights_data_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: list[int], *, interval: int, parts: int
) -> None:
    monkeypatch.setattr(flight_recorder._CopyInterval, "_interval", interval)
    stage = Stage(tmp_path)
    losses = stage.record(parts)
    found = stage.replay(FIRED, parts=parts)
    assert found["is_same"]
    assert left == [0]
    assert float.fromhex(found["replayed"][-1][1]) == losses[FIRED]
    about = json.loads((stage.folder / "worker_0" / f"{FIRED:012}" / "record.json").read_text())
    assert about["first"] == max(0, FIRED - FIRED % interval)


def test_a_step_before_the_one_that_fired_can_be_run_again_from_the_same_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    monkeypatch.setattr(flight_recorder._CopyInterval, "_interval", 10)
    stage = Stage(tmp_path)
    losses = stage.record(fired=18)
    found = stage.replay(14)
    assert (found["is_same"], float.fromhex(found["replayed"][0][1])) == (True, losses[14])


def test_a_step_that_was_not_recorded_cannot_be_run_again_and_it_is_said_which_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flight_recorder._CopyInterval, "_interval", 10)
    stage = Stage(tmp_path)
    stage.record()
    assert stage.replay(3) == {"step": 3, "worker": "worker_0", "is_same": False}
    assert left == [1]
    assert "replay of step 3 on worker_0: cannot be done: the step was not recorded; recorded steps are: 20 to 21" in (
        capsys.readouterr().out
    )


def test_another_model_than_that_of_the_record_is_refused(tmp_path: Path, left: list[int]) -> None:
    stage = Stage(tmp_path)
    stage.record()
    replayer = Replayer(stage.folder, FIRED, worker="worker_0", output=stage.output, send_event=lambda *_: None)
    other = torch.nn.Linear(3, 3)
    with pytest.raises(Left):
        replayer.begin_step(0, mode=Mode.TRAIN, models=[other], optimizers=[])
    assert left == [1]


def test_a_model_that_takes_too_much_is_not_recorded_and_a_note_says_so(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_bytes=1000)
    stage.record()
    assert not stage.folder.exists()
    (note,) = stage.notes
    assert "The flight recorder is off" in note


def test_memory_stays_within_what_may_be_taken(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_bytes=40_000)  # a copy has about 3,000
    Training(1).run(stage.recorder)  # where nothing is ever judged
    copies = [copy.state.size_bytes for copy in stage.recorder._copies]
    assert sum(copies) <= 20_000
    assert stage.recorder._ring[0].number == stage.recorder._copies[0].state.step


def test_batches_that_take_too_much_push_older_steps_out(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_bytes=24_000)  # of which batches may have a quarter; one has about 200
    Training(1).run(stage.recorder)
    assert 0 < sum(step.size_bytes for step in stage.recorder._ring) == stage.recorder._input_bytes <= 6_000
    assert stage.notes == []
    stage = Stage(tmp_path / "other", max_bytes=700)
    stage.recorder._max_bytes = 1 << 20  # enough for the model, but not for its batches
    Training(1).run(stage.recorder)
    assert "the inputs of one step take" in stage.notes[0]


def test_only_a_few_records_are_written_of_one_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    Training(1).run(stage.recorder, after=lambda number: stage.recorder.fire(number, "x", wait_s=10.0))
    assert len(list((stage.folder / "worker_0").iterdir())) == flight_recorder.MAX_RECORDS


def test_a_batch_that_the_program_changed_is_reported(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    def spoil(number: int) -> None:
        if number == 3:
            kept = stage.recorder._ring[-1].inputs.arguments[0].value
            kept[0][0].zero_()
            stage.recorder.fire(number, "x", wait_s=10.0)

    Training(1).run(stage.recorder, after=spoil)
    assert read_record(stage.folder, "worker_0", 3).changed == "inputs of step 3"


def test_a_disk_that_takes_no_more_costs_the_record_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "records").write_text("no folder")
    stage = Stage(tmp_path)
    assert len(stage.record()) == 24
    (note,) = stage.notes
    assert "Step 21 of worker_0 is not recorded" in note
