"""Unmodified clients process data on a real yard."""

import pytest

from tests.conformance.conftest import PROJECT, Person

# Which package makes the processors, and in which environment. sagemaker waits up to half a minute between two looks.
PROCESSORS = [
    pytest.param("sagemaker", "main", id="sagemaker-newest", marks=pytest.mark.slow),
    pytest.param("sagemaker", "ssm", id="sagemaker-2.140", marks=pytest.mark.slow),
    pytest.param("trainyard", PROJECT, id="trainyard"),
]


@pytest.mark.parametrize(("package", "environment"), PROCESSORS)
def test_processors_split_fail_isolate_package_and_stop(package: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("processing_with_processors", environment, person.bare_environment(), words=[package])


@pytest.mark.slow
def test_simple_sagemaker_processes_data_and_continues_from_its_output(person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("processing_with_ssm", "ssm", person.bare_environment())
