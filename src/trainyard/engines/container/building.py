"""Images from Dockerfiles whose base images are in no registry that this machine reaches.

`FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:…` builds where that name is mapped to an image of
this machine: the tool is told that the image has this name too, which also holds for builds without us from then on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from trainyard.engines.container.dockerfile import base_images
from trainyard.engines.container.store import ImageStore
from trainyard.engines.images import LATEST, Images, Reference
from trainyard.foundation.errors import InvalidRequest

FILES = ("Dockerfile", "Containerfile")

_BUILD_ARGUMENT = "--build-arg"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A Dockerfile, the folder that it copies from, and options of the tool's own `build`."""

    folder: Path
    file: Path
    options: Sequence[str] = ()

    @classmethod
    def find(cls, folder: Path, *, file: Path | None = None, options: Sequence[str] = ()) -> "Recipe":
        """That of a folder, unless a file is named; InvalidRequest when there is none."""
        candidates = [file] if file else [folder / name for name in FILES]
        found = next((each for each in candidates if each.is_file()), None)
        if found is None:
            raise InvalidRequest(f"There is no file {candidates[0]}; name the Dockerfile with --file.")
        return cls(folder, found, options)


def build_image(name: str, recipe: Recipe, *, images: Images, store: ImageStore) -> str:
    """Build an image, let `name` stand for it, and return the name that the tool knows it by.

    InvalidRequest when a base image cannot be had, or when the build fails.
    """
    local = local_name(name)
    text = recipe.file.read_text(encoding="utf-8", errors="replace")
    for base in base_images(text, dict(_build_arguments(recipe.options))):
        _provide(base, images=images, store=store)
    store.build(recipe.folder, local, file=recipe.file, options=recipe.options)
    wanted = Reference.parse(name)
    images.map_container(f"{wanted.repository}:{wanted.tag or LATEST}", local)
    return local


def local_name(name: str) -> str:
    """The name under which podman and docker keep the same image: with a registry and with a tag."""
    wanted = Reference.parse(name)
    return f"{wanted.registry or 'localhost'}/{wanted.repository}:{wanted.tag or LATEST}"


def _build_arguments(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What `--build-arg NAME=value` gives, in either of its spellings."""
    spelled = [
        *(value for option, value in pairwise(options) if option == _BUILD_ARGUMENT),
        *(each.removeprefix(f"{_BUILD_ARGUMENT}=") for each in options if each.startswith(f"{_BUILD_ARGUMENT}=")),
    ]
    for each in spelled:
        name, _, value = each.partition("=")
        yield name, value


def _provide(base: str, *, images: Images, store: ImageStore) -> None:
    """Let the tool have a base image under its name; what is of no registry of Amazon's it may pull itself."""
    container = images.container_of(base)
    if container and container != base:
        _rename(container, base, store=store)
    elif base not in store.find([base]) and (not container or Reference.parse(base).account):
        raise InvalidRequest(
            f'The base image "{base}" is not on this machine; give it one that is with '
            f"`trainyard images map {Reference.parse(base)} --container LOCAL_IMAGE`, or pull it under its own name."
        )


def _rename(container: str, base: str, *, store: ImageStore) -> None:
    if container not in store.find([container]):
        raise InvalidRequest(
            f'The base image "{base}" is mapped to the container image {container}, which is not on this machine; '
            "build or load it, or map another."
        )
    if "@" in base:
        raise InvalidRequest(
            f'The base image "{base}" is named by its digest, which no other image has; name it by its tag alone.'
        )
    store.tag(container, base)
