"""What `trainyard run` and `tune` check before they start a yard or print anything else."""

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Trainyard


@pytest.fixture(autouse=True)
def _script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user_home: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('hello')\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--name", "bad name"), '"bad name" cannot be the name of a job; write up to 63 letters'),
        (("--distribution", "mpirun"), 'distribution has the unknown key "mpirun"; the keys are mpi'),
        (("--checkpoint-s3-uri", "/tmp/x"), '--checkpoint-s3-uri is "/tmp/x"; write a location on S3'),
        (("--model-uri", "model.tar.gz"), '--model-uri is "model.tar.gz"; write a location on S3'),
        (("--md", "loss", "loss: ([0-9"), '--md loss: "loss: ([0-9" is not a regular expression: unterminated'),
        (("--max-run-mins", "0"), "0 is not in the range x>=1."),
        (("-s", "sources"), 'The source directory "sources" is not a folder.'),
        (("-o", "train.py/results"), "--output-path train.py/results cannot be written"),
        (("--dependencies", "nothing.py"), 'The dependency "nothing.py" does not exist.'),
    ],
)
def test_a_wrong_value_is_a_usage_error_and_starts_nothing(
    trainyard: Trainyard, user_home: Path, options: tuple[str, ...], said: str
) -> None:
    result = trainyard("run", "train.py", *options)

    assert result.code == 2
    assert result.err.startswith("error: ")
    assert said in result.err.splitlines()[0]
    assert not (user_home / ".trainyard").exists()


def test_a_mistyped_script_is_told_from_the_one_beside_it(trainyard: Trainyard) -> None:
    result = trainyard("run", "trian.py")
    assert (result.code, result.err.splitlines()[0]) == (
        2,
        'error: There is no script "trian.py". Did you mean "train.py"?',
    )
