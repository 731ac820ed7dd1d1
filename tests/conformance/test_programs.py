"""Programs in the shapes of well-known tutorials run unchanged, each with the sagemaker SDK that it was written for.

A program is a folder with launch.py, which asserts what its reader would look at, and the source of its job. Others of
these shapes are flows: jobs of boto3, the aws CLI and ssm, torchrun and MPI, spot with checkpoints, continued models,
TensorBoard. docs/clients.md lists all of them.
"""

import gzip
from pathlib import Path

import pytest
import sklearn.datasets

from tests.conformance.conftest import Person
from tests.conformance.environments import interpreter

PROGRAMS = Path(__file__).parent / "programs"
# By the newest version 2 and by the oldest that we support.
OF_ESTIMATORS = ["random_forest", "boosted_trees", "digits_network", "project_with_modules"]
OF_NEWEST_ESTIMATORS = ["packages_in_script", "transformer", "lightning", "tuned_forest"]
OF_VERSION_3 = ["trainer_with_requirements", "tuned_by_version_3", "remote_forest"]

# The image of remote functions, which stands for the Python of their client.
IMAGE = "remote-functions"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images of digits as train/digits.csv and test/digits.csv; the last column is the label."""
    packed = Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz"
    lines = gzip.decompress(packed.read_bytes()).decode().splitlines(keepends=True)
    folder = tmp_path_factory.mktemp("digits")
    for name, some in (("train", lines[::2]), ("test", lines[1::2])):
        (folder / name).mkdir()
        (folder / name / "digits.csv").write_text("".join(some))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "environment"),
    [
        *((program, environment) for program in OF_ESTIMATORS for environment in ("main", "ssm")),
        *((program, "main") for program in OF_NEWEST_ESTIMATORS),
        *((program, "sagemaker3") for program in OF_VERSION_3),
    ],
)
def test_a_program_runs_unchanged(program: str, environment: str, digits: Path, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.trainyard("images", "map", IMAGE, str(interpreter(environment)))
    words = [str(digits), IMAGE]
    person.run_file(PROGRAMS / program / "launch.py", environment, person.bare_environment(), words=words)
