"""Data channels, checkpoints and models by unmodified clients on a real yard; every byte is compared."""

from pathlib import Path

import pytest

from tests.conformance.conftest import PROJECT, Person
from trainyard.testing.yard import RunningYard

FILE_SYSTEM, LUSTRE = "fs-0123456789abcdef0", "fs-0fedcba9876543210"
LINKED = "s3://linked-to-lustre/images"
ESTIMATORS = [
    pytest.param("sagemaker", "main", id="sagemaker-newest"),
    pytest.param("trainyard", PROJECT, id="trainyard"),
]


@pytest.fixture
def shared(yard: RunningYard, tmp_path: Path) -> Path:
    """A folder of this machine that stands for a file system, which everybody may read and write; another is on S3."""
    folder = tmp_path / "shared"
    (folder / "sets/deep").mkdir(parents=True)
    (folder / "sets/a.txt").write_text("1,2\n")
    (folder / "sets/deep/b.txt").write_text("3")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    table = yard.home.root / "file_systems.toml"
    table.write_text(f'[file_systems]\n"{FILE_SYSTEM}" = "{folder}"\n"{LUSTRE}" = "{LINKED}"\n')
    return folder


def test_boto3_provides_data_in_every_way_and_continues_from_other_jobs(person: Person, shared: Path) -> None:
    person.run("data_with_boto3", "main", person.exports(), words=[FILE_SYSTEM, str(shared)])


@pytest.mark.slow
def test_an_old_boto3_does_so_too(person: Person, shared: Path) -> None:
    person.run("data_with_boto3", "boto3-old", person.exports(), words=[FILE_SYSTEM, str(shared)])


@pytest.mark.slow
@pytest.mark.parametrize(("package", "environment"), ESTIMATORS)
def test_estimators_provide_files_in_every_way(package: str, environment: str, person: Person, shared: Path) -> None:
    person.trainyard("connect", "--yes")
    words = [package, FILE_SYSTEM, str(shared), LUSTRE, LINKED]
    person.run("files_with_estimators", environment, person.bare_environment(), words=words)


@pytest.mark.slow
@pytest.mark.parametrize(("package", "environment"), ESTIMATORS)
def test_estimators_stream_channels_in_every_way(package: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("pipes_with_estimators", environment, person.bare_environment(), words=[package])


@pytest.mark.slow
@pytest.mark.parametrize(("package", "environment"), ESTIMATORS)
def test_estimators_resume_from_checkpoints_and_models(package: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("resuming_with_estimators", environment, person.bare_environment(), words=[package])


@pytest.mark.slow
def test_simple_sagemaker_keeps_the_state_of_a_task(person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("state_with_ssm", "ssm", person.bare_environment())
