"""Service models: botocore's without their documentation, and our own in the same format.

Documentation is most of a model, so the stripped models are cached, one JSON file per service and botocore version.
botocore is imported on first use: that takes over 100 ms.
"""

import gzip
import json
import logging
import os
import tempfile
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from trainyard.foundation.errors import NotFound

if TYPE_CHECKING:
    from botocore.model import ServiceModel

log = logging.getLogger(__name__)

# Laid out like botocore's own data, so that AWS_DATA_PATH can point any botocore client at it.
OWN_MODELS = Path(__file__).parent / "services"

_FORMAT = 1
_PROSE = frozenset({"documentation", "documentationUrl", "deprecatedMessage", "externalDocumentation", "examples"})


class Models:
    """Service models by botocore's service name, each loaded once, on first use.

    Safe to share between threads. A broken cache, from a torn file to a read-only folder, only costs the time to build
    the model again. A process that does not own the cache passes `writes=False` and only reads it.
    """

    def __init__(self, cache: Path | None = None, *, writes: bool = True) -> None:
        self._cache, self._writes = cache, writes
        self._lock = Lock()
        self._loaded: dict[str, ServiceModel] = {}

    def service(self, name: str) -> "ServiceModel":
        """Return the newest model of a service; NotFound if neither we nor botocore have one."""
        model = self._loaded.get(name)
        if model is not None:
            return model
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = self._load(name)
            return self._loaded[name]

    def _load(self, name: str) -> "ServiceModel":
        import botocore
        from botocore.model import ServiceModel

        # Ours are small and change with every version of ours, so they are not cached.
        if (OWN_MODELS / name).is_dir():
            return ServiceModel(_without_prose(_read_packaged(OWN_MODELS, name)), name)
        version: str = botocore.__version__
        description = self._read_cached(name, version)
        if description is None:
            description = _without_prose(_read_packaged(Path(botocore.__file__).parent / "data", name))
            self._write_cached(name, version, description=description)
        return ServiceModel(description, name)

    def _read_cached(self, name: str, version: str) -> dict[str, Any] | None:
        if self._cache is None:
            return None
        try:
            cached = json.loads(_cache_file(self._cache, name, version=version).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(cached, dict) or cached.get("stamp") != _stamp(name, version):
            return None
        model = cached.get("model")
        return model if isinstance(model, dict) and {"metadata", "operations", "shapes"} <= model.keys() else None

    def _write_cached(self, name: str, version: str, *, description: dict[str, Any]) -> None:
        if self._cache is None or not self._writes:
            return
        target = _cache_file(self._cache, name, version=version)
        content = json.dumps({"stamp": _stamp(name, version), "model": description}, separators=(",", ":"))
        try:
            self._cache.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._cache, prefix=f".{name}-", delete=False) as file:
                try:
                    file.write(content)
                    file.flush()
                    os.replace(file.name, target)  # noqa: PTH105 - Path would only wrap it
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except OSError as error:
            log.warning("service model not cached", extra={"service": name, "reason": str(error)})


def _cache_file(folder: Path, name: str, *, version: str) -> Path:
    return folder / f"{name}-{version}.json"


def _stamp(name: str, version: str) -> list[Any]:
    return [_FORMAT, name, version]


def _read_packaged(data: Path, name: str) -> dict[str, Any]:
    """Read AWS's own model, without botocore's extras, which describe its Python API rather than the wire."""
    versions = sorted((data / name).glob("[0-9]*")) if (data / name).is_dir() else []
    if not versions:
        raise NotFound("service model", name)
    packed = versions[-1] / "service-2.json.gz"
    with gzip.open(packed) if packed.exists() else (versions[-1] / "service-2.json").open("rb") as file:
        description: dict[str, Any] = json.load(file)
    return description


def _without_prose(description: dict[str, Any]) -> dict[str, Any]:
    result = _drop_prose(description)
    result["operations"] = {name: _drop_prose(operation) for name, operation in description["operations"].items()}
    result["shapes"] = {name: _drop_shape_prose(shape) for name, shape in description["shapes"].items()}
    return result


def _drop_shape_prose(shape: dict[str, Any]) -> dict[str, Any]:
    result = _drop_prose(shape)
    if "members" in shape:
        # Strip only inside the references: a member itself may be named "documentation".
        result["members"] = {name: _drop_prose(reference) for name, reference in shape["members"].items()}
    for reference in ("member", "key", "value"):
        if reference in shape:
            result[reference] = _drop_prose(shape[reference])
    return result


def _drop_prose(node: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key not in _PROSE}
