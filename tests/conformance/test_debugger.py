"""Rules of one's own through both SDKs."""

import pytest

from tests.conformance.conftest import PROJECT, Person


@pytest.mark.slow
@pytest.mark.parametrize(("package", "environment"), [("sagemaker", "main"), ("trainyard", PROJECT)])
def test_a_rule_of_ones_own_judges_and_stops_a_job(package: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("own_rules_with_estimators", environment, person.bare_environment(), words=[package])
