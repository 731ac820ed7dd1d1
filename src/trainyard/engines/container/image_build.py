"""Builds images from Dockerfiles whose base images are in no registry that this machine can reach.

`FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:…` builds if that name is mapped to an image of this
machine: the image gets the name as another tag. The tag stays, so later builds with the tool itself find it too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from trainyard.engines.container.dockerfile import base_images
from trainyard.engines.container.store import ImageStore
from trainyard.engines.images import LATEST, ImageReference, Images
from trainyard.foundation.errors import InvalidRequest

FILES = ("Dockerfile", "Containerfile")

_BUILD_ARGUMENT = "--build-arg"


@dataclass(frozen=True, slots=True)
class BuildRecipe:
    """A Dockerfile, the folder that it copies from, and options for the tool's `build`."""

    folder: Path
    file: Path
    options: Sequence[str] = ()

    @classmethod
    def find(cls, folder: Path, *, file: Path | None = None, options: Sequence[str] = ()) -> "BuildRecipe":
        """Find the Dockerfile of a folder, unless a file is given. Raises InvalidRequest if there is none."""
        candidates = [file] if file else [folder / name for name in FILES]
        found = next((each for each in candidates if each.is_file()), None)
        if found is None:
            raise InvalidRequest(f"There is no file {candidates[0]}; name the Dockerfile with --file.")
        return cls(folder, found, options)


def build_image(name: str, recipe: BuildRecipe, *, images: Images, store: ImageStore) -> str:
    """Build an image, map `name` to it, and return the name by which the tool knows it.

    Raises InvalidRequest if a base image is missing, or if the build fails.
    """
    local = local_name(name)
    text = recipe.file.read_text(encoding="utf-8", errors="replace")
    for base in base_images(text, dict(_build_arguments(recipe.options))):
        _provide_base(base, images=images, store=store)
    store.build(recipe.folder, local, file=recipe.file, options=recipe.options)
    wanted = ImageReference.parse(name)
    images.map_container(f"{wanted.repository}:{wanted.tag or LATEST}", local)
    return local


def local_name(name: str) -> str:
    """Return the full name, with registry and tag, under which both podman and docker store an image."""
    wanted = ImageReference.parse(name)
    return f"{wanted.registry or 'localhost'}/{wanted.repository}:{wanted.tag or LATEST}"


def _build_arguments(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the arguments in `--build-arg NAME=value` and `--build-arg=NAME=value`."""
    assignments = [
        *(value for option, value in pairwise(options) if option == _BUILD_ARGUMENT),
        *(each.removeprefix(f"{_BUILD_ARGUMENT}=") for each in options if each.startswith(f"{_BUILD_ARGUMENT}=")),
    ]
    for each in assignments:
        name, _, value = each.partition("=")
        yield name, value


def _provide_base(base: str, *, images: Images, store: ImageStore) -> None:
    """Make a base image available to the tool under its name. The tool may pull it itself unless it is in an ECR."""
    container = images.container_of(base)
    if container and container != base:
        _rename(container, base, store=store)
    elif base not in store.find([base]) and (not container or ImageReference.parse(base).account):
        raise InvalidRequest(
            f'The base image "{base}" is not on this machine; map it to one that is with '
            f"`trainyard images map {ImageReference.parse(base)} --container LOCAL_IMAGE`, "
            f"or pull it under its own name."
        )


def _rename(container: str, base: str, *, store: ImageStore) -> None:
    if container not in store.find([container]):
        raise InvalidRequest(
            f'The base image "{base}" is mapped to the container image {container}, which is not on this machine; '
            "build or load it, or map the name to another."
        )
    if "@" in base:
        raise InvalidRequest(
            f'The base image "{base}" is given by digest, which no other image can have; give it by tag only.'
        )
    store.tag(container, base)
