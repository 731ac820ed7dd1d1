"""Writing a trial: what survives a kill, a full disk and another attempt, and what others read of it."""

import json
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pytest
from safetensors.numpy import load_file

from tests.unit.formats.tensors.runs import COLLECTIONS, NOON, TABLE, WEIGHT, Clock, step_of, values_at, write_run
from trainyard.formats.tensors.contract import Mode, Statistic, Step, TensorTable
from trainyard.formats.tensors.errors import TensorUnavailableForStep
from trainyard.formats.tensors.recordings.trial_writer import BATCH_STEPS, SEGMENT_AGE, TrialWriter, mark_ended
from trainyard.formats.tensors.statistics.histograms import count
from trainyard.formats.tensors.trials.trial import create_trial

PROGRAM = """
import sys
from pathlib import Path
from tests.unit.formats.tensors.runs import WEIGHT, step_of, values_at
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter

writer = TrialWriter(Path(sys.argv[1]))
for number in range(1_000_000):
    writer.append(step_of(number, saved=(True, True, False)))
    if number % 5 == 0:
        writer.save_values(number, {WEIGHT: values_at(number, 0)})
    if number % 3 == 0:
        writer.flush()
        print(number, flush=True)
"""


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("steps/worker_0/*.arrows"))


def test_arrow_reads_the_statistics_and_the_library_the_values(tmp_path: Path) -> None:
    write_run(tmp_path, 20)
    (segment,) = segments(tmp_path)
    table = arrow.ipc.open_stream(segment.read_bytes()).read_all()
    assert table.column("step").to_pylist() == list(range(20))
    told = np.array(table.column("statistics").to_pylist()).reshape(20, len(TABLE.tensors), len(Statistic))
    assert told[7, 0, Statistic.MAX] == values_at(7, 0).max()
    assert [each["name"] for each in json.loads(table.schema.metadata[b"trainyard.table"])["tensors"]] == [
        tensor.name for tensor in TABLE.tensors
    ]
    found = load_file(tmp_path / "values" / "worker_0" / "000000000010.safetensors")
    assert np.array_equal(found[WEIGHT], values_at(10, 0))


def test_the_manifest_tells_how_far_a_worker_has_come(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, workers=2, collections=COLLECTIONS, clock=Clock())
    told = json.loads((tmp_path / "worker_0.manifest.json").read_text())
    assert (told["workers"], told["last_step"], len(told["collections"])) == (2, -1, 3)
    writer.append(step_of(4))
    writer.note_dropped(3)
    writer.close()
    told = json.loads((tmp_path / "worker_0.manifest.json").read_text())
    assert (told["last_step"], told["dropped"], told["has_ended"]) == (4, 3, True)
    assert told["segment"] == segments(tmp_path)[0].name


def test_the_manifest_is_written_at_most_once_a_second(tmp_path: Path) -> None:
    clock = Clock()
    writer = TrialWriter(tmp_path, clock=clock)
    manifest = tmp_path / "worker_0.manifest.json"
    before = manifest.stat().st_ino
    writer.append(step_of(0))
    writer.flush()
    assert manifest.stat().st_ino == before
    clock.now += timedelta(seconds=1)
    writer.flush()
    assert manifest.stat().st_ino != before
    assert json.loads(manifest.read_text())["last_step"] == 0


def test_no_unfinished_file_and_no_empty_folder_is_left(tmp_path: Path) -> None:
    write_run(tmp_path, 5, every=100)
    assert not list(tmp_path.rglob("*.tmp"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["steps", "values", "worker_0.manifest.json"]


def test_a_batch_that_is_full_is_written_by_itself(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    for number in range(BATCH_STEPS):
        writer.append(step_of(number))
    assert create_trial(tmp_path).steps(known=True) == list(range(BATCH_STEPS))


def test_a_segment_is_sealed_when_it_is_old_and_when_the_tensors_change(tmp_path: Path) -> None:
    clock = Clock()
    writer = TrialWriter(tmp_path, clock=clock)
    other = TensorTable(TABLE.tensors[::-1])
    for number, table in enumerate([TABLE, TABLE, other, TABLE]):
        writer.append(step_of(number, table=table))
        writer.flush()
        clock.now += SEGMENT_AGE / 2 if number == 0 else SEGMENT_AGE
    writer.close()
    names = [segment.name.partition("-")[2] for segment in segments(tmp_path)]
    assert names == ["000000000000.arrows", "000000000002.arrows", "000000000003.arrows"]
    for segment in segments(tmp_path):
        assert segment.read_bytes().endswith(b"\xff\xff\xff\xff\0\0\0\0")
    series = create_trial(tmp_path).series(WEIGHT, "max")
    assert series.steps.tolist() == [0, 1, 2, 3]
    assert series.values.tolist() == [values_at(number, 0).max() for number in range(4)]


def test_an_equal_table_is_the_same_table(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    for number in range(4):
        writer.append(step_of(number, table=TensorTable(TABLE.tensors, TABLE.measures)))
    writer.close()
    assert len(segments(tmp_path)) == 1


def test_a_step_without_tensors_is_a_step(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    empty = np.empty(0, np.float32)
    nothing = np.empty((0, len(Statistic)), np.float32)
    writer.append(Step(0, Mode.TRAIN, 0, 0, "worker_0", TensorTable(()), nothing, empty, np.empty(0)))
    writer.append(step_of(1))
    writer.close()
    trial = create_trial(tmp_path)
    assert trial.steps(known=True) == [0, 1]
    assert trial.step(0).statistics.shape == (0, 8)
    assert trial.tensor_names(step=0, known=True) == []
    assert np.isnan(trial.table(statistics=["mean"]).values[0]).all()
    assert trial.series(WEIGHT, "mean").steps.tolist() == [1]


def test_a_trial_cut_at_any_byte_opens_with_every_complete_batch(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    writer = TrialWriter(whole, clock=Clock())
    ends = []
    for number in range(6):
        writer.append(step_of(number, saved=(True, False, False)))
        if number % 2:
            writer.flush()
            ends.append(segments(whole)[0].stat().st_size)
    data = segments(whole)[0].read_bytes()
    assert ends[-1] == len(data)
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    for size in [*range(0, len(data), 23), *(end + off for end in ends for off in (-1, 0, 1))]:
        segments(cut)[0].write_bytes(data[:size])
        complete = 2 * sum(size >= end for end in ends)
        trial = create_trial(cut)
        assert trial.steps(known=True) == list(range(complete))
        if complete:
            assert trial.series(WEIGHT, "max").values.tolist() == [values_at(n, 0).max() for n in range(complete)]


def test_a_process_is_followed_and_when_it_is_killed_leaves_all_that_it_flushed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as program:
        assert program.stdout is not None
        flushed = int(program.stdout.readline())
        follower = create_trial(tmp_path)
        for step in range(0, 150, 30):
            follower.wait_for_steps([step])
            assert follower.series(WEIGHT, "max").values[step] == values_at(step, 0).max()
        program.send_signal(signal.SIGKILL)
        flushed = max(flushed, *(int(line) for line in program.stdout))
        assert program.wait() == -signal.SIGKILL
    trial = create_trial(tmp_path)
    steps = trial.steps(known=True, show_incomplete_steps=True)
    assert steps == list(range(len(steps)))
    assert len(steps) > flushed
    for step in trial.tensor(WEIGHT).values():
        assert np.array_equal(trial.tensor(WEIGHT).value(step), values_at(step, 0))
    assert not trial.loaded_all_steps
    mark_ended(tmp_path, at=NOON.replace(year=2100))
    assert trial.loaded_all_steps


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """A disk that is full, as far as writing to files of that size goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_costs_only_unwritten_steps_which_are_counted(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    writer.append(step_of(0))
    writer.flush()
    writer.append(step_of(1))
    writer.append(step_of(2))
    with no_file_larger_than(segments(tmp_path)[0].stat().st_size + 100), pytest.raises(OSError, match="too large"):
        writer.flush()
    writer.append(step_of(3))
    writer.close()
    assert len(segments(tmp_path)) == 2
    trial = create_trial(tmp_path)
    assert trial.steps(known=True) == [0, 3]
    assert writer.state.dropped == 2
    assert trial.loaded_all_steps


def test_values_that_cannot_be_written_completely_do_not_exist(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    large = np.zeros(100_000, np.float32)
    with no_file_larger_than(50_000), pytest.raises(OSError, match="too large"):
        writer.save_values(0, {"large": large})
    assert list((tmp_path / "values" / "worker_0").iterdir()) == []
    writer.save_values(0, {"large": large})
    assert [path.name for path in (tmp_path / "values" / "worker_0").iterdir()] == ["000000000000.safetensors"]


def test_a_training_that_goes_back_to_a_checkpoint_overwrites_what_came_after(tmp_path: Path) -> None:
    write_run(tmp_path, 30, every=5, ends=False)
    trial = create_trial(tmp_path)
    assert trial.steps()[-1] == 25
    again = TrialWriter(tmp_path, clock=Clock())
    for number in range(12, 16):
        again.append(step_of(number, saved=(True, False, False)))
    again.close()
    for each in (trial, create_trial(tmp_path)):
        each.refresh()
        assert each.steps(known=True) == list(range(16))
        assert each.steps() == [0, 5, 10, 12, 13, 14, 15]
        assert each.series(WEIGHT, "max").values[-1] == values_at(15, 0).max()
        assert each.loaded_all_steps


def test_segments_are_named_in_their_order_also_when_a_clock_is_set_back(tmp_path: Path) -> None:
    write_run(tmp_path, 5, ends=False)
    clock = Clock()
    clock.now -= timedelta(hours=1)
    again = TrialWriter(tmp_path, clock=clock)
    again.append(step_of(3, saved=(True, False, False)))
    again.close()
    assert [segment.name.partition("-")[2] for segment in segments(tmp_path)] == [
        "000000000000.arrows",
        "000000000003.arrows",
    ]
    assert create_trial(tmp_path).steps(known=True) == [0, 1, 2, 3]


def test_values_that_a_training_saves_again_are_read_anew(tmp_path: Path) -> None:
    write_run(tmp_path, 6, every=5, ends=False)
    trial = create_trial(tmp_path)
    assert trial.tensor(WEIGHT).value(5).shape == (2, 3)
    again = TrialWriter(tmp_path, clock=Clock())
    again.save_values(5, {WEIGHT: np.ones((4, 4), np.float32), "more": np.zeros(9)})
    again.append(step_of(5, saved=(True, False, False)))
    again.close()
    trial.refresh()
    assert np.array_equal(trial.tensor(WEIGHT).value(5), np.ones((4, 4)))


def test_histograms_come_back_by_step_and_tensor(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    for number in range(3):
        step = step_of(number)
        writer.append(step)
        counts = np.stack([count(values_at(number, tensor)) for tensor in (0, 2)])
        writer.append_histograms(step, (0, 2), counts)
    writer.close()
    trial = create_trial(tmp_path)
    assert np.array_equal(trial.tensor(WEIGHT).histogram(1), count(values_at(1, 0)))
    assert np.array_equal(trial.tensor(TABLE.tensors[2].name).histogram(2), count(values_at(2, 2)))
    assert list(trial.tensor(WEIGHT).histograms()) == [0, 1, 2]
    assert trial.tensor(TABLE.tensors[1].name).histograms() == {}
    with pytest.raises(TensorUnavailableForStep, match="has no histogram in step 0"):
        trial.tensor(TABLE.tensors[1].name).histogram(0)


def test_the_end_of_an_earlier_attempt_does_not_end_the_next(tmp_path: Path) -> None:
    first = write_run(tmp_path, 3, ends=False)
    assert first.state.at_us == 2000
    mark_ended(tmp_path, at=NOON + timedelta(seconds=1))
    assert create_trial(tmp_path).loaded_all_steps
    clock = Clock()
    clock.now += timedelta(minutes=1)
    TrialWriter(tmp_path, clock=clock)
    assert not create_trial(tmp_path).loaded_all_steps


def test_a_reader_holds_few_files_open_however_many_segments_there_are(tmp_path: Path) -> None:
    clock = Clock()
    writer = TrialWriter(tmp_path, clock=clock)
    for number in range(300):
        writer.append(step_of(number))
        clock.now += SEGMENT_AGE
        writer.flush()
    writer.close()
    assert len(segments(tmp_path)) == 150
    before = len(list(Path("/proc/self/fd").iterdir()))
    trial = create_trial(tmp_path)
    assert len(trial.series(WEIGHT, "mean").values) == 300
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 140
