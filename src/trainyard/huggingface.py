"""An estimator for scripts that use Hugging Face transformers."""

from typing import Any, ClassVar

from trainyard import image_uris
from trainyard._sdk.training.distribution import Distribution
from trainyard.estimator import Framework, Hyperparameters
from trainyard.foundation.errors import InvalidRequest

__all__ = ["HuggingFace"]

# As that of a package without files, so that Python asks the finder for `trainyard.huggingface.estimator` and the like.
__path__: list[str] = []


class HuggingFace(Framework):
    """Trains your own script with Hugging Face transformers on PyTorch or TensorFlow.

    The image maps to the yard's own Python, unless it is mapped otherwise. If that has no transformers, a
    `requirements.txt` in `source_dir` brings them for one job, and `pip install transformers` for all.

    Args:
        py_version: Python of the image, such as `py312`. Default: that of the transformers version.
        entry_point: The script to run: a path, or a path in `source_dir`.
        transformers_version: Version of transformers. Default: the one that the yard has.
        tensorflow_version: Version of TensorFlow, for a script that uses it.
        pytorch_version: Version of PyTorch. Default: that of the transformers version.
        source_dir: A local folder with the script, or an S3 location of its archive.
        hyperparameters: Hyperparameters, which the script gets as arguments.
        image_uri: An image to use instead of that of transformers.
        distribution: How to launch a distributed job, such as `{"torch_distributed": {"enabled": True}}`.
        compiler_config: Not available: AWS has discontinued the training compiler.
        **options: The options of `TrainingOptions`.

    Raises:
        InvalidRequest: Without an `entry_point`, with both frameworks, or with a `compiler_config`.
        TypeError: For an argument that does not exist.
    """

    framework: ClassVar[str] = "huggingface"
    repository: ClassVar[str] = "huggingface-pytorch-training"

    def __init__(
        self,
        py_version: str | None = None,
        entry_point: str | None = None,
        transformers_version: str | None = None,
        tensorflow_version: str | None = None,
        pytorch_version: str | None = None,
        source_dir: str | None = None,
        hyperparameters: Hyperparameters | None = None,
        image_uri: str | None = None,
        distribution: Distribution | None = None,
        compiler_config: object = None,
        **options: Any,
    ) -> None:
        if compiler_config is not None:
            raise InvalidRequest(
                "compiler_config configures the training compiler, which AWS has discontinued; leave it out and call "
                "torch.compile in the script."
            )
        if pytorch_version and tensorflow_version:
            raise InvalidRequest("An image has either PyTorch or TensorFlow; leave one of the two versions out.")
        super().__init__(
            entry_point,
            source_dir,
            hyperparameters,
            framework_version=transformers_version,
            py_version=py_version,
            image_uri=image_uri,
            distribution=distribution,
            **options,
        )
        self.pytorch_version, self.tensorflow_version = pytorch_version, tensorflow_version

    def _installed_image_uri(self) -> str | None:
        return None if self.pytorch_version or self.tensorflow_version else super()._installed_image_uri()

    def training_image_uri(self) -> str:
        known = self.image_uri or self._installed_image_uri()
        if known:
            return known
        base = f"pytorch{self.pytorch_version}" if self.pytorch_version else None
        return image_uris.retrieve(
            self.framework,
            self.session.boto_region_name,
            self.framework_version,
            self.py_version,
            base_framework_version=f"tensorflow{self.tensorflow_version}" if self.tensorflow_version else base,
        )
