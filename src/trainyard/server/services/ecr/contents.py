"""What a repository holds: each tag under which jobs find something here.

These are the names that were mapped, for all accounts, and the container images of this machine whose own names lie in
the registry of the account, as `docker tag` gives them.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainyard.engines.container.store import ImageStore, LocalImage
from trainyard.engines.images import CONTAINER, LATEST, Reference
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Workshop


@dataclass(frozen=True, slots=True)
class StoredImage:
    """One image of a repository. `local` is None where it stands for a Python, or where no engine runs images.

    The digest of a Python is that of its path, so that tags of the same one are told to be the same.
    """

    digest: str
    tags: tuple[str, ...]
    local: LocalImage | None = None


def images_in(repository: Resource, workshop: Workshop) -> list[StoredImage]:
    """The images of a repository, by their digests."""
    places = {**_tagged(repository, workshop.containers), **_mapped(repository.key.name, workshop)}
    local = _local(places, workshop.containers)
    tags: dict[str, list[str]] = defaultdict(list)
    found: dict[str, LocalImage | None] = {}
    for tag, place in sorted(places.items()):
        image = local.get(place)
        if image is None and workshop.containers is not None and place.startswith(CONTAINER):
            continue  # the tool has it no more
        digest = image.digest if image else f"sha256:{hashlib.sha256(place.encode()).hexdigest()}"
        tags[digest].append(tag)
        found[digest] = image
    return [StoredImage(digest, tuple(tags[digest]), found[digest]) for digest in sorted(found)]


def _mapped(name: str, workshop: Workshop) -> dict[str, str]:
    """What was mapped under the repository's name, by tags; a name without one is shown as the latest."""
    mapped = [(Reference.parse(image), place) for image, place in workshop.images.mapped().items()]
    return {each.tag or LATEST: place for each, place in mapped if each.repository == name}


def _tagged(repository: Resource, containers: ImageStore | None) -> dict[str, str]:
    return dict(_own_names(repository, containers)) if containers is not None else {}


def _own_names(repository: Resource, containers: ImageStore) -> Iterator[tuple[str, str]]:
    for known in containers.names():
        named = Reference.parse(known)
        if (named.account, named.repository) == (repository.key.account, repository.key.name):
            yield named.tag, f"{CONTAINER}{known}"


def _local(places: Mapping[str, str], containers: ImageStore | None) -> Mapping[str, LocalImage]:
    names = [place.removeprefix(CONTAINER) for place in places.values() if place.startswith(CONTAINER)]
    if containers is None or not names:
        return {}
    return {f"{CONTAINER}{name}": image for name, image in containers.find(names).items()}
