"""Which Python an image stands for.

Jobs run without a container engine, so the name of an image only says what a script expects to find. The home folder's
images.toml maps images to interpreters; the well-known framework images that it does not name stand for the yard's own
Python. A version that is not there is replaced by the nearest that is, and the job is told.

    [images]
    "pytorch-training:2.6" = "/opt/envs/torch26/bin/python"
    "my-algorithm" = "/opt/envs/mine/bin/python"
"""

import importlib.metadata
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.files import replace_file

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

_REFERENCE = re.compile(
    r"(?:(?P<registry>[^/]+[.:][^/]*|localhost)/)?(?P<repository>[^:@]*[^:@/])(?::(?P<tag>[^@]+))?(?:@(?P<digest>.+))?"
)
_VERSION = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class Environment:
    """The Python that a job runs on. `notes` are sentences for the user: what was put in place of what."""

    python: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an image, taken apart. The registry does not matter: the same image lies in one per region."""

    repository: str
    tag: str

    @classmethod
    def parse(cls, image: str) -> "Reference":
        match = _REFERENCE.fullmatch(image.strip())
        if match is None:
            raise InvalidRequest(f'"{image}" is not the name of an image.')
        return cls(match["repository"], match["tag"] or "")

    @property
    def version(self) -> tuple[int, ...]:
        """The numbers the tag begins with: (2, 6) for 2.6-cpu-py312; empty when there are none."""
        match = _VERSION.match(self.tag)
        return tuple(map(int, match[0].split("."))) if match else ()

    def __str__(self) -> str:
        return f"{self.repository}:{self.tag}" if self.tag else self.repository


@dataclass(frozen=True, slots=True)
class _Candidate:
    version: tuple[int, ...]
    python: str
    label: str


def installed_version(package: str) -> str | None:
    """The version of a package in the yard's own Python; None when it is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


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

    def environment(self, image: str, *, strict: bool = False) -> Environment:
        """The environment that an image stands for.

        InvalidRequest when it stands for none, when its interpreter is gone, or, if `strict`, when only another
        version than the one it names is there.
        """
        wanted = Reference.parse(image)
        mapped = self._read()
        exact = mapped.get(str(wanted)) or mapped.get(wanted.repository)
        if exact is not None:
            return Environment(_runnable(exact, image))
        nearest = _nearest(wanted, [*_mapped_versions(wanted, mapped), *self._own(wanted)])
        if nearest is None:
            raise InvalidRequest(_nothing(image, wanted))
        notes = _difference(wanted, nearest)
        if strict and notes:
            raise InvalidRequest(f"{notes[0]} This yard is strict about versions; {_how_to_map(wanted)}")
        return Environment(_runnable(nearest.python, image), notes)

    def mapped(self) -> dict[str, str]:
        """What was mapped by hand: images and their interpreters."""
        return self._read()

    def map(self, image: str, python: str) -> None:
        """Let an image, of one version or without a tag of all versions, stand for an interpreter from now on."""
        name = str(Reference.parse(image))
        self._write({**self._read(), name: _runnable(str(Path(python).absolute()), image)})

    def unmap(self, image: str) -> None:
        """Forget what an image was mapped to; NotFound when it was not mapped."""
        mapped, name = self._read(), str(Reference.parse(image))
        if name not in mapped:
            raise NotFound("mapped image", name)
        del mapped[name]
        self._write(mapped)

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
            raise InvalidRequest(f"{self._file}: [images] maps the names of images to paths of interpreters.")
        return {str(Reference.parse(image)): python for image, python in table.items()}

    def _write(self, mapped: Mapping[str, str]) -> None:
        # A string in JSON is one in TOML too.
        lines = [f"{json.dumps(image)} = {json.dumps(python)}" for image, python in sorted(mapped.items())]
        replace_file(self._file, "\n".join(["[images]", *lines, ""]).encode())


def _mapped_versions(wanted: Reference, mapped: Mapping[str, str]) -> list[_Candidate]:
    references = [(Reference.parse(image), python) for image, python in mapped.items()]
    return [
        _Candidate(each.version, python, str(each))
        for each, python in references
        if each.repository == wanted.repository and each.version
    ]


def _nearest(wanted: Reference, candidates: list[_Candidate]) -> _Candidate | None:
    """The one whose version agrees in most leading numbers; then the closest number; then the newer."""
    return min(candidates, key=lambda candidate: _distance(wanted.version, candidate.version), default=None)


def _distance(wanted: tuple[int, ...], there: tuple[int, ...]) -> tuple[bool, list[tuple[int, bool]]]:
    pairs = zip(wanted, there, strict=False)
    return (not there, [(abs(number - other), other < number) for number, other in pairs])


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


def _nothing(image: str, wanted: Reference) -> str:
    return f'The image "{image}" stands for no environment on this yard; {_how_to_map(wanted)}'


def _how_to_map(wanted: Reference) -> str:
    return f"give it a Python with `trainyard images map {wanted} /path/to/python`."
