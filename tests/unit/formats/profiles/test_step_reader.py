"""Step times as arrays, of files that hooks write and of files that programs write."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.profiles.step_reader import read_step_folder
from trainyard.formats.profiles.step_times import (
    EVAL,
    HEADER,
    MAX_BYTES,
    MAX_FACTS_BYTES,
    TRAIN,
    StepRow,
    encode_row,
)

START = 1_700_000_000_000_000


def row(number: int, *, steps: int = 1, mode: str = TRAIN, took_us: int = 10_000, forward_us: int = 4_000) -> StepRow:
    began = START + number * took_us
    phases = [0] * len(StepPhase)
    phases[StepPhase.FORWARD] = forward_us * 1000
    return StepRow(number, steps, mode, began, began + took_us, phases)


def write(folder: Path, name: str, rows: Sequence[StepRow], tail: bytes = b"") -> None:
    (folder / name).write_bytes(HEADER + b"".join(map(encode_row, rows)) + tail)


def test_steps_and_facts_of_every_rank_are_read(tmp_path: Path) -> None:
    write(tmp_path, "worker_10.steps", [row(0)])
    write(tmp_path, "worker_2.steps", [row(0), row(1, mode=EVAL)])
    (tmp_path / "worker_2.json").write_text(json.dumps({"device": "cpu"}))
    found = read_step_folder(tmp_path)
    assert [(each.name, each.rank, len(each.steps)) for each in found.processes] == [
        ("worker_2", 2, 2),
        ("worker_10", 10, 1),
    ]
    first = found.processes[0]
    assert first.facts == {"device": "cpu"}
    assert first.steps.modes.tolist() == [0, 1]
    assert first.steps.starts_us.tolist() == [START, START + 10_000]
    assert not found.notes


def test_what_no_phase_claims_is_other_so_that_rows_add_up(tmp_path: Path) -> None:
    write(tmp_path, "worker_0.steps", [row(0)])
    phases = read_step_folder(tmp_path).processes[0].steps.phases_s[0]
    assert phases[StepPhase.FORWARD] == pytest.approx(0.004)
    assert phases[StepPhase.OTHER] == pytest.approx(0.006)


def test_a_row_that_is_being_written_does_not_count_yet(tmp_path: Path) -> None:
    write(tmp_path, "worker_0.steps", [row(0)], tail=encode_row(row(1))[:-5])
    found = read_step_folder(tmp_path)
    assert len(found.processes[0].steps) == 1
    assert not found.notes


def test_a_second_process_of_a_rank_is_one_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "worker_0.steps", [row(5)])
    write(tmp_path, "worker_0-4711.steps", [row(0)])
    found = read_step_folder(tmp_path)
    assert [(each.name, int(each.steps.numbers[0])) for each in found.processes] == [("worker_0", 0), ("worker_0", 5)]


def test_a_missing_folder_and_an_empty_file_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "worker_0.steps").touch()
    assert not read_step_folder(tmp_path).notes
    assert not read_step_folder(tmp_path / "none").processes


@pytest.mark.parametrize("data", [b"<html>" * 50, HEADER[:-1] + b"\xff" + bytes(96), b"TY"])
def test_a_foreign_file_is_noted(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "worker_0.steps").write_bytes(data)
    found = read_step_folder(tmp_path)
    assert not found.processes
    assert "worker_0.steps" in found.notes[0]


def test_rows_that_no_hook_writes_are_left_out_and_counted(tmp_path: Path) -> None:
    good = row(3)
    faulty = [
        row(0, steps=0),
        row(1)._replace(ended_us=5),
        row(2)._replace(phases_ns=[2**60] * 8),
        row(2)._replace(number=2**63),
        row(2)._replace(ended_us=2**62),
    ]
    write(tmp_path, "worker_0.steps", [*faulty, good])
    found = read_step_folder(tmp_path)
    assert found.processes[0].steps.numbers.tolist() == [3]
    assert found.notes[0].startswith("5 rows")


def test_rows_are_returned_in_order_of_time(tmp_path: Path) -> None:
    write(tmp_path, "worker_0.steps", [row(2), row(0), row(1)])
    assert read_step_folder(tmp_path).processes[0].steps.numbers.tolist() == [0, 1, 2]


def test_rows_of_long_trainings_are_joined_and_long_steps_stay_alone(tmp_path: Path) -> None:
    rows = [row(number) for number in range(1000)]
    shift = 90_000
    rows[500] = rows[500]._replace(ended_us=rows[500].ended_us + shift)
    rows[501:] = [
        each._replace(started_us=each.started_us + shift, ended_us=each.ended_us + shift) for each in rows[501:]
    ]
    write(tmp_path, "worker_0.steps", rows)
    steps = read_step_folder(tmp_path, max_rows=150).processes[0].steps
    assert 60 < len(steps) <= 150
    assert steps.counts.sum() == 1000
    durations = steps.ends_us - steps.starts_us
    assert steps.counts[np.argmax(durations)] == 1
    assert durations.sum() == rows[-1].ended_us - rows[0].started_us
    assert steps.phases_s.sum() == pytest.approx(durations.sum() / 1e6)
    assert (steps.numbers[1:] == steps.numbers[:-1] + steps.counts[:-1]).all()


def test_memory_is_bounded_even_if_rows_cannot_be_joined(tmp_path: Path) -> None:
    write(tmp_path, "worker_0.steps", [row(number, mode=(TRAIN, EVAL)[number % 2]) for number in range(500)])
    assert len(read_step_folder(tmp_path, max_rows=100).processes[0].steps) == 100


def test_a_huge_file_is_read_in_part(tmp_path: Path) -> None:
    write(tmp_path, "worker_0.steps", [row(0)])
    os.truncate(tmp_path / "worker_0.steps", MAX_BYTES + 10**6)
    found = read_step_folder(tmp_path)
    assert len(found.processes[0].steps) == 1
    assert any("first 64 MiB" in note for note in found.notes)


def test_links_pipes_and_names_that_are_no_workers_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(elsewhere, "worker_0.steps", [row(0)])
    steps = tmp_path / "steps"
    steps.mkdir()
    (steps / "worker_0.steps").symlink_to(elsewhere / "worker_0.steps")
    os.mkfifo(steps / "worker_1.steps")
    (steps / "worker_2.steps").mkdir()
    write(steps, "a\nb.steps", [row(0)])
    found = read_step_folder(steps)
    assert not found.processes
    assert any('"a?b.steps"' in note for note in found.notes)
    assert any("worker_0.steps" in note for note in found.notes)


@pytest.mark.parametrize("facts", [b"{", b"[1]", b"[" * 100_000, b"\xff", b" " * (MAX_FACTS_BYTES + 1)])
def test_facts_that_cannot_be_read_are_noted(tmp_path: Path, facts: bytes) -> None:
    write(tmp_path, "worker_0.steps", [row(0)])
    (tmp_path / "worker_0.json").write_bytes(facts)
    found = read_step_folder(tmp_path)
    assert found.processes[0].facts == {}
    assert "worker_0.json" in found.notes[0]


def test_notes_are_few_however_many_files_have_faults(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"worker_{number}.steps").write_bytes(b"not steps")
    notes = read_step_folder(tmp_path).notes
    assert len(notes) == 21
    assert notes[-1] == "40 more files of step times have faults."
