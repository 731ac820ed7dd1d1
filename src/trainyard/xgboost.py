"""An estimator for XGBoost scripts."""

from typing import Any, ClassVar

from trainyard import image_uris
from trainyard.estimator import Framework, Hyperparameters

__all__ = ["XGBoost"]

# As that of a package without files, so that Python asks the finder for `trainyard.xgboost.estimator` and the like.
__path__: list[str] = []


class XGBoost(Framework):
    """Trains your own script with XGBoost.

    The image maps to the yard's own Python, unless it is mapped otherwise. If that has no xgboost, a
    `requirements.txt` in `source_dir` brings it for one job, and `pip install xgboost` for all.

    Args:
        entry_point: The script to run: a path, or a path in `source_dir`.
        framework_version: Version of the image, such as `1.7-1`. Default: the one that the yard has.
        source_dir: A local folder with the script, or an S3 location of its archive.
        hyperparameters: Hyperparameters, which the script gets as arguments.
        py_version: Python of the image: `py3`.
        image_uri: An image to use instead of that of XGBoost.
        image_uri_region: The region of the image. Default: that of the session.
        **options: The options of `TrainingOptions`.

    Raises:
        InvalidRequest: Without an `entry_point`.
        TypeError: For an argument that does not exist.
    """

    framework: ClassVar[str] = "xgboost"
    repository: ClassVar[str] = "sagemaker-xgboost"

    def __init__(
        self,
        entry_point: str | None = None,
        framework_version: str | None = None,
        source_dir: str | None = None,
        hyperparameters: Hyperparameters | None = None,
        py_version: str = "py3",
        image_uri: str | None = None,
        image_uri_region: str | None = None,
        **options: Any,
    ) -> None:
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
