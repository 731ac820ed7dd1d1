import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trainyard.formats.profiles.step_times import EVAL, HEADER, ROW_BYTES, TRAIN, StepRow, decode_rows
from trainyard.instance.hook.profiling.step_file import StepFile

FIRST = 500


def steps(number: int, *, each_us: int, first: int = 0, mode: str = TRAIN, begin_us: int = 0) -> list[StepRow]:
    return [
        StepRow(first + at, 1, mode, begin_us + at * each_us, begin_us + (at + 1) * each_us, [each_us * 1000] + [0] * 7)
        for at in range(number)
    ]


def read(folder: Path, name: str = "worker_0") -> list[StepRow]:
    return list(decode_rows((folder / f"{name}.steps").read_bytes()))


def write(folder: Path, rows: list[StepRow]) -> list[StepRow]:
    file = StepFile(folder, "worker_0", dict)
    for row in rows:
        file.add([row])
    file.close()
    return read(folder)


def test_the_first_steps_have_a_row_each(tmp_path: Path) -> None:
    written = steps(FIRST, each_us=1000)
    assert write(tmp_path, written) == written


def test_later_short_steps_share_rows_without_losing_any_time(tmp_path: Path) -> None:
    written = steps(20_000, each_us=1000)
    rows = write(tmp_path, written)
    assert len(rows) < 1000
    assert sum(row.steps for row in rows) == 20_000
    assert sum(row.phases_ns[0] for row in rows) == 20_000 * 1_000_000
    assert all(after.number == before.number + before.steps for before, after in itertools.pairwise(rows))


def test_steps_that_come_together_make_the_same_rows_as_those_that_come_alone(tmp_path: Path) -> None:
    quick = steps(5000, each_us=1000)
    slow = StepRow(5000, 1, TRAIN, 5_000_000, 5_050_000, [50_000_000] + [0] * 7)
    written = [*quick, slow, *steps(300, each_us=1000, first=5001, begin_us=5_050_000, mode=EVAL)]
    alone = write(tmp_path / "alone", written)
    file = StepFile(tmp_path / "together", "worker_0", dict)
    for begin in range(0, len(written), 64):
        file.add(written[begin : begin + 64])
    file.close()
    assert read(tmp_path / "together") == alone


def test_a_long_step_among_short_ones_has_a_row_of_its_own(tmp_path: Path) -> None:
    quick = steps(1000, each_us=1000)
    slow = StepRow(1000, 1, TRAIN, 1_000_000, 1_050_000, [50_000_000] + [0] * 7)
    rows = write(tmp_path, [*quick, slow, *steps(300, each_us=1000, first=1001, begin_us=1_050_000)])
    assert slow in rows


def test_steps_of_two_modes_share_no_row(tmp_path: Path) -> None:
    mixed = [
        row
        for at in range(0, 2000, 2)
        for row in (
            *steps(1, each_us=1000, first=at, begin_us=at * 1000),
            *steps(1, each_us=1000, first=at + 1, mode=EVAL, begin_us=(at + 1) * 1000),
        )
    ]
    assert write(tmp_path, mixed) == mixed


def test_weeks_of_short_steps_fit_in_a_few_megabytes(tmp_path: Path) -> None:
    # One row covers a twenty-thousandth of the training: steps of 20 s stand for those of a month.
    file = StepFile(tmp_path, "worker_0", dict)
    for row in steps(130_000, each_us=20_000_000):
        file.add([row])
    file.close()
    assert (tmp_path / "worker_0.steps").stat().st_size < 10 * 1024**2


def test_a_full_file_ends_the_recording_and_stays_valid(tmp_path: Path) -> None:
    file = StepFile(tmp_path, "worker_0", dict, max_bytes=len(HEADER) + 10 * ROW_BYTES)
    for row in steps(8, each_us=1000):
        file.add([row])
    file.flush(0.0)
    for row in steps(8, each_us=1000, first=8):
        file.add([row])
    file.close()
    assert file.is_off
    assert len(read(tmp_path)) <= 10


def test_a_folder_that_cannot_be_written_ends_the_recording(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = StepFile(tmp_path / "file", "worker_0", dict)
    for row in steps(3, each_us=1000):
        file.add([row])
    file.close()
    assert file.is_off


def test_facts_are_written_beside_the_steps_and_again_when_they_change(tmp_path: Path) -> None:
    facts = {"framework": "torch"}
    file = StepFile(tmp_path, "worker_3", lambda: dict(facts))
    file.add(steps(1, each_us=1000))
    file.flush(0.0)
    facts["device"] = "cpu"
    file.close()
    assert json.loads((tmp_path / "worker_3.json").read_text()) == {"framework": "torch", "device": "cpu"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["worker_3.json", "worker_3.steps"]


def test_two_processes_of_one_rank_write_a_file_each(tmp_path: Path) -> None:
    make: Callable[[], StepFile] = lambda: StepFile(tmp_path, "worker_0", dict)  # noqa: E731
    files = [make(), make()]
    for file in files:
        file.add(steps(1, each_us=1000))
        file.close()
    assert sorted(len(list(decode_rows(path.read_bytes()))) for path in tmp_path.glob("*.steps")) == [1, 1]


def test_rows_reach_the_file_while_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("trainyard.instance.hook.profiling.step_file.time.monotonic", lambda: now)
    file = StepFile(tmp_path, "worker_0", dict)
    file.add(steps(1, each_us=1000))
    now = 102.0
    for row in steps(3, each_us=1000, first=1, begin_us=1000):
        file.add([row])
    assert len(read(tmp_path)) == 1
    now = 104.0
    for row in steps(3, each_us=1000, first=4, begin_us=4000):
        file.add([row])
    assert len(read(tmp_path)) == 4
    file.close()
