"""Unmodified clients use the lineage and the model registry of a real yard."""

import pytest

from tests.conformance.conftest import PROJECT, Person

PACKAGES = [
    pytest.param("sagemaker", "main", id="sagemaker-newest", marks=pytest.mark.slow),
    pytest.param("trainyard", PROJECT, id="trainyard"),
]


@pytest.mark.parametrize(("package", "environment"), PACKAGES)
def test_models_are_registered_and_lead_back_to_their_jobs(package: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("lineage_with_estimators", environment, person.bare_environment(), words=[package])
