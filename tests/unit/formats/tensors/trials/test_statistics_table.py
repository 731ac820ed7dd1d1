"""Tables of statistics for numpy, Arrow and polars."""

import sys
from pathlib import Path

import numpy as np
import polars
import pytest
from pyarrow import parquet

from tests.unit.formats.tensors.runs import GRADIENT, LOSS, TABLE, WEIGHT, Clock, step_of, values_at, write_run
from trainyard.formats.tensors.contract import Mode, TensorTable
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.formats.tensors.statistics.reductions import COLUMNS
from trainyard.formats.tensors.trials.trial import create_trial
from trainyard.foundation.errors import InvalidRequest, Unavailable


def test_a_table_has_all_tensors_at_all_steps(tmp_path: Path) -> None:
    write_run(tmp_path, 200)
    table = create_trial(tmp_path).table()
    assert table.tensors == (WEIGHT, LOSS, GRADIENT)
    assert table.statistics == COLUMNS
    assert table.to_numpy().shape == (200, 3, 8)
    assert table.to_numpy().dtype == np.float32
    assert np.array_equal(table.values[:, 0, 4], [values_at(step, 0).max() for step in range(200)])
    assert table.steps.tolist() == list(range(200))


def test_a_table_of_some_tensors_and_statistics(tmp_path: Path) -> None:
    write_run(tmp_path, 20)
    trial = create_trial(tmp_path)
    table = trial.table(collection="gradients", statistics=["l2", "mean"])
    assert (table.tensors, table.statistics) == ((GRADIENT,), ("l2", "mean"))
    assert table.values[3, 0, 0] == pytest.approx(np.linalg.norm(values_at(3, 2).astype(np.float64)))
    assert trial.table(names=[LOSS, WEIGHT], statistics=["max"]).values[4].tolist() == [
        [values_at(4, 1).max()],
        [values_at(4, 0).max()],
    ]
    assert trial.table(regex="^Net", mode=Mode.EVAL).values.shape == (0, 1, 8)
    with pytest.raises(InvalidRequest, match="median"):
        trial.table(statistics=["median"])


def test_tensors_that_come_and_go_are_nan_where_they_are_not(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    writer.append(step_of(0))
    writer.append(step_of(1, absent=[2]))
    writer.append(step_of(2, table=TensorTable(TABLE.tensors[1::-1])))
    writer.close()
    table = create_trial(tmp_path).table(statistics=["max"])
    assert np.isnan(table.values[:, :, 0]).tolist() == [[False] * 3, [False, False, True], [False, False, True]]
    assert table.values[2, 0, 0] == values_at(2, 0).max()
    assert table.to_arrow().num_rows == 7


def test_a_row_whose_only_statistic_is_nan_is_a_row(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    told = step_of(0, absent=[2])
    told.statistics[0, :5] = np.nan
    writer.append(told)
    writer.close()
    rows = create_trial(tmp_path).table(statistics=["max"]).to_arrow().to_pylist()
    assert [row["tensor"] for row in rows] == [WEIGHT, LOSS]
    assert np.isnan(rows[0]["max"])


def test_arrow_and_polars_get_a_row_for_each_tensor_in_each_step(tmp_path: Path) -> None:
    write_run(tmp_path, 10)
    table = create_trial(tmp_path).table()
    rows = table.to_arrow().to_pylist()
    assert len(rows) == 30
    row = rows[3 * 4 + 2]
    assert (row["step"], row["mode"], row["worker"], row["tensor"]) == (4, "TRAIN", "worker_0", GRADIENT)
    assert row["max"] == values_at(4, 2).max()
    frame = table.to_polars()
    assert frame.filter(tensor=WEIGHT)["max"].to_list() == [values_at(step, 0).max() for step in range(10)]


def test_a_parquet_file_holds_the_same_rows_for_any_reader(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path / "run", clock=Clock())
    writer.append(step_of(0))
    writer.append(step_of(1, absent=[2]))
    writer.close()
    table = create_trial(tmp_path / "run").table()
    assert table.write_parquet(tmp_path / "table.parquet") == 5
    assert parquet.read_table(tmp_path / "table.parquet").to_pylist() == table.to_arrow().to_pylist()
    frame = polars.read_parquet(tmp_path / "table.parquet")
    assert frame["tensor"].to_list() == [WEIGHT, LOSS, GRADIENT, WEIGHT, LOSS]
    assert frame.filter(tensor=WEIGHT)["max"].to_list() == [values_at(0, 0).max(), values_at(1, 0).max()]
    assert frame["at"].to_list() == table.to_polars()["at"].to_list()


def test_a_parquet_file_of_no_rows_still_has_its_columns(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 3)
    table = create_trial(tmp_path / "run").table(mode=Mode.EVAL, statistics=["mean"])
    assert table.write_parquet(tmp_path / "empty.parquet") == 0
    found = parquet.read_table(tmp_path / "empty.parquet")
    assert (found.num_rows, found.column_names[-2:]) == (0, ["tensor", "mean"])


@pytest.mark.parametrize(("library", "extra"), [("pyarrow", "arrow"), ("polars", "polars")])
def test_a_library_that_is_lacking_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, extra: str
) -> None:
    write_run(tmp_path, 1)
    table = create_trial(tmp_path).table()
    monkeypatch.setitem(sys.modules, library, None)  # as where it is not installed
    with pytest.raises(Unavailable, match=rf"pip install 'trainyard\[{extra}\]'"):
        table.to_arrow() if extra == "arrow" else table.to_polars()
