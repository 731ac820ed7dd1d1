"""Every program in examples/ runs to its end on its own yard."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from trainyard.testing.yard import running_yard

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples"
PROGRAMS = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "demo.py")
# Runs with all tests; `make examples` runs the others too.
QUICK = "estimator.py"


@pytest.mark.parametrize(
    "program",
    [pytest.param(path, id=path.name, marks=[] if path.name == QUICK else pytest.mark.slow) for path in PROGRAMS],
)
def test_an_example_runs_with_the_exports_alone(program: Path, tmp_path: Path) -> None:
    with running_yard(tmp_path / "yard") as yard:
        run = subprocess.run(
            [sys.executable, program], env=yard.environment(), capture_output=True, text=True, check=False
        )
    assert run.returncode == 0, run.stderr
    assert run.stdout, "an example shows something"


def test_the_demo_trains_and_ends_with_a_model_that_is_there() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "examples.demo"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    lines = ("epoch  6 loss=", "is Completed", "accuracy       6", "RuntimeError: split_size", "is Failed")
    for line in lines:
        assert line in run.stdout
    model = REPOSITORY / run.stdout.split()[-1]
    with tarfile.open(model) as archive:
        assert archive.getnames() == ["digits.pt"]


def test_every_example_is_named_in_the_list() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if f"`{path.name}`" not in listed] == []
