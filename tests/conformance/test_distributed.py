"""Training on several instances by unmodified clients on a real yard; every rank tells what it computed."""

import gzip
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import sklearn.datasets

from tests.conformance.conftest import PROJECT, Person
from tests.conformance.environments import interpreter

ESTIMATORS = [
    pytest.param("sagemaker", "main", id="sagemaker-newest"),
    pytest.param("trainyard", PROJECT, id="trainyard"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("package", "environment"), ESTIMATORS)
def test_estimators_train_on_several_instances_in_every_way(package: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    words = [package, str(urlsplit(person.yard.http).port)]
    person.run("distributed_with_estimators", environment, person.bare_environment(), words=words)


@pytest.mark.slow
@pytest.mark.parametrize(("package", "environment"), [("sagemaker", "main"), ("trainyard", PROJECT)])
def test_estimators_train_a_model_in_parts(package: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    packed = Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz"
    digits = person.home / "digits.csv"
    digits.write_bytes(gzip.decompress(packed.read_bytes()))
    words = [package, str(digits)]
    person.run("model_parallel_with_estimators", environment, person.bare_environment(), words=words)


@pytest.mark.slow
@pytest.mark.parametrize(("package", "environment"), ESTIMATORS)
def test_tensorflow_trains_on_several_instances_in_its_own_ways(package: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.trainyard("images", "map", "tensorflow-training", str(interpreter("tensorflow")))
    person.run("distributed_with_tensorflow", environment, person.bare_environment(), words=[package])


@pytest.mark.slow
@pytest.mark.parametrize(("package", "environment"), ESTIMATORS)
def test_estimators_train_by_a_real_mpirun(package: str, environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("mpi_with_estimators", environment, person.bare_environment(), words=[package])
