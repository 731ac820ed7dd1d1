"""Custom images with estimators: one with its own training program, and one that runs a script.

Its arguments are the package of the estimators, sagemaker or trainyard, and the names of both images.
"""

import importlib
import sys
import tempfile
from typing import Any

import boto3

estimating: Any = importlib.import_module("estimating")

SCRIPT = """
import os, pathlib

print("script in", pathlib.Path("/etc/my-algorithm").read_text())
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights.txt").write_text(os.environ["SM_HP_RATE"])
"""


def main(package: str, own: str, plain: str) -> None:
    registry = f"{boto3.client('sts').get_caller_identity()['Account']}.dkr.ecr.us-east-1.amazonaws.com"
    with tempfile.TemporaryDirectory() as folder:
        kit = estimating.kit_of(package, folder)
        its_own_program_trains(kit, f"{registry}/{own}")
        a_script_trains_in_it(kit, f"{registry}/{plain}")


def its_own_program_trains(kit: Any, image: str) -> None:
    job = kit.of("estimator", "Estimator")(
        image_uri=image,
        role=kit.role,
        instance_count=1,
        instance_type="ml.m5.large",
        hyperparameters={"rate": 0.5},
        sagemaker_session=kit.session,
    )
    job.fit({"training": kit.put({"a.txt": b"12"})}, logs=False)
    described = kit.session.describe_training_job(job.latest_training_job.name)
    assert described["AlgorithmSpecification"]["TrainingImage"] == image
    assert kit.archived(job.model_data) == {"weights.txt": b"0.5 a.txt"}


def a_script_trains_in_it(kit: Any, image: str) -> None:
    versions = {"framework_version": None, "py_version": None}
    job = kit.estimator(SCRIPT, image_uri=image, hyperparameters={"rate": 0.25}, **versions)
    job.fit(logs=False)
    assert kit.archived(job.model_data) == {"weights.txt": b"0.25"}


main(*sys.argv[1:])
