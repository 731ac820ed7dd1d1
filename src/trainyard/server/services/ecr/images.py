"""The images of a repository and their layers: list, describe, look up."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.ecr.contents import StoredImage, images_in
from trainyard.server.services.ecr.repositories import load_repository
from trainyard.wire.fault import Fault

PAGE = 100

_ACTIVE = ("ACTIVE", "ANY")
_LAYER_DIGEST = re.compile(r"[a-zA-Z0-9\-_+.]+:[a-fA-F0-9]+")
_Item = TypeVar("_Item")


def list_images(call: Call, shape: Shape) -> Shape:
    images = _filter_images(images_in(load_repository(call, shape), call.yard.compute), shape)
    ids = sorted((image.digest, tag) for image in images for tag in image.tags)
    page, more = _page(ids, shape, key=" ".join)
    return {"imageIds": [{"imageDigest": digest, "imageTag": tag} for digest, tag in page], **more}


def describe_images(call: Call, shape: Shape) -> Shape:
    repository = load_repository(call, shape)
    images = images_in(repository, call.yard.compute)
    if "imageIds" in shape:
        chosen = {_require_image(images, wanted, repository=repository).digest for wanted in shape["imageIds"]}
        images = [image for image in images if image.digest in chosen]
    page, more = _page(_filter_images(images, shape), shape, key=lambda image: image.digest)
    return {"imageDetails": [_detail(image, repository) for image in page], **more}


def batch_get_image(call: Call, shape: Shape) -> Shape:
    """Tell which images exist. Manifests are left out: no registry stores them."""
    repository = load_repository(call, shape)
    images = images_in(repository, call.yard.compute)
    found = [(wanted, _find(images, wanted)) for wanted in shape["imageIds"]]
    return {
        "images": [_image(wanted, image, repository=repository) for wanted, image in found if image is not None],
        "failures": [_failure(wanted) for wanted, image in found if image is None],
    }


def batch_check_layer_availability(call: Call, shape: Shape) -> Shape:
    """Tell which layers exist, by the digests of their unpacked contents, which is what container tools store."""
    images = images_in(load_repository(call, shape), call.yard.compute)
    known = {layer for image in images if image.local for layer in image.local.layers}
    asked = shape["layerDigests"]
    return {
        "layers": [_layer(digest, is_here=digest in known) for digest in asked if _LAYER_DIGEST.fullmatch(digest)],
        "failures": [_layer_failure(digest) for digest in asked if not _LAYER_DIGEST.fullmatch(digest)],
    }


OPERATIONS: Operations = {
    "ListImages": list_images,
    "DescribeImages": describe_images,
    "BatchGetImage": batch_get_image,
    "BatchCheckLayerAvailability": batch_check_layer_availability,
}


def _page(items: Sequence[_Item], shape: Shape, *, key: Callable[[_Item], str]) -> tuple[Sequence[_Item], Shape]:
    """Return the next page of `items`, which are sorted by key, and the members that lead to the page after it.

    A token is the last key of the previous page.
    """
    after, limit = shape.get("nextToken", ""), shape.get("maxResults", PAGE)
    rest = [item for item in items if key(item) > after]
    return rest[:limit], {"nextToken": key(rest[limit - 1])} if len(rest) > limit else {}


def _filter_images(images: Sequence[StoredImage], shape: Shape) -> Sequence[StoredImage]:
    """Apply the filters of a request. Every image here has a tag, and none is archived."""
    filters = shape.get("filter", {})
    is_shown = filters.get("tagStatus") != "UNTAGGED" and filters.get("imageStatus", "ACTIVE") in _ACTIVE
    return images if is_shown else ()


def _require_image(images: Sequence[StoredImage], wanted: Mapping[str, str], *, repository: Resource) -> StoredImage:
    if not wanted:
        raise InvalidRequest("Every member of imageIds needs an imageTag or an imageDigest.")
    found = _find(images, wanted)
    if found is None:
        raise _image_not_found(wanted, repository)
    return found


def _find(images: Sequence[StoredImage], wanted: Mapping[str, str]) -> StoredImage | None:
    """Find the image that has the digest and the tag asked for, as far as they are given."""
    digest, tag = wanted.get("imageDigest"), wanted.get("imageTag")
    matches = (image for image in images if digest in (None, image.digest) and (tag is None or tag in image.tags))
    return next(matches, None) if wanted else None


def _detail(image: StoredImage, repository: Resource) -> Shape:
    shape = {
        "registryId": repository.key.account,
        "repositoryName": repository.key.name,
        "imageDigest": image.digest,
        "imageTags": list(image.tags),
        "imagePushedAt": image.local.created_at if image.local else repository.created_at,
        "imageStatus": "ACTIVE",
    }
    return shape | ({"imageSizeInBytes": image.local.size_bytes} if image.local else {})


def _image(wanted: Mapping[str, str], image: StoredImage, *, repository: Resource) -> Shape:
    return {
        "registryId": repository.key.account,
        "repositoryName": repository.key.name,
        "imageId": {"imageDigest": image.digest} | {name: wanted[name] for name in ("imageTag",) if name in wanted},
    }


def _failure(wanted: Mapping[str, str]) -> Shape:
    if not wanted:
        reason = "The image identifier must have a tag or a digest."
        return {"imageId": {}, "failureCode": "MissingDigestAndTag", "failureReason": reason}
    return {"imageId": dict(wanted), "failureCode": "ImageNotFound", "failureReason": "Requested image not found"}


def _layer(digest: str, *, is_here: bool) -> Shape:
    return {"layerDigest": digest, "layerAvailability": "AVAILABLE" if is_here else "UNAVAILABLE"}


def _layer_failure(digest: str) -> Shape:
    reason = f"Invalid layer digest '{digest}'"
    return {"layerDigest": digest, "failureCode": "InvalidLayerDigest", "failureReason": reason}


def _image_not_found(wanted: Mapping[str, str], repository: Resource) -> Fault:
    digest, tag = (wanted.get(member, "null") for member in ("imageDigest", "imageTag"))
    message = (
        f"The image with imageId {{imageDigest:'{digest}', imageTag:'{tag}'}} does not exist within the repository "
        f"with name '{repository.key.name}' in the registry with id '{repository.key.account}'"
    )
    return Fault("ImageNotFoundException", message)
