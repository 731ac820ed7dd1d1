"""ModelTrainer and remote functions, of version 3 of the sagemaker SDK and of 2.257."""

import pytest

from tests.conformance.conftest import Person
from tests.conformance.environments import interpreter


@pytest.mark.slow
@pytest.mark.parametrize(("version", "environment"), [("3", "sagemaker3"), ("2", "main")])
def test_a_trainer_trains_with_every_option_and_launcher(version: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("trainers", environment, person.bare_environment(), words=[version])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "modules"),
    [
        ("sagemaker3", ["sagemaker.core.remote_function", "sagemaker.core.helper.session_helper"]),
        ("main", ["sagemaker.remote_function", "sagemaker"]),
    ],
)
def test_remote_functions_return_raise_and_take_along_what_they_need(
    environment: str, modules: list[str], person: Person
) -> None:
    person.trainyard("connect", "--yes")
    image = f"functions-of-{environment}"
    person.trainyard("images", "map", image, str(interpreter(environment)))
    person.run("remote_functions", environment, person.bare_environment(), words=[*modules, image])
