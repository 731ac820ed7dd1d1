"""The user's code and the command that runs it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import SPEC, changed, make_bucket, put_object, tar_gz
from trainyard.instance.agent.program.code import fetch_code, program_command
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.link.contract import ProgramSpec
from trainyard.link.folders import InstanceFolder
from trainyard.objects.filesystem import FilesystemObjects


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FilesystemObjects]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        make_bucket(opened)
        put_object(opened, "code/sourcedir.tar.gz", tar_gz({"train.py": "print()", "lib/a.py": ""}))
        yield opened


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    (tmp_path / "ml" / "code").mkdir(parents=True)
    return tmp_path / "ml"


def written(code: Path, name: str) -> Path:
    (code / name).parent.mkdir(parents=True, exist_ok=True)
    (code / name).write_text("")
    return code / name


def test_the_submitted_archive_is_unpacked_into_the_code_folder(store: FilesystemObjects, ml: Path) -> None:
    fetch_code(store, SPEC, ml, check=lambda: None)
    assert sorted(path.name for path in (ml / "code").rglob("*.py")) == ["a.py", "train.py"]


def test_code_may_come_by_a_channel(store: FilesystemObjects, ml: Path) -> None:
    channel = InstanceFolder(ml.parent).channels / "code"
    channel.mkdir(parents=True)
    (channel / "sourcedir.tar.gz").write_bytes(tar_gz({"train.py": ""}))
    program = ProgramSpec("train.py", "/opt/ml/input/data/code/sourcedir.tar.gz")
    fetch_code(store, changed(program=program), ml, check=lambda: None)
    assert (ml / "code" / "train.py").exists()


def test_a_job_without_code_needs_none(store: FilesystemObjects, ml: Path) -> None:
    fetch_code(store, changed(program=ProgramSpec(command=("true",))), ml, check=lambda: None)
    assert list((ml / "code").iterdir()) == []


@pytest.mark.parametrize(
    ("location", "complaint"),
    [
        ("s3://yard/code/missing.tar.gz", "does not exist"),
        ("s3://other/code.tar.gz", "does not exist"),
        ("/opt/ml/input/data/code/missing.tar.gz", "does not exist"),
        ("/opt/ml/input/../../etc/passwd", "lies outside"),
        ("s3://yard/code/plain.txt", "is refused: it is not compressed with gzip"),
        ("s3://yard/code/evil.tar.gz", 'is refused: "../evil.py" in it names'),
    ],
)
def test_code_that_cannot_be_fetched_is_named(
    store: FilesystemObjects, ml: Path, location: str, complaint: str
) -> None:
    put_object(store, "code/plain.txt", b"print()")
    put_object(store, "code/evil.tar.gz", tar_gz({"../evil.py": ""}))
    with pytest.raises(CannotRun, match=complaint) as caught:
        fetch_code(store, changed(program=ProgramSpec("train.py", location)), ml, check=lambda: None)
    assert caught.value.message.startswith(f"The code {location} ")


def test_a_python_entry_point_runs_with_the_interpreter_of_the_job(ml: Path) -> None:
    written(ml / "code", "train.py")
    command = program_command(changed(hyperparameters={"epochs": "3", "sagemaker_program": "train.py"}), ml / "code")
    assert command.argv("/env/bin/python") == ("/env/bin/python", "train.py", "--epochs", "3")
    assert command.shown == "python train.py --epochs 3"


def test_any_other_entry_point_is_executed(ml: Path) -> None:
    script = written(ml / "code", "scripts/run.sh")
    script.chmod(0o600)
    spec = changed(program=ProgramSpec("scripts/run.sh"), hyperparameters={"a": "b c"})
    command = program_command(spec, ml / "code")
    assert command.argv("/env/bin/python")[0] == "/bin/sh"
    assert command.argv("/env/bin/python")[-3:] == ("scripts/run.sh", "-a", "b c")
    assert script.stat().st_mode & 0o111


@pytest.mark.parametrize("name", ["-m package.train", "package.train", "package"])
def test_a_module_of_a_package_is_run_as_one(ml: Path, name: str) -> None:
    spec = changed(program=ProgramSpec(name), hyperparameters={"epochs": "3"})
    command = program_command(spec, ml / "code", is_package=True)
    assert command.shown == f"python -m {name.removeprefix('-m ')} --epochs 3"


def test_a_file_is_run_as_a_file_in_a_package_too(ml: Path) -> None:
    for name in ("train.py", "scripts/train.py", "run"):
        written(ml / "code", name)
    for name in ("train.py", "scripts/train.py"):
        command = program_command(changed(program=ProgramSpec(name)), ml / "code", is_package=True)
        assert command.shown == f"python {name}"
    assert program_command(changed(program=ProgramSpec("run")), ml / "code", is_package=True).words[0] == "/bin/sh"


def test_what_looks_like_a_module_is_a_file_where_there_is_no_package(ml: Path) -> None:
    with pytest.raises(CannotRun, match='no entry point "package"'):
        program_command(changed(program=ProgramSpec("package")), ml / "code")


def test_a_command_is_run_as_it_stands(ml: Path) -> None:
    command = program_command(changed(program=ProgramSpec(command=("train", "--x", "1 2"))), ml / "code")
    assert command.argv("/env/bin/python") == ("train", "--x", "1 2")


@pytest.mark.parametrize("name", ["/bin/sh", "../train.py", "-c", "a/../../b.py", "missing.py", "folder", "away.py"])
def test_an_entry_point_that_is_no_file_of_the_code_is_refused(ml: Path, name: str) -> None:
    (ml / "code" / "folder").mkdir()
    (ml / "code" / "away.py").symlink_to("/etc/hostname")
    with pytest.raises(CannotRun, match="entry point") as caught:
        program_command(changed(program=ProgramSpec(name)), ml / "code")
    assert caught.value.kind is FailureKind.USER_ERROR


def test_a_missing_entry_point_is_reported_with_the_files_that_exist(ml: Path) -> None:
    written(ml / "code", "other.py")
    with pytest.raises(CannotRun, match=r'"train.py" in the code, which holds other.py\.'):
        program_command(SPEC, ml / "code")


def test_a_job_without_a_program_gets_a_hint(ml: Path) -> None:
    with pytest.raises(CannotRun, match="sagemaker_program"):
        program_command(changed(program=ProgramSpec()), ml / "code")
