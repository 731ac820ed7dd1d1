"""Custom images with a real podman: a Dockerfile based on one of Amazon's images, tags of a registry, ECR."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.images import ImageMissing, python_image, require_podman, run_options
from tests.system.fuzz.world import User
from tests.system.test_processing import SPLIT, Processes, output, source
from tests.system.trainees import Trainee
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.formats.profiles.hardware_reader import read_hardware
from trainyard.testing.yard import RunningYard, running_yard

TRAINYARD = Path(sys.executable).with_name("trainyard")
RUN = uuid.uuid4().hex[:8]  # images are the machine's, so those of a run have names of their own
TAG = f"1.9.0-gpu-py38-cu111-{RUN}"
BASE = f"763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:{TAG}"
DOCKERFILE = f"""
FROM {BASE}
RUN echo "of the image" > /etc/my-algorithm
COPY train /usr/bin/train
"""
TRAIN = """#!/usr/bin/python3
import pathlib, sys
print(sys.argv, pathlib.Path("/etc/my-algorithm").read_text())
pathlib.Path("/opt/ml/model/weights.txt").write_text("0.5")
"""


@pytest.fixture(scope="module")
def podman() -> str:
    try:
        return require_podman()
    except ImageMissing as missing:
        pytest.skip(f"{missing}")


@pytest.fixture(scope="module")
def base(podman: str) -> Iterator[str]:
    """Provide an image of this machine; its additional names are removed at the end."""
    try:
        image = python_image()
    except ImageMissing as missing:
        pytest.skip(f"{missing}")
    yield image
    listed = subprocess.run([podman, "images", "--format", "{{.Repository}}:{{.Tag}}"], capture_output=True, text=True)
    ours = [name for name in listed.stdout.split() if RUN in name]
    if ours:
        subprocess.run([podman, "rmi", *ours], check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def yard(base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    settings = {"ENGINES": "local,container", "CONTAINER_OPTIONS": " ".join(run_options())}
    environment = {f"TRAINYARD_SERVER_{name}": value for name, value in settings.items()}
    with running_yard(tmp_path_factory.mktemp("images") / "yard", environment=environment) as running:
        command(running, "images", "map", f"pytorch-training:{TAG}", "--container", base)
        yield running


@pytest.fixture(scope="module")
def trainee(administrator: User) -> Trainee:
    return Trainee(administrator).prepare()


def command(yard: RunningYard, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"TRAINYARD_HOME": str(yard.home.root)}
    return subprocess.run([TRAINYARD, *words], env=environment, check=True, capture_output=True, text=True)


def algorithm(image: str, *entry_point: str) -> dict[str, object]:
    shape = {"TrainingImage": image, "TrainingInputMode": "File"}
    return {"AlgorithmSpecification": shape | ({"ContainerEntrypoint": list(entry_point)} if entry_point else {})}


def test_a_dockerfile_on_a_mapped_image_is_built_and_its_name_trains(
    yard: RunningYard, trainee: Trainee, tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "train").write_text(TRAIN)
    (tmp_path / "train").chmod(0o755)
    ecr, name = trainee.user.client("ecr"), f"my-algorithm-{RUN}"
    uri = ecr.create_repository(repositoryName=name)["repository"]["repositoryUri"]

    built = command(yard, "images", "build", "-t", f"{name}:1", str(tmp_path))
    job = trainee.run("built", "", **algorithm(f"{uri}:1"), HyperParameters={})

    assert "STEP 2/3: RUN echo" in built.stderr
    assert job["TrainingJobStatus"] == "Completed", (job, trainee.lines("built"))
    assert "['/usr/bin/train'] of the image" in trainee.lines("built")
    (image,) = ecr.describe_images(repositoryName=name, imageIds=[{"imageTag": "1"}])["imageDetails"]
    assert image["imageSizeInBytes"] > 1_000_000
    assert image["imageDigest"].startswith("sha256:")
    layers = ecr.batch_check_layer_availability(repositoryName=name, layerDigests=[f"sha256:{'0' * 64}"])["layers"]
    assert [layer["layerAvailability"] for layer in layers] == ["UNAVAILABLE"]


def test_a_program_in_its_image_is_sampled(yard: RunningYard, trainee: Trainee, base: str) -> None:
    busy = "import time; end = time.time() + 2; all(time.time() < end for _ in iter(int, 1))"
    shape = algorithm(f"pytorch-training:{TAG}", "python3", "-c", busy)
    config = {"S3OutputPath": "s3://data/profiles", "ProfilingIntervalInMilliseconds": 100}
    job = trainee.run("sampled", "", **shape, HyperParameters={}, ProfilerConfig=config)

    assert job["TrainingJobStatus"] == "Completed", (job, trainee.lines("sampled"))
    (folder,) = (spec.parent for spec in yard.home.jobs.glob("*/*/*/spec.json") if '"sampled"' in spec.read_text())
    samples = read_hardware(folder / "hardware").series
    assert np.nanmax(samples[HardwareSeries(HardwareMetric.JOB_CPU_PERCENT)]) > 1
    assert np.nanmax(samples[HardwareSeries(HardwareMetric.JOB_PROCESSES)]) >= 1
    assert len(trainee.keys("profiles/sampled/profiler-output/system/incremental/")) >= 1


@pytest.mark.flow
@pytest.mark.slow
def test_an_image_tagged_with_the_registry_of_the_account_needs_no_map(
    yard: RunningYard, trainee: Trainee, podman: str, base: str
) -> None:
    ecr, name = trainee.user.client("ecr"), f"tagged-{RUN}"
    uri = ecr.create_repository(repositoryName=name)["repository"]["repositoryUri"]
    subprocess.run([podman, "tag", base, f"{uri}:v1"], check=True)

    job = trainee.run("tagged", "", **algorithm(f"{uri}:v1", "python3", "-c", "print('inside')"), HyperParameters={})

    assert job["TrainingJobStatus"] == "Completed", (job, trainee.lines("tagged"))
    assert "inside" in trainee.lines("tagged")
    (listed,) = ecr.list_images(repositoryName=name)["imageIds"]
    assert listed["imageTag"] == "v1"
    stranger = trainee.user.add_user("stranger").client("ecr")
    stranger.create_repository(repositoryName=name)
    assert stranger.list_images(repositoryName=name)["imageIds"] == []


def test_a_base_image_that_is_not_mapped_is_refused_before_anything_is_built(yard: RunningYard, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}-absent\nRUN true\n")

    with pytest.raises(subprocess.CalledProcessError) as caught:
        command(yard, "images", "build", "-t", f"absent-{RUN}", str(tmp_path))

    assert f"trainyard images map pytorch-training:{TAG}-absent --container" in " ".join(caught.value.stderr.split())
    assert "STEP" not in caught.value.stderr


def test_a_processing_job_runs_in_its_own_image_with_its_data_and_stores_what_it_writes(
    yard: RunningYard, trainee: Trainee
) -> None:
    jobs, s3 = Processes(trainee.user), trainee.user.client("s3")
    for number in range(4):
        s3.put_object(Bucket="data", Key=f"in/{number}.txt", Body=b"line %d" % number)
    s3.put_object(Bucket="data", Key="deps/word.txt", Body=b"beside")
    root = "/opt/ml/processing"
    jobs.create(
        "split-in-image",
        SPLIT,
        inputs=[
            source("data", "s3://data/in", f"{root}/in", S3DataDistributionType="ShardedByS3Key"),
            source("deps", "s3://data/deps/word.txt", f"{root}/code/deps"),
        ],
        outputs=[output("s3://data/split-in-image", f"{root}/out")],
        AppSpecification={"ImageUri": BASE, "ContainerEntrypoint": ["python3", f"{root}/code/run.py"]},
        ProcessingResources={
            "ClusterConfig": {"InstanceType": "ml.t3.medium", "InstanceCount": 2, "VolumeSizeInGB": 30}
        },
    )
    told = jobs.end_of("split-in-image")
    assert told["ProcessingJobStatus"] == "Completed", (told, jobs.lines("split-in-image"))
    assert told["ExitMessage"] == "algo-1 is done. algo-2 is done. "
    written = {f"algo-{number % 2 + 1}-{number}.txt": f"LINE {number}" for number in range(4)}
    assert jobs.stored("split-in-image/") == written | {"run.py": SPLIT}
