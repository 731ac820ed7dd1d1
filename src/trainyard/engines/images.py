"""What an image maps to: a Python interpreter of this machine, or a container image that really runs.

Most jobs run without a container engine, and the name of an image only says what a script expects to find. The home
folder's images.toml maps images to interpreters. Well-known framework images that it does not name map to the yard's
own Python. If a version is not available, the nearest one takes its place, and a note on the job says so.

An image that must really run is mapped to the name by which podman or docker knows it on this machine. Only exactly
that image maps to it: a container image never takes the place of another version.

    [images]
    "pytorch-training:2.6" = "/opt/envs/torch26/bin/python"
    "my-algorithm" = "/opt/envs/mine/bin/python"
    "our-algorithm:1" = "container:localhost/our-algorithm:1"
"""

import importlib.metadata
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.files import lock_folder, replace_file

# The repositories of framework images, and the package whose version their tags begin with.
FRAMEWORKS: Mapping[str, str] = {
    "pytorch-training": "torch",
    "pytorch-inference": "torch",
    "sagemaker-pytorch": "torch",
    "tensorflow-training": "tensorflow",
    "tensorflow-inference": "tensorflow",
    "sagemaker-tensorflow": "tensorflow",
    "sagemaker-tensorflow-scriptmode": "tensorflow",
    "huggingface-pytorch-training": "torch",
    "huggingface-pytorch-inference": "torch",
    "huggingface-tensorflow-training": "tensorflow",
    "mxnet-training": "mxnet",
    "sagemaker-scikit-learn": "scikit-learn",
    "sagemaker-xgboost": "xgboost",
}

# The repositories of the built-in algorithms, and their names.
ALGORITHMS: Mapping[str, str] = {
    "blazingtext": "BlazingText",
    "factorization-machines": "Factorization Machines",
    "forecasting-deepar": "DeepAR",
    "image-classification": "Image Classification",
    "ipinsights": "IP Insights",
    "kmeans": "K-Means",
    "knn": "K-Nearest Neighbors",
    "lda": "Latent Dirichlet Allocation",
    "linear-learner": "Linear Learner",
    "ntm": "Neural Topic Model",
    "object-detection": "Object Detection",
    "object2vec": "Object2Vec",
    "pca": "Principal Component Analysis",
    "randomcutforest": "Random Cut Forest",
    "sagemaker-xgboost": "XGBoost",
    "semantic-segmentation": "Semantic Segmentation",
    "seq2seq": "Sequence-to-Sequence",
    "xgboost": "XGBoost",
}

# Other distributions of the same package.
_SAME_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "tensorflow": ("tensorflow-cpu",),
    "xgboost": ("xgboost-cpu",),
}

# The image that stands for the yard's own Python, whatever is installed there.
PLAIN_PYTHON = "trainyard-python"

# What a script is run with if its user names no image: the first one that the yard has the package of.
_DEFAULTS = ("pytorch-training", "tensorflow-training", "sagemaker-scikit-learn", "sagemaker-xgboost")

# The tag of an image that is named without one.
LATEST = "latest"
# Prefix of a container image in the file. The path of an interpreter begins with a slash.
CONTAINER = "container:"

_REFERENCE = re.compile(
    r"(?:(?P<registry>[^/]+[.:][^/]*|localhost)/)?(?P<repository>[^:@]*[^:@/])(?::(?P<tag>[^@]+))?(?:@(?P<digest>.+))?"
)
_LOCAL_NAME = re.compile(r"\w[\w.\-]*(:[0-9]+/[\w.\-]+)?(/[\w.\-]+)*(:[\w.\-]+)?(@sha256:[0-9a-f]{64})?")
_AMAZON = re.compile(r"(?P<account>[0-9]{12})\.dkr\.ecr(-fips)?\.[\w-]+\.amazonaws\.com(\.cn)?")
_VERSION = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """The Python that a job runs on. `notes` are sentences for the user about versions that differ."""

    python: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """The container image that a job runs in, by the name that podman or docker knows on this machine."""

    name: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImageReference:
    """The parsed name of an image. The registry does not count in comparisons, because each region has its own."""

    repository: str
    tag: str
    registry: str = field(default="", compare=False)

    @classmethod
    def parse(cls, image: str) -> "ImageReference":
        match = _REFERENCE.fullmatch(image.strip())
        if match is None:
            raise InvalidRequest(f'"{image}" is not the name of an image.')
        return cls(match["repository"], match["tag"] or "", match["registry"] or "")

    @property
    def version(self) -> tuple[int, ...]:
        """The numbers at the start of the tag: (2, 6) for 2.6-cpu-py312; empty if there are none."""
        match = _VERSION.match(self.tag)
        return tuple(map(int, match[0].split("."))) if match else ()

    @property
    def account(self) -> str:
        """The AWS account whose registry it is in; empty for any other registry."""
        match = _AMAZON.fullmatch(self.registry)
        return match["account"] if match else ""

    def __str__(self) -> str:
        return f"{self.repository}:{self.tag}" if self.tag else self.repository


@dataclass(frozen=True, slots=True)
class _VersionCandidate:
    version: tuple[int, ...]
    python: str
    label: str
    has_package: bool = True


def installed_version(package: str) -> str | None:
    """Return the version of a package in the yard's own Python; None if it is not installed."""
    return _installed_version(package, _packages_changed_at())


@lru_cache(maxsize=64)
def _installed_version(package: str, changes: tuple[int, ...]) -> str | None:  # noqa: ARG001 - part of the cache key
    # Cached because parsing the metadata took 2 ms of the 3 ms that it takes to create a job.
    for name in (package, *_SAME_PACKAGES.get(package, ())):
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


def _packages_changed_at() -> tuple[int, ...]:
    """The modification times of the folders that packages are installed in."""
    found = []
    for folder in sys.path:
        with suppress(OSError):
            found.append(os.stat(folder or ".").st_mtime_ns)  # noqa: PTH116 - a Path costs more than this
    return tuple(found)


class Images:
    """The images of one yard. The file is read for each call, so a change takes effect at once."""

    def __init__(
        self,
        file: Path,
        *,
        python: str = sys.executable,
        version_of: Callable[[str], str | None] = installed_version,
    ) -> None:
        self._file = file
        self._python = python
        self._version_of = version_of

    def resolve(self, image: str, *, strict: bool = False) -> PythonEnvironment | ContainerImage:
        """Return what an image maps to.

        Raises InvalidRequest if it maps to nothing, if its interpreter is gone, or, if `strict`, if only another
        version is available. Does not check that the container image exists.
        """
        wanted = ImageReference.parse(image)
        mapped = self._read_mappings()
        exact = _exact_mapping(wanted, mapped)
        if exact.startswith(CONTAINER):
            return ContainerImage(exact.removeprefix(CONTAINER))
        if exact:
            return PythonEnvironment(_check_executable(exact, image))
        nearest = self._nearest(wanted, mapped)
        if nearest is None:
            raise InvalidRequest(f'The image "{image}" maps to nothing on this yard; {_how_to_map(wanted)}')
        notes = _difference(wanted, nearest)
        if strict and notes:
            raise InvalidRequest(f"{notes[0]} This yard is strict about versions; {_how_to_map(wanted)}")
        return PythonEnvironment(_check_executable(nearest.python, image), notes)

    def default_image(self) -> str:
        """Return the image for a script whose user names none: of a framework that the yard has, or plain Python."""
        mapped = {ImageReference.parse(image).repository for image in self._read_mappings()}
        found = (each for each in _DEFAULTS if each in mapped or self._version_of(FRAMEWORKS[each]))
        return f"{next(found, PLAIN_PYTHON)}:{LATEST}"

    def environment(self, image: str, *, strict: bool = False) -> PythonEnvironment:
        """Return the environment that an image maps to. Raises InvalidRequest also if it maps to a container image."""
        found = self.resolve(image, strict=strict)
        if isinstance(found, ContainerImage):
            raise InvalidRequest(
                f'The image "{image}" maps to the container image {found.name}, which only the container engine '
                f"runs; start the yard with that engine, or {_how_to_map_to_python(ImageReference.parse(image))}."
            )
        return found

    def container_of(self, image: str) -> str:
        """Return the container image that must run for an image; empty if the image maps to a Python.

        An image that maps to nothing keeps its own name, which podman or docker may know.
        """
        wanted = ImageReference.parse(image)
        mapped = self._read_mappings()
        exact = _exact_mapping(wanted, mapped)
        if exact:
            return exact.removeprefix(CONTAINER) if exact.startswith(CONTAINER) else ""
        return "" if self._nearest(wanted, mapped) else image

    def built_in_algorithm(self, image: str) -> str:
        """Return the built-in algorithm that an image of Amazon's registries names; empty if the image is mapped."""
        wanted = ImageReference.parse(image)
        if not wanted.account or _exact_mapping(wanted, self._read_mappings()):
            return ""
        return ALGORITHMS.get(wanted.repository, "")

    def mappings(self) -> dict[str, str]:
        """Images mapped by the user, and the interpreter or container image of each, as written in the file."""
        return self._read_mappings()

    def map(self, image: str, python: str) -> None:
        """Map an image to an interpreter: one version, or without a tag all versions."""
        name, runnable = str(ImageReference.parse(image)), _check_executable(str(Path(python).absolute()), image)
        with self._edit_mappings() as mapped:
            mapped[name] = runnable

    def map_container(self, image: str, container: str) -> None:
        """Map an image to a container image: one version, or without a tag all versions."""
        if not _LOCAL_NAME.fullmatch(container):
            raise InvalidRequest(f'"{container}" is not the name of a container image, such as localhost/mine:1.')
        with self._edit_mappings() as mapped:
            mapped[str(ImageReference.parse(image))] = f"{CONTAINER}{container}"

    def unmap(self, image: str) -> None:
        """Remove the mapping of an image. Raises NotFound if it has none."""
        name = str(ImageReference.parse(image))
        with self._edit_mappings() as mapped:
            if name not in mapped:
                raise NotFound("mapped image", name)
            del mapped[name]

    def _nearest(self, wanted: ImageReference, mapped: Mapping[str, str]) -> _VersionCandidate | None:
        """Return the version that agrees in the most leading numbers; then the closest number; then the newer one."""
        candidates = [*_mapped_versions(wanted, mapped), *self._own_candidates(wanted)]
        return min(candidates, key=lambda candidate: _distance(wanted.version, candidate.version), default=None)

    def _own_candidates(self, wanted: ImageReference) -> list[_VersionCandidate]:
        if wanted.repository == PLAIN_PYTHON:
            return [_VersionCandidate(wanted.version, self._python, "Python")]
        package = FRAMEWORKS.get(wanted.repository)
        if package is None:
            return []
        found = self._version_of(package)
        label = f"{package} {found}" if found else f"no {package}; `{self._python} -m pip install {package}` brings it"
        return [_VersionCandidate(ImageReference("", found or "").version, self._python, label, bool(found))]

    def _read_mappings(self) -> dict[str, str]:
        try:
            table = tomllib.loads(self._file.read_text()).get("images", {})
        except FileNotFoundError:
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"{self._file} is not valid TOML: {error}.") from error
        if not isinstance(table, dict) or not all(isinstance(python, str) for python in table.values()):
            raise InvalidRequest(
                f"{self._file}: [images] maps the names of images to paths of interpreters, or to "
                f'"{CONTAINER}" with the name of a container image.'
            )
        return {str(ImageReference.parse(image)): python for image, python in table.items()}

    @contextmanager
    def _edit_mappings(self) -> Iterator[dict[str, str]]:
        """Yield the mappings for changes, under a lock, and write them at the end."""
        with lock_folder(self._file.parent):
            mapped = self._read_mappings()
            yield mapped
            self._write(mapped)

    def _write(self, mapped: Mapping[str, str]) -> None:
        # A JSON string is a valid TOML string.
        lines = [f"{json.dumps(image)} = {json.dumps(python)}" for image, python in sorted(mapped.items())]
        replace_file(self._file, "\n".join(["[images]", *lines, ""]).encode())


def _exact_mapping(wanted: ImageReference, mapped: Mapping[str, str]) -> str:
    """The mapping of exactly this name: with its tag (`latest` if it has none), or of all versions."""
    names = (str(wanted), "" if wanted.tag else f"{wanted}:{LATEST}", wanted.repository)
    return next((mapped[name] for name in names if name in mapped), "")


def _mapped_versions(wanted: ImageReference, mapped: Mapping[str, str]) -> list[_VersionCandidate]:
    references = [(ImageReference.parse(image), python) for image, python in mapped.items()]
    return [
        _VersionCandidate(each.version, python, str(each))
        for each, python in references
        if each.repository == wanted.repository and each.version and not python.startswith(CONTAINER)
    ]


def _distance(wanted: tuple[int, ...], there: tuple[int, ...]) -> tuple[bool, int, int, list[int]]:
    """Sort key by which the version nearest to the wanted one comes first."""
    pairs = list(zip(wanted, there, strict=False))
    agreeing = next((place for place, (number, other) in enumerate(pairs) if number != other), len(pairs))
    apart = abs(pairs[agreeing][0] - pairs[agreeing][1]) if agreeing < len(pairs) else 0
    return (not there, -agreeing, apart, [-number for number in there])


def _difference(wanted: ImageReference, found: _VersionCandidate) -> tuple[str, ...]:
    """Describe how the version differs. It does not if all numbers that both name agree: 2.6 is 2.6.1."""
    if found.has_package and not wanted.version:
        return ()
    if found.version and all(a == b for a, b in zip(wanted.version, found.version, strict=False)):
        return ()
    return (f"The image {wanted} maps to an environment with {found.label}.",)


def _check_executable(python: str, image: str) -> str:
    if not os.access(python, os.X_OK) or not Path(python).is_file():
        raise InvalidRequest(
            f'{python}, the Python of the image "{image}", is not an executable file; name another with '
            f"`trainyard images map {ImageReference.parse(image)} PYTHON`."
        )
    return python


def _how_to_map(wanted: ImageReference) -> str:
    return (
        f"{_how_to_map_to_python(wanted)}, or a container image, which the container engine runs, with "
        f"`trainyard images map {wanted} --container LOCAL_IMAGE`."
    )


def _how_to_map_to_python(wanted: ImageReference) -> str:
    return f"give it a Python with `trainyard images map {wanted} /path/to/python`"
