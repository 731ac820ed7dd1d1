"""Training scripts for TensorFlow."""

from typing import Any, ClassVar, Literal, Self, Unpack

from trainyard.distribution import Distribution
from trainyard.estimator import Framework, Hyperparameters
from trainyard.following import Description
from trainyard.training_request import TrainingKeywords


class TensorFlow(Framework):
    """Trains a script with TensorFlow, which is told in `model_dir` where checkpoints of the model may be kept."""

    framework: ClassVar[str] = "tensorflow"

    def __init__(
        self,
        py_version: str | None = None,
        framework_version: str | None = None,
        model_dir: str | Literal[False] | None = None,
        image_uri: str | None = None,
        distribution: Distribution | None = None,
        *,
        entry_point: str | None = None,
        source_dir: str | None = None,
        hyperparameters: Hyperparameters | None = None,
        **options: Unpack[TrainingKeywords],
    ) -> None:
        super().__init__(
            entry_point,
            source_dir,
            hyperparameters,
            framework_version=framework_version,
            py_version=py_version,
            image_uri=image_uri,
            distribution=distribution,
            **options,
        )
        self.model_dir = model_dir

    def _launch_hyperparameters(self, job_name: str) -> dict[str, Any]:
        launch = super()._launch_hyperparameters(job_name)
        if self.model_dir is False:
            return launch
        usual = "/opt/ml/model" if launch.get("sagemaker_mpi_enabled") else f"{self._below_output(job_name)}/model"
        return launch | {"model_dir": self.model_dir or usual}

    @classmethod
    def _of_description(cls, description: Description, options: TrainingKeywords) -> Self:
        estimator = super()._of_description(description, options)
        told = estimator._hyperparameters.pop("model_dir", False)
        usual = f"{estimator._below_output(description['TrainingJobName'])}/model"
        estimator.model_dir = None if told in (usual, "/opt/ml/model") else told
        return estimator

    def _below_output(self, job_name: str) -> str:
        return f"{self._output_path().rstrip('/')}/{job_name}"
