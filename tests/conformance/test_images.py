"""Unmodified clients train in custom images, on a yard that runs them with a real podman."""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import PROJECT, Person
from tests.images import ImageMissing, python_image, require_podman, run_options
from trainyard.testing.yard import RunningYard, running_yard

pytestmark = pytest.mark.slow

RUN = uuid.uuid4().hex[:8]  # images are the machine's, so those of a run have names of their own
BASE = f"763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:1.9.0-gpu-py38-{RUN}"
OWN, PLAIN = f"my-algorithm-{RUN}:1", f"team/plain-{RUN}:latest"
TRAIN = """#!/usr/bin/python3
import json, os

rate = json.load(open("/opt/ml/input/config/hyperparameters.json"))["rate"]
files = os.listdir("/opt/ml/input/data/training")
open("/opt/ml/model/weights.txt", "w").write(" ".join([rate, *files]))
"""


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """An image of this machine, whose further names go when the tests end."""
    try:
        image = python_image()
    except ImageMissing as missing:
        pytest.skip(f"{missing}")
    yield image
    podman = require_podman()
    listed = subprocess.run([podman, "images", "--format", "{{.Repository}}:{{.Tag}}"], capture_output=True, text=True)
    ours = [name for name in listed.stdout.split() if RUN in name]
    subprocess.run([podman, "rmi", *ours], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def yard(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    """With two custom images, built as their Dockerfiles stand."""
    settings = {"ENGINES": "local,container", "CONTAINER_OPTIONS": " ".join(run_options())}
    environment = {f"TRAINYARD_SERVER_{name}": value for name, value in settings.items()}
    folder = tmp_path_factory.mktemp("images")
    with running_yard(folder / "yard", environment=environment) as running:
        person = Person(running, folder)
        person.trainyard("images", "map", f"pytorch-training:1.9.0-gpu-py38-{RUN}", "--container", base)
        _build(person, PLAIN, f"FROM {BASE}\nRUN echo the image > /etc/my-algorithm\n")
        _build(person, OWN, f"FROM {BASE}\nCOPY --chmod=755 train /usr/bin/train\n")
        yield running


def _build(person: Person, name: str, dockerfile: str) -> None:
    folder = Path(person.home / name.replace("/", "-"))
    folder.mkdir()
    (folder / "Dockerfile").write_text(dockerfile)
    (folder / "train").write_text(TRAIN)
    person.trainyard("images", "build", "-t", name, str(folder))


@pytest.mark.parametrize(
    ("package", "environment"),
    [
        pytest.param("sagemaker", "main", id="sagemaker-newest"),
        pytest.param("sagemaker", "ssm", id="sagemaker-2.140"),
        pytest.param("trainyard", PROJECT, id="trainyard"),
    ],
)
def test_estimators_train_in_custom_images_under_unchanged_names(
    package: str, environment: str, person: Person
) -> None:
    person.trainyard("connect", "--yes")
    words = [package, OWN, PLAIN.removesuffix(":latest")]
    person.run("images_with_estimators", environment, person.bare_environment(), words=words)


def test_the_aws_cli_finds_the_images_of_a_repository(person: Person) -> None:
    name, _, tag = OWN.partition(":")
    person.run("repositories_with_aws_cli", "main", person.exports(), words=[name, tag])
