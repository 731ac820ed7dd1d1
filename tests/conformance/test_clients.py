"""Unmodified clients on a real yard, each with nothing but `trainyard env` or `trainyard connect`.

One flow per client is quick and part of `make test`; `make conformance` runs the whole matrix.
"""

import pytest

from tests.conformance.conftest import Person
from tests.conformance.environments import interpreter

QUICK = [
    ("objects_with_boto3", "main"),
    ("commands_with_aws_cli", "main"),
    ("objects_with_obstore", "obstore"),
]
FURTHER = [
    ("objects_with_s3fs", "s3fs"),
    ("logdir_with_tensorboard", "tensorboard"),
    ("services_with_boto3", "main"),
    # Before 1.36 boto3 sends no checksum unless asked, and speaks the query protocol with CloudWatch.
    ("objects_with_boto3", "boto3-old"),
    ("services_with_boto3", "boto3-old"),
]


@pytest.mark.parametrize(("flow", "environment"), QUICK)
def test_a_client_works_with_the_exports_alone(flow: str, environment: str, person: Person) -> None:
    person.run(flow, environment, person.exports())


@pytest.mark.slow
@pytest.mark.parametrize(("flow", "environment"), FURTHER)
def test_a_further_client_works_with_the_exports_alone(flow: str, environment: str, person: Person) -> None:
    person.run(flow, environment, person.exports())


@pytest.mark.slow
@pytest.mark.parametrize(("flow", "environment"), [*QUICK, *FURTHER])
def test_a_client_works_over_https_and_trusts_the_exported_authority(
    flow: str, environment: str, person: Person
) -> None:
    person.run(flow, environment, person.exports(secure=True))


@pytest.mark.flow
def test_the_sagemaker_sdk_works_once_connected(person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("session_with_sagemaker", "main", person.bare_environment())


def test_doctor_tries_a_session_of_the_sagemaker_sdk(person: Person) -> None:
    python = str(interpreter("main"))
    # Without `connect`, the SDK would call Amazon: the trial stops before it does.
    with pytest.raises(AssertionError, match="addresses"):
        person.trainyard("doctor", "--sdk", "--python", python)
    person.trainyard("connect", "--yes")
    assert "list jobs" in person.trainyard("doctor", "--sdk", "--python", python)


def test_the_sagemaker_sdk_trains_once_connected(person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("training_with_sagemaker", "main", person.bare_environment())


@pytest.mark.slow
def test_experiments_of_the_sagemaker_sdk_and_of_smexperiments_work_once_connected(person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("experiments_with_sagemaker", "main", person.bare_environment())


@pytest.mark.slow
def test_the_sagemaker_sdk_of_simple_sagemaker_works_once_connected(person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("session_with_sagemaker", "ssm", person.bare_environment())


@pytest.mark.slow
def test_other_clients_work_once_connected(person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("services_with_boto3", "main", person.bare_environment())
    person.run("commands_with_aws_cli", "main", person.bare_environment())


def test_disconnecting_leaves_the_home_folder_as_it_was(person: Person) -> None:
    existing = person.home / ".aws" / "config"
    existing.parent.mkdir()
    existing.write_text("[default]\nregion = eu-west-3\n")
    person.trainyard("connect", "--yes")
    assert existing.read_text() != "[default]\nregion = eu-west-3\n"
    person.trainyard("disconnect")
    files = {str(path.relative_to(person.home)): path.read_text() for path in person.home.rglob("*") if path.is_file()}
    assert files == {".aws/config": "[default]\nregion = eu-west-3\n"}
