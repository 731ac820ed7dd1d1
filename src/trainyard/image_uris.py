"""Image URIs of SageMaker, computed offline and equal to those of the sagemaker SDK."""

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest

__all__ = ["processor", "retrieve"]

_REGISTRIES = Path(__file__).with_name("image_registries.toml")

# The first version that comes with each Python, oldest first. Older images were published under other names.
_PYTHONS: dict[str, tuple[tuple[str, str], ...]] = {
    "pytorch": (
        ("1.2", "py3"),
        ("1.9", "py38"),
        ("1.13", "py39"),
        ("2.0", "py310"),
        ("2.3", "py311"),
        ("2.6", "py312"),
    ),
    "tensorflow": (
        ("1.14", "py3"),
        ("2.2", "py37"),
        ("2.6", "py38"),
        ("2.8", "py39"),
        ("2.12", "py310"),
        ("2.19", "py312"),
    ),
}
# Of each version of transformers: the frameworks it comes with, newest first, each with its Python and its CUDA. AWS
# publishes them for GPUs only.
_TRANSFORMERS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "4.56.2": (("pytorch2.8.0", "py312", "cu129-ubuntu22.04"),),
    "4.55.0": (("pytorch2.7.1", "py312", "cu128-ubuntu22.04"),),
    "4.49.0": (("pytorch2.5.1", "py311", "cu124-ubuntu22.04"),),
    "4.48.0": (("pytorch2.3.0", "py311", "cu121-ubuntu20.04"),),
    "4.46.1": (("pytorch2.3.0", "py311", "cu121-ubuntu20.04"),),
    "4.36.0": (("pytorch2.1.0", "py310", "cu121-ubuntu20.04"),),
    "4.28.1": (("pytorch2.0.0", "py310", "cu118-ubuntu20.04"),),
    "4.26.0": (("pytorch1.13.1", "py39", "cu117-ubuntu20.04"),),
    "4.17.0": (
        ("pytorch1.10.2", "py38", "cu113-ubuntu20.04"),
        ("tensorflow2.6.3", "py38", "cu112-ubuntu20.04"),
    ),
    "4.12.3": (
        ("pytorch1.9.1", "py38", "cu111-ubuntu20.04"),
        ("tensorflow2.5.1", "py37", "cu112-ubuntu18.04"),
    ),
    "4.11.0": (
        ("pytorch1.9.0", "py38", "cu111-ubuntu20.04"),
        ("tensorflow2.5.1", "py37", "cu112-ubuntu18.04"),
    ),
    "4.10.2": (
        ("pytorch1.9.0", "py38", "cu111-ubuntu20.04"),
        ("pytorch1.8.1", "py36", "cu110-ubuntu18.04"),
        ("tensorflow2.5.1", "py37", "cu112-ubuntu18.04"),
        ("tensorflow2.4.1", "py37", "cu110-ubuntu18.04"),
    ),
    "4.6.1": (
        ("pytorch1.8.1", "py36", "cu111-ubuntu18.04"),
        ("pytorch1.7.1", "py36", "cu110-ubuntu18.04"),
        ("pytorch1.6.0", "py36", "cu110-ubuntu18.04"),
        ("tensorflow2.4.1", "py37", "cu110-ubuntu18.04"),
    ),
}
_NEWEST = {"pytorch": "2.8.0", "tensorflow": "2.19.0", "xgboost": "3.0-5", "sklearn": "1.4-2"}

_TABLES_AND_TEXTS = (
    "factorization-machines",
    "ipinsights",
    "kmeans",
    "knn",
    "linear-learner",
    "ntm",
    "object2vec",
    "pca",
    "randomcutforest",
)
_IMAGES = ("blazingtext", "image-classification", "object-detection", "semantic-segmentation", "seq2seq", "xgboost")
_ALGORITHMS: dict[str, str] = {
    **dict.fromkeys(_TABLES_AND_TEXTS, "tables_and_texts"),
    **dict.fromkeys(_IMAGES, "images"),
    "forecasting-deepar": "forecasts",
    "lda": "topics",
}


def retrieve(
    framework: str,
    region: str,
    version: str | None = None,
    py_version: str | None = None,
    instance_type: str | None = None,
    *,
    image_scope: str | None = None,
    base_framework_version: str | None = None,
) -> str:
    """Return the URI of the image of a framework or of a built-in algorithm.

    Args:
        framework: A framework such as `pytorch`, or an algorithm such as `xgboost`.
        region: The region.
        version: Version of the framework or algorithm. Default: the newest known.
        py_version: Python of a framework image. `py3` or nothing selects the Python of the framework version.
        instance_type: Instance type, which decides between the CPU and the GPU image of a framework.
        image_scope: `training` or `inference`, for frameworks. Default: `training`.
        base_framework_version: For `huggingface`, whose version is that of transformers: the framework and its version,
            such as `pytorch2.8.0`. Default: the newest that comes with the version.

    Raises:
        InvalidRequest: There is no such image.
    """
    if framework in _PYTHONS:
        repository = f"{framework}-{image_scope or 'training'}"
        tag = _framework_tag(framework, version or _NEWEST[framework], py_version, instance_type)
        return _uri("frameworks", region, repository, tag=tag)
    if framework == "huggingface":
        return _uri("frameworks", region, **_huggingface(version, base_framework_version, py_version))
    if framework == "debugger":
        return _uri("rules", region, "sagemaker-debugger-rules", tag="latest")
    if framework == "sklearn":
        return _uri("toolkits", region, "sagemaker-scikit-learn", tag=f"{version or _NEWEST[framework]}-cpu-py3")
    if framework == "xgboost" and version not in ("1", "latest"):
        return _uri("toolkits", region, "sagemaker-xgboost", tag=_xgboost_tag(version or _NEWEST[framework]))
    if framework in _ALGORITHMS:
        return _uri(_ALGORITHMS[framework], region, framework, tag=version if framework == "xgboost" else "1")
    known = ", ".join(sorted([*_PYTHONS, *_ALGORITHMS, "sklearn", "debugger", "huggingface"]))
    raise InvalidRequest(f'There is no image for "{framework}"; the known ones are {known}.')


def processor(instance_type: str) -> str:
    """Return `gpu` if instances of a type have GPUs, else `cpu`.

    Args:
        instance_type: The instance type, such as `ml.p3.2xlarge`.

    Raises:
        InvalidRequest: The text is not an instance type.
    """
    if instance_type.startswith("local"):
        return "gpu" if instance_type == "local_gpu" else "cpu"
    family = re.match(r"ml[._]([a-z0-9-]+)", instance_type)
    if family is None:
        raise InvalidRequest(f'"{instance_type}" is not an instance type; write it like ml.m5.large.')
    return "gpu" if family[1][0] in "gp" else "cpu"


def _framework_tag(framework: str, version: str, py_version: str | None, instance_type: str | None) -> str:
    if instance_type is None:
        raise InvalidRequest(f"The image of {framework} depends on the processor; pass an instance_type.")
    default = _default_python(framework, version)
    python = default if py_version in (None, "py3") else py_version
    return f"{version}-{processor(instance_type)}-{python}"


def _huggingface(version: str | None, base: str | None, py_version: str | None) -> dict[str, str]:
    """Return repository and tag of an image with transformers."""
    transformers = _complete(version or next(iter(_TRANSFORMERS)), _TRANSFORMERS)
    known = {framework: rest for framework, *rest in _TRANSFORMERS.get(transformers, ())}
    if not known:
        versions = ", ".join(_TRANSFORMERS)
        raise InvalidRequest(f"There is no image with transformers {version}; the known versions are {versions}.")
    framework = _complete(base or next(iter(known)), known)
    if framework not in known:
        raise InvalidRequest(
            f"There is no image with transformers {transformers} and {base}; that version comes with "
            f"{', '.join(known)}."
        )
    python, system = known[framework]
    name = framework.rstrip("0123456789.")
    # AWS tags its images with short versions too.
    numbers = (base or framework).removeprefix(name)
    tag = f"{numbers}-transformers{version or transformers}-gpu-{py_version or python}-{system}"
    return {"repository": f"huggingface-{name}-training", "tag": tag}


def _complete(version: str, known: Iterable[str]) -> str:
    """Return the first known version that begins with the given one, as 4.56.2 does with 4.56; else the given one."""
    return next((each for each in known if each == version or each.startswith(f"{version}.")), version)


def _default_python(framework: str, version: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+){1,2}", version):
        raise InvalidRequest(f'"{version}" is not a version of {framework}; write it like {_NEWEST[framework]}.')
    fitting = [python for first, python in _PYTHONS[framework] if _numbers(first) <= _numbers(version)]
    if not fitting:
        oldest = _PYTHONS[framework][0][0]
        raise InvalidRequest(f"Images of {framework} are known from version {oldest} on, not {version}.")
    return fitting[-1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _xgboost_tag(version: str) -> str:
    return f"{version}-cpu-py3" if version in ("0.90-1", "0.90-2", "1.0-1") else version


def _uri(table: str, region: str, repository: str, *, tag: str | None) -> str:
    registries = _registries()
    accounts = {**registries["algorithms"], **registries[table]} if table in _ALGORITHMS.values() else registries[table]
    if region not in accounts:
        raise InvalidRequest(
            f'AWS publishes no {repository} image in the region "{region}"; name one of {", ".join(sorted(accounts))}.'
        )
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{accounts[region]}.dkr.ecr.{region}.{domain}/{repository}:{tag}"


@functools.cache
def _registries() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(_REGISTRIES.read_text())
