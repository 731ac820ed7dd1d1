"""The container images that podman or docker has on this machine."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from trainyard.engines.container.tool import find_tool, run_visibly
from trainyard.engines.images import LATEST
from trainyard.foundation.errors import InvalidRequest
from trainyard.link.containers import run_tool

_NAMES = "{{.ID}} {{.Repository}}:{{.Tag}}"
_UNNAMED = "<none>"
# The prefixes under which a tool may store a name without a registry. podman adds localhost/ to what it builds.
_IMPLIED_REGISTRIES = ("", "localhost/", "docker.io/library/", "docker.io/")
# The tools print nanoseconds, but a datetime holds microseconds.
_FRACTION_OF_SECOND = re.compile(r"\.([0-9]{1,6})[0-9]*")


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image of the tool. `layers` are the digests of their contents, lowest first."""

    id: str
    digest: str
    size_bytes: int
    created_at: datetime
    layers: tuple[str, ...] = ()


class ImageStore:
    """Calls podman or docker. Nothing is cached.

    Every call blocks, for at least some ten milliseconds. Raises InvalidRequest if there is no tool, Unavailable if it
    does not answer.
    """

    def __init__(self, tool: str = "") -> None:
        self._named = tool

    @cached_property
    def tool(self) -> str:
        return find_tool(self._named)

    def names(self) -> Mapping[str, str]:
        """Return all names of images, and the id of each."""
        printed = run_tool(self.tool, "images", "--no-trunc", "--format", _NAMES)
        pairs = [line.split(" ", 1) for line in printed.splitlines() if " " in line]
        return {name: identifier for identifier, name in pairs if _UNNAMED not in name}

    def find(self, names: Iterable[str]) -> Mapping[str, LocalImage]:
        """Return the images of those names that exist."""
        known = self.names()
        ids = {name: known[full] for name in names if (full := _known_spelling(name, known))}
        images = self._inspect(sorted(set(ids.values())))
        return {name: images[_bare(identifier)] for name, identifier in ids.items() if _bare(identifier) in images}

    def full_name(self, name: str) -> str:
        """Return the name of an image with its registry and tag. Raises InvalidRequest if there is no such image."""
        full = _known_spelling(name, self.names())
        if not full:
            tool = Path(self.tool).name
            raise InvalidRequest(
                f'{tool} has no image "{name}"; build, load or pull it first. `{tool} images` lists what it has.'
            )
        return full

    def tag(self, name: str, new: str) -> None:
        """Give an image another name. If another image had it, that one loses it."""
        run_tool(self.tool, "tag", name, new)

    def build(self, folder: Path, name: str, *, file: Path, options: Sequence[str] = ()) -> None:
        """Build the image of a Dockerfile, with progress on stderr. Raises InvalidRequest if the build fails."""
        status = run_visibly(self.tool, "build", "--tag", name, "--file", str(file), *options, str(folder))
        if status:
            raise InvalidRequest(
                f"{Path(self.tool).name} could not build {name} from {file}; it exited with {status}. "
                "See its output above."
            )

    def _inspect(self, ids: Sequence[str]) -> dict[str, LocalImage]:
        if not ids:
            return {}
        return {
            _bare(image.id): image for image in map(_image, json.loads(run_tool(self.tool, "image", "inspect", *ids)))
        }


def _known_spelling(name: str, known: Mapping[str, str]) -> str:
    return next((spelling for spelling in _spellings(name) if spelling in known), "")


def _spellings(name: str) -> Iterator[str]:
    tagged = name if ":" in name.rpartition("/")[2] else f"{name}:{LATEST}"
    for registry in _IMPLIED_REGISTRIES:
        yield f"{registry}{tagged}"
        if registry and tagged.startswith(registry):
            yield tagged.removeprefix(registry)


def _image(described: Mapping[str, Any]) -> LocalImage:
    identifier = f"sha256:{_bare(described['Id'])}"
    remote = [digest.rpartition("@")[2] for digest in described.get("RepoDigests") or ()]
    return LocalImage(
        id=identifier,
        digest=described.get("Digest") or (remote[0] if remote else identifier),
        size_bytes=int(described["Size"]),
        created_at=datetime.fromisoformat(_FRACTION_OF_SECOND.sub(r".\1", described["Created"])),
        layers=tuple((described.get("RootFS") or {}).get("Layers") or ()),
    )


def _bare(identifier: str) -> str:
    return identifier.removeprefix("sha256:")
