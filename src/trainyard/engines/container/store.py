"""The container images that the tool of this machine has."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from trainyard.engines.container.tool import find_tool, show
from trainyard.engines.images import LATEST
from trainyard.foundation.errors import InvalidRequest
from trainyard.link.containers import ask

_NAMES = "{{.ID}} {{.Repository}}:{{.Tag}}"
_UNNAMED = "<none>"
# Under which a name without a registry is kept: podman says localhost of what it built, docker leaves both away.
_UNTOLD = ("", "localhost/", "docker.io/library/", "docker.io/")
_FRACTION = re.compile(r"\.([0-9]{1,6})[0-9]*")  # of a second; nanoseconds are more than a datetime holds


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image as the tool has it. `layers` are the digests of their contents, lowest first."""

    id: str
    digest: str
    size_bytes: int
    created_at: datetime
    layers: tuple[str, ...] = ()


class ImageStore:
    """Asks and tells podman or docker. Nothing is kept: each question goes to the tool.

    Every call blocks, for some ten milliseconds at least. InvalidRequest when there is no tool, Unavailable when it
    does not answer.
    """

    def __init__(self, tool: str = "") -> None:
        self._named = tool

    @cached_property
    def tool(self) -> str:
        return find_tool(self._named)

    def names(self) -> Mapping[str, str]:
        """All names that images have here, and the id of each."""
        printed = ask(self.tool, "images", "--no-trunc", "--format", _NAMES)
        pairs = [line.split(" ", 1) for line in printed.splitlines() if " " in line]
        return {name: identifier for identifier, name in pairs if _UNNAMED not in name}

    def find(self, names: Iterable[str]) -> Mapping[str, LocalImage]:
        """The images of these names, as far as there are any."""
        known = self.names()
        ids = {name: known[full] for name in names if (full := _spelled(name, known))}
        images = self._inspect(sorted(set(ids.values())))
        return {name: images[_bare(identifier)] for name, identifier in ids.items() if _bare(identifier) in images}

    def full_name(self, name: str) -> str:
        """The name of an image with the registry and the tag that it has here; InvalidRequest when there is none."""
        full = _spelled(name, self.names())
        if not full:
            tool = Path(self.tool).name
            raise InvalidRequest(
                f'{tool} has no image "{name}"; build, load or pull it first. `{tool} images` lists what it has.'
            )
        return full

    def tag(self, name: str, new: str) -> None:
        """Give an image one name more, which may be that of another one until now."""
        ask(self.tool, "tag", name, new)

    def build(self, folder: Path, name: str, *, file: Path, options: Sequence[str] = ()) -> None:
        """Build the image of a Dockerfile, while a person reads on stderr how; InvalidRequest when it fails."""
        status = show(self.tool, "build", "--tag", name, "--file", str(file), *options, str(folder))
        if status:
            raise InvalidRequest(
                f"{Path(self.tool).name} could not build {name} from {file}; it ended with {status} and said why above."
            )

    def _inspect(self, ids: Sequence[str]) -> dict[str, LocalImage]:
        if not ids:
            return {}
        return {_bare(image.id): image for image in map(_image, json.loads(ask(self.tool, "image", "inspect", *ids)))}


def _spelled(name: str, known: Mapping[str, str]) -> str:
    return next((spelling for spelling in _spellings(name) if spelling in known), "")


def _spellings(name: str) -> Iterator[str]:
    tagged = name if ":" in name.rpartition("/")[2] else f"{name}:{LATEST}"
    for registry in _UNTOLD:
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
        created_at=datetime.fromisoformat(_FRACTION.sub(r".\1", described["Created"])),
        layers=tuple((described.get("RootFS") or {}).get("Layers") or ()),
    )


def _bare(identifier: str) -> str:
    return identifier.removeprefix("sha256:")
