"""What an image stands for: a Python of this machine, or a container image that really runs.

Most jobs run without a container engine, and the name of an image only says what a script expects to find. The home
folder's images.toml maps images to interpreters; the well-known framework images that it does not name stand for the
yard's own Python. A version that is not there is replaced by the nearest that is, and the job is told.

An image that must really run is mapped to the name that podman or docker on this machine know it by. It stands for the
names that were mapped to it and for no others: who maps a container means that one.

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
from trainyard.foundation.files import alone_in, replace_file

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
    "mxnet-training": "mxnet",
    "sagemaker-scikit-learn": "scikit-learn",
    "sagemaker-xgboost": "xgboost",
}

LATEST = "latest"  # the tag of an image that is named without one
CONTAINER = "container:"  # before the name of a container image in the file; a path would begin with a slash

_REFERENCE = re.compile(
    r"(?:(?P<registry>[^/]+[.:][^/]*|localhost)/)?(?P<repository>[^:@]*[^:@/])(?::(?P<tag>[^@]+))?(?:@(?P<digest>.+))?"
)
_LOCAL_NAME = re.compile(r"\w[\w.\-]*(:[0-9]+/[\w.\-]+)?(/[\w.\-]+)*(:[\w.\-]+)?(@sha256:[0-9a-f]{64})?")
_AMAZON = re.compile(r"(?P<account>[0-9]{12})\.dkr\.ecr(-fips)?\.[\w-]+\.amazonaws\.com(\.cn)?")
_VERSION = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class Environment:
    """The Python that a job runs on. `notes` are sentences for the user: what was put in place of what."""

    python: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """The container image that a job runs in, by the name that the tool of this machine knows it by."""

    name: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an image, taken apart. The registry does not tell images apart: the same lies in one per region."""

    repository: str
    tag: str
    registry: str = field(default="", compare=False)

    @classmethod
    def parse(cls, image: str) -> "Reference":
        match = _REFERENCE.fullmatch(image.strip())
        if match is None:
            raise InvalidRequest(f'"{image}" is not the name of an image.')
        return cls(match["repository"], match["tag"] or "", match["registry"] or "")

    @property
    def version(self) -> tuple[int, ...]:
        """The numbers the tag begins with: (2, 6) for 2.6-cpu-py312; empty when there are none."""
        match = _VERSION.match(self.tag)
        return tuple(map(int, match[0].split("."))) if match else ()

    @property
    def account(self) -> str:
        """Whose registry it lies in, where that is one of Amazon's; empty otherwise."""
        match = _AMAZON.fullmatch(self.registry)
        return match["account"] if match else ""

    def __str__(self) -> str:
        return f"{self.repository}:{self.tag}" if self.tag else self.repository


@dataclass(frozen=True, slots=True)
class _Candidate:
    version: tuple[int, ...]
    python: str
    label: str


def installed_version(package: str) -> str | None:
    """The version of a package in the yard's own Python; None when it is not there."""
    return _installed_version(package, _changes_of_packages())


@lru_cache(maxsize=64)
def _installed_version(package: str, changes: tuple[int, ...]) -> str | None:  # noqa: ARG001 - anew when one changes
    # It parses a page of metadata, 2 ms of the 3 ms that it took to create a job.
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _changes_of_packages() -> tuple[int, ...]:
    """When something was last installed or removed, folder by folder."""
    found = []
    for folder in sys.path:
        with suppress(OSError):
            found.append(os.stat(folder or ".").st_mtime_ns)  # noqa: PTH116 - a Path costs more than this
    return tuple(found)


class Images:
    """The images of one yard. The file is read anew with each question, so a change counts at once."""

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

    def resolve(self, image: str, *, strict: bool = False) -> Environment | ContainerImage:
        """What an image stands for.

        InvalidRequest when it stands for nothing, when its interpreter is gone, or, if `strict`, when only another
        version than the one it names is there. Whether there is a container image of that name is not asked.
        """
        wanted = Reference.parse(image)
        mapped = self._read()
        exact = _exact(wanted, mapped)
        if exact.startswith(CONTAINER):
            return ContainerImage(exact.removeprefix(CONTAINER))
        if exact:
            return Environment(_runnable(exact, image))
        nearest = self._nearest(wanted, mapped)
        if nearest is None:
            raise InvalidRequest(f'The image "{image}" stands for nothing on this yard; {_how_to_map(wanted)}')
        notes = _difference(wanted, nearest)
        if strict and notes:
            raise InvalidRequest(f"{notes[0]} This yard is strict about versions; {_how_to_map(wanted)}")
        return Environment(_runnable(nearest.python, image), notes)

    def environment(self, image: str, *, strict: bool = False) -> Environment:
        """The environment that an image stands for; InvalidRequest also when it stands for a container image."""
        found = self.resolve(image, strict=strict)
        if isinstance(found, ContainerImage):
            raise InvalidRequest(
                f'The image "{image}" stands for the container image {found.name}, which only the container engine '
                f"runs; start the yard with that engine, or {_how_to_map_to_python(Reference.parse(image))}."
            )
        return found

    def container_of(self, image: str) -> str:
        """The container image that an image runs as where it must really run; empty when it stands for a Python.

        One that stands for nothing is taken by its own name, which the tool may know.
        """
        wanted = Reference.parse(image)
        mapped = self._read()
        exact = _exact(wanted, mapped)
        if exact:
            return exact.removeprefix(CONTAINER) if exact.startswith(CONTAINER) else ""
        return "" if self._nearest(wanted, mapped) else image

    def mapped(self) -> dict[str, str]:
        """What was mapped by hand, as the file has it: images, and the interpreter or the container image of each."""
        return self._read()

    def map(self, image: str, python: str) -> None:
        """Let an image, of one version or without a tag of all versions, stand for an interpreter from now on."""
        name, runnable = str(Reference.parse(image)), _runnable(str(Path(python).absolute()), image)
        with self._changed() as mapped:
            mapped[name] = runnable

    def map_container(self, image: str, container: str) -> None:
        """Let an image, of one version or without a tag of all versions, stand for a container image from now on."""
        if not _LOCAL_NAME.fullmatch(container):
            raise InvalidRequest(f'"{container}" is not the name of a container image, such as localhost/mine:1.')
        with self._changed() as mapped:
            mapped[str(Reference.parse(image))] = f"{CONTAINER}{container}"

    def unmap(self, image: str) -> None:
        """Forget what an image was mapped to; NotFound when it was not mapped."""
        name = str(Reference.parse(image))
        with self._changed() as mapped:
            if name not in mapped:
                raise NotFound("mapped image", name)
            del mapped[name]

    def _nearest(self, wanted: Reference, mapped: Mapping[str, str]) -> _Candidate | None:
        """The one whose version agrees in most leading numbers; then the closest number; then the newer."""
        candidates = [*_mapped_versions(wanted, mapped), *self._own(wanted)]
        return min(candidates, key=lambda candidate: _distance(wanted.version, candidate.version), default=None)

    def _own(self, wanted: Reference) -> list[_Candidate]:
        package = FRAMEWORKS.get(wanted.repository)
        if package is None:
            return []
        found = self._version_of(package)
        label = f"{package} {found}" if found else f"no {package}"
        return [_Candidate(Reference("", found or "").version, self._python, label)]

    def _read(self) -> dict[str, str]:
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
        return {str(Reference.parse(image)): python for image, python in table.items()}

    @contextmanager
    def _changed(self) -> Iterator[dict[str, str]]:
        """What the file has, to be changed while nobody else does, and written at the end."""
        with alone_in(self._file.parent):
            mapped = self._read()
            yield mapped
            self._write(mapped)

    def _write(self, mapped: Mapping[str, str]) -> None:
        # A string in JSON is one in TOML too.
        lines = [f"{json.dumps(image)} = {json.dumps(python)}" for image, python in sorted(mapped.items())]
        replace_file(self._file, "\n".join(["[images]", *lines, ""]).encode())


def _exact(wanted: Reference, mapped: Mapping[str, str]) -> str:
    """What was mapped for just this name: with its tag, as the latest where it has none, or for all its versions."""
    names = (str(wanted), "" if wanted.tag else f"{wanted}:{LATEST}", wanted.repository)
    return next((mapped[name] for name in names if name in mapped), "")


def _mapped_versions(wanted: Reference, mapped: Mapping[str, str]) -> list[_Candidate]:
    references = [(Reference.parse(image), python) for image, python in mapped.items()]
    return [
        _Candidate(each.version, python, str(each))
        for each, python in references
        if each.repository == wanted.repository and each.version and not python.startswith(CONTAINER)
    ]


def _distance(wanted: tuple[int, ...], there: tuple[int, ...]) -> tuple[bool, int, int, list[int]]:
    """How far a version is from the one wanted, so that the least is the nearest."""
    pairs = list(zip(wanted, there, strict=False))
    agreeing = next((place for place, (number, other) in enumerate(pairs) if number != other), len(pairs))
    apart = abs(pairs[agreeing][0] - pairs[agreeing][1]) if agreeing < len(pairs) else 0
    return (not there, -agreeing, apart, [-number for number in there])


def _difference(wanted: Reference, found: _Candidate) -> tuple[str, ...]:
    """Nothing to say when all numbers that both name agree: 2.6 is 2.6.1."""
    if not wanted.version or (
        found.version and all(a == b for a, b in zip(wanted.version, found.version, strict=False))
    ):
        return ()
    return (f"The image {wanted} stands for an environment with {found.label}.",)


def _runnable(python: str, image: str) -> str:
    if not os.access(python, os.X_OK) or not Path(python).is_file():
        raise InvalidRequest(
            f'The image "{image}" is mapped to {python}, which is not a program that can be run; map it to another '
            f"with `trainyard images map {Reference.parse(image)} PYTHON`."
        )
    return python


def _how_to_map(wanted: Reference) -> str:
    return (
        f"{_how_to_map_to_python(wanted)}, or a container image, which the container engine runs, with "
        f"`trainyard images map {wanted} --container LOCAL_IMAGE`."
    )


def _how_to_map_to_python(wanted: Reference) -> str:
    return f"give it a Python with `trainyard images map {wanted} /path/to/python`"
