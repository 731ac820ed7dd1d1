"""The hook's adapters for frameworks that live in environments of their own."""

import subprocess
from pathlib import Path

import pytest

import trainyard
from tests.conformance.conftest import FLOWS
from tests.conformance.environments import interpreter

SOURCE = Path(trainyard.__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flow", "environment", "backend"),
    [
        ("steps_with_jax", "jax", ""),
        ("batches_with_keras", "jax", "jax"),
        ("batches_with_keras", "jax", "torch"),
        ("batches_with_keras", "tensorflow", "tensorflow"),
    ],
)
def test_steps_of_a_framework_are_recorded(flow: str, environment: str, backend: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [str(interpreter(environment)), str(FLOWS / f"{flow}.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(SOURCE), "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr[-6000:]
