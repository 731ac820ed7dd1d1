"""Unmodified clients tune on a real yard."""

import pytest

from tests.conformance.conftest import PROJECT, Person


def test_boto3_tunes_with_the_exports_alone(person: Person) -> None:
    person.run("tuning_with_boto3", "main", person.exports())


@pytest.mark.slow
def test_the_aws_cli_tunes_with_the_exports_alone(person: Person) -> None:
    person.run("tuning_with_aws_cli", "main", person.exports())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "environment"), [("sagemaker", "main"), ("sagemaker", "ssm"), ("trainyard", PROJECT)]
)
def test_tuners_search_in_every_way_and_handle_every_end(package: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("tuning_with_estimators", environment, person.bare_environment(), words=[package])
