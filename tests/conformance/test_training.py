"""Unmodified clients train on a real yard.

One flow for each client is quick and part of `make test`; `make conformance` runs all, and those that wait as long as
the sagemaker SDK does between two looks at a job.
"""

import gzip
from pathlib import Path

import pytest
import sklearn.datasets

from tests.conformance.conftest import PROJECT, TRAINYARD, Person
from tests.conformance.environments import interpreter

# Which package makes the estimators, and in which environment: the newest of 2.x, the one that simple-sagemaker needs,
# and ours.
ESTIMATORS = [
    pytest.param("sagemaker", "main", id="sagemaker-newest", marks=pytest.mark.slow),
    pytest.param("sagemaker", "ssm", id="sagemaker-2.140", marks=pytest.mark.slow),
    pytest.param("trainyard", PROJECT, id="trainyard"),
]


@pytest.mark.flow
def test_boto3_trains_with_the_exports_alone(person: Person) -> None:
    person.run("training_with_boto3", "main", person.exports())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flow", "environment"), [("training_with_boto3", "boto3-old"), ("training_with_aws_cli", "main")]
)
def test_other_clients_train_with_the_exports_alone(flow: str, environment: str, person: Person) -> None:
    person.run(flow, environment, person.exports())


@pytest.mark.parametrize(("package", "environment"), ESTIMATORS)
def test_estimators_train_with_every_option_and_handle_every_end(
    package: str, environment: str, person: Person
) -> None:
    person.trainyard("connect", "--yes")
    person.run("training_with_estimators", environment, person.bare_environment(), words=[package])


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["main", "ssm"])
def test_the_sagemaker_sdk_reports_metrics_and_updates_jobs(environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("training_reported_by_sagemaker", environment, person.bare_environment())


@pytest.mark.slow
@pytest.mark.parametrize(("package", "environment"), ESTIMATORS)
def test_tensorflow_trains_in_the_environment_that_its_image_is_mapped_to(
    package: str, environment: str, person: Person
) -> None:
    person.trainyard("connect", "--yes")
    person.trainyard("images", "map", "tensorflow-training", str(interpreter("tensorflow")))
    packed = Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz"
    digits = person.home / "digits.csv"
    digits.write_bytes(gzip.decompress(packed.read_bytes()))
    words = [package, str(digits)]
    said = person.run("tensorflow_with_estimators", environment, person.bare_environment(), words=words)
    assert "tensorflow 2.21.0 model_dir s3://" in said


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["main", "ssm"])
def test_the_sagemaker_sdk_tells_what_spot_saved_after_an_interruption(environment: str, person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("spot_with_sagemaker", environment, person.bare_environment(), words=[str(TRAINYARD)])


@pytest.mark.slow
def test_simple_sagemaker_runs_a_task(person: Person) -> None:
    person.trainyard("connect", "--yes")
    person.run("task_with_ssm", "ssm", person.bare_environment())
