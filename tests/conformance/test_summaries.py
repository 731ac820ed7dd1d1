"""TensorBoard's own reader shows what the hook's statistics become."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.conftest import FLOW_TIMEOUT_S, FLOWS
from tests.conformance.environments import interpreter
from trainyard.formats.tensors.contract import Kind, Mode, Step, TensorInfo, TensorTable
from trainyard.formats.tensors.statistics.histograms import count
from trainyard.formats.tensors.tensorboard_summaries import TensorBoardSubscriber

WEIGHTS = np.linspace(-2.0, 3.0, 600, dtype=np.float32)
TABLE = TensorTable(
    (
        TensorInfo("Net_fc.weight", Kind.WEIGHT, (600,), "float32", ("all", "weights")),
        TensorInfo("Net_fc.bias", Kind.BIAS, (1,), "float32", ("biases",)),
        TensorInfo("CrossEntropyLoss_output_0", Kind.LOSS, (), "float32", ("losses",)),
        TensorInfo("scalar/accuracy", Kind.SCALAR, (), "float32"),
    )
)


def step(number: int, *, loss: float, mode: Mode = Mode.TRAIN, worker: str = "worker_0") -> Step:
    rows = [
        (WEIGHTS.mean(), WEIGHTS.std(), np.abs(WEIGHTS).mean(), WEIGHTS.min(), WEIGHTS.max(), 0, 0, 0),
        *((value, 0, abs(value), value, value, 0, 0, 0) for value in (0.5, loss, 0.75)),
    ]
    scalars = np.array([0.5, loss, 0.75])
    return Step(
        number,
        mode,
        number,
        1_700_000_000_000_000,
        worker,
        TABLE,
        np.array(rows, np.float32),
        np.empty(0, np.float32),
        scalars,
    )


def shown(folder: Path) -> dict[str, Any]:
    flow = FLOWS / "summaries_with_tensorboard.py"
    run = subprocess.run(
        [interpreter("tensorboard"), flow, folder], capture_output=True, text=True, timeout=FLOW_TIMEOUT_S, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_tensorboard_shows_scalars_at_every_step_and_histograms_where_they_were_taken(tmp_path: Path) -> None:
    board = TensorBoardSubscriber(tmp_path)
    for number in range(5):
        board.take(step(number, loss=1.0 / (number + 1)))
    board.take_histograms(step(4, loss=0.2), [0], count(WEIGHTS)[np.newaxis])
    board.take(step(0, loss=9.0, mode=Mode.EVAL))
    board.take(step(0, loss=8.0, worker="worker_1"))

    train = shown(tmp_path / "TRAIN")  # while it is being written

    assert list(train["scalars"]) == ["CrossEntropyLoss_output_0", "scalar/accuracy"]
    losses = train["scalars"]["CrossEntropyLoss_output_0"]
    assert [number for number, _ in losses] == [0, 1, 2, 3, 4]
    assert [value for _, value in losses] == pytest.approx([1.0, 0.5, 1 / 3, 0.25, 0.2])
    (histogram,) = train["histograms"]["weights/Net_fc.weight"]
    assert (histogram["step"], histogram["num"], sum(histogram["counts"])) == (4, 600, 600)
    assert (histogram["min"], histogram["max"]) == (-2.0, 3.0)
    assert histogram["sum"] == pytest.approx(float(WEIGHTS.sum()), rel=1e-5)
    below = sum(n for limit, n in zip(histogram["limits"], histogram["counts"], strict=True) if limit <= 1.0)
    assert below == int((WEIGHTS < 1.0).sum())
    assert shown(tmp_path / "EVAL")["scalars"]["CrossEntropyLoss_output_0"] == [[0, 9.0]]
    assert shown(tmp_path / "TRAIN" / "worker_1")["scalars"]["CrossEntropyLoss_output_0"] == [[0, 8.0]]
    board.end()
