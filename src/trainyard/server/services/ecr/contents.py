"""The images of a repository: the tags that resolve to something on this machine.

They come from the image mapping, which holds for all accounts, and from the container images of this machine whose
names, as `docker tag` sets them, lie in the account's registry.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainyard.engines.container.store import ImageStore, LocalImage
from trainyard.engines.images import CONTAINER, LATEST, ImageReference
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Compute


@dataclass(frozen=True, slots=True)
class StoredImage:
    """One image of a repository. `local` is None if it maps to a Python environment, or if no engine runs images.

    The digest of a Python environment is that of its path, so that tags of the same environment share a digest.
    """

    digest: str
    tags: tuple[str, ...]
    local: LocalImage | None = None


def images_in(repository: Resource, compute: Compute) -> list[StoredImage]:
    """Return the images of a repository, sorted by digest."""
    targets = {**_container_tags(repository, compute.containers), **_mapped_tags(repository.key.name, compute)}
    local = _local_images(targets, compute.containers)
    tags: dict[str, list[str]] = defaultdict(list)
    found: dict[str, LocalImage | None] = {}
    for tag, target in sorted(targets.items()):
        image = local.get(target)
        if image is None and compute.containers is not None and target.startswith(CONTAINER):
            # The container tool no longer has it.
            continue
        digest = image.digest if image else f"sha256:{hashlib.sha256(target.encode()).hexdigest()}"
        tags[digest].append(tag)
        found[digest] = image
    return [StoredImage(digest, tuple(tags[digest]), found[digest]) for digest in sorted(found)]


def _mapped_tags(name: str, compute: Compute) -> dict[str, str]:
    """Return what the image mapping has under the repository's name, by tag; a name without a tag is the latest."""
    mapped = [(ImageReference.parse(image), target) for image, target in compute.images.mappings().items()]
    return {each.tag or LATEST: target for each, target in mapped if each.repository == name}


def _container_tags(repository: Resource, containers: ImageStore | None) -> dict[str, str]:
    return dict(_container_names(repository, containers)) if containers is not None else {}


def _container_names(repository: Resource, containers: ImageStore) -> Iterator[tuple[str, str]]:
    for known in containers.names():
        named = ImageReference.parse(known)
        if (named.account, named.repository) == (repository.key.account, repository.key.name):
            yield named.tag, f"{CONTAINER}{known}"


def _local_images(targets: Mapping[str, str], containers: ImageStore | None) -> Mapping[str, LocalImage]:
    names = [target.removeprefix(CONTAINER) for target in targets.values() if target.startswith(CONTAINER)]
    if containers is None or not names:
        return {}
    return {f"{CONTAINER}{name}": image for name, image in containers.find(names).items()}
