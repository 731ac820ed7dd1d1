"""An estimator and a processor for scikit-learn scripts."""

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard import image_uris
from trainyard.estimator import Framework, Hyperparameters
from trainyard.foundation.errors import InvalidRequest
from trainyard.processing import ScriptProcessor

__all__ = ["SKLearn", "SKLearnProcessor"]

# As that of a package without files, so that Python asks the finder for `trainyard.sklearn.estimator` and the like.
__path__: list[str] = []


_REPOSITORY = "sagemaker-scikit-learn"


class SKLearn(Framework):
    """Trains your own script with scikit-learn, on one instance.

    The image maps to the yard's own Python, unless it is mapped otherwise. If that has no scikit-learn, a
    `requirements.txt` in `source_dir` brings it for one job, and `pip install scikit-learn` for all.

    Args:
        entry_point: The script to run: a path, or a path in `source_dir`.
        framework_version: Version of the image, such as `1.2-1`. Default: the one that the yard has.
        py_version: Python of the image: `py3`.
        source_dir: A local folder with the script, or an S3 location of its archive.
        hyperparameters: Hyperparameters, which the script gets as arguments.
        image_uri: An image to use instead of that of scikit-learn.
        image_uri_region: The region of the image. Default: that of the session.
        **options: The options of `TrainingOptions`.

    Raises:
        InvalidRequest: Without an `entry_point`, or with several instances.
        TypeError: For an argument that does not exist.
    """

    framework: ClassVar[str] = "sklearn"
    repository: ClassVar[str] = _REPOSITORY

    def __init__(
        self,
        entry_point: str | None = None,
        framework_version: str | None = None,
        py_version: str = "py3",
        source_dir: str | None = None,
        hyperparameters: Hyperparameters | None = None,
        image_uri: str | None = None,
        image_uri_region: str | None = None,
        **options: Any,
    ) -> None:
        if options.get("instance_count", 1) != 1:
            raise InvalidRequest("scikit-learn trains on one instance; leave instance_count out, or make it 1.")
        super().__init__(
            entry_point,
            source_dir,
            hyperparameters,
            framework_version=framework_version,
            py_version=py_version,
            image_uri=image_uri,
            **options,
        )
        self.image_uri_region = image_uri_region

    def _installed_image_uri(self) -> str | None:
        # Every image of it has the same Python.
        return None if self.framework_version else f"{self.repository}:latest"

    def training_image_uri(self) -> str:
        region = self.image_uri_region or self.session.boto_region_name
        known = self.image_uri or self._installed_image_uri()
        return known or image_uris.retrieve(self.framework, region, self.framework_version)


class SKLearnProcessor(ScriptProcessor):
    """Runs a script with the image of scikit-learn as a processing job.

    Args:
        framework_version: Version of the image, such as `1.2-1`. Default: the one that the yard has.
        role: Name or ARN of the role that the job runs with. Default: the role of the caller.
        instance_type: Type of the instances.
        instance_count: Number of instances.
        command: The command that runs the script. Default: `["python3"]`.
        **options: The other options of `Processor`.
    """

    def __init__(
        self,
        framework_version: str | None = None,
        role: str | None = None,
        instance_type: str = "ml.m5.large",
        instance_count: int = 1,
        command: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(role, None, command, instance_count, instance_type, **options)
        self.framework_version = framework_version

    def processing_image_uri(self) -> str:
        if not self.framework_version:
            # Every image of it has the same Python.
            return f"{_REPOSITORY}:latest"
        return image_uris.retrieve("sklearn", self.session.boto_region_name, self.framework_version)
