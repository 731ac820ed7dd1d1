"""The built-in algorithms of SageMaker, which requests name by their images: refused by the name of the algorithm."""

from collections.abc import Mapping
from typing import Any

from trainyard.engines.images import FRAMEWORKS, ImageReference
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Compute
from trainyard.server.services.sagemaker.training.program import PROGRAM


def refuse_built_in_algorithm(
    compute: Compute, algorithm: Mapping[str, Any], hyperparameters: Mapping[str, str]
) -> None:
    """Raise InvalidRequest if a request names a built-in algorithm that is not an image of this machine.

    The image sagemaker-xgboost is both: with a script it is a framework, without one the algorithm.
    """
    image = algorithm.get("TrainingImage", "")
    name = compute.images.built_in_algorithm(image) if image else ""
    if not name:
        return
    has_program = PROGRAM in hyperparameters or algorithm.get("ContainerEntrypoint")
    if has_program and ImageReference.parse(image).repository in FRAMEWORKS:
        return
    if compute.containers is not None and image in compute.containers.find([image]):
        return
    raise InvalidRequest(
        f'The image "{image}" is the built-in algorithm {name}. Trainyard has no built-in algorithms yet: train with a '
        "script of your own on an image of a framework, such as sagemaker-scikit-learn, sagemaker-xgboost or "
        "pytorch-training."
    )
