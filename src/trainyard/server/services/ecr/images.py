"""The images of a repository, listed, described and asked for."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.ecr.contents import StoredImage, images_in
from trainyard.server.services.ecr.faults import image_not_found
from trainyard.server.services.ecr.repositories import load_repository

PAGE = 100

_ACTIVE = ("ACTIVE", "ANY")
_Item = TypeVar("_Item")


def list_images(call: Call, shape: Shape) -> Shape:
    images = _wanted(images_in(load_repository(call, shape), call.yard.workshop), shape)
    ids = sorted((image.digest, tag) for image in images for tag in image.tags)
    page, more = _page(ids, shape, key=" ".join)
    return {"imageIds": [{"imageDigest": digest, "imageTag": tag} for digest, tag in page], **more}


def describe_images(call: Call, shape: Shape) -> Shape:
    repository = load_repository(call, shape)
    images = images_in(repository, call.yard.workshop)
    if "imageIds" in shape:
        chosen = {_required(images, wanted, repository=repository).digest for wanted in shape["imageIds"]}
        images = [image for image in images if image.digest in chosen]
    page, more = _page(_wanted(images, shape), shape, key=lambda image: image.digest)
    return {"imageDetails": [_detail(image, repository) for image in page], **more}


def batch_get_image(call: Call, shape: Shape) -> Shape:
    """Tells which of the images are there, without their manifests: there is no registry that has any."""
    repository = load_repository(call, shape)
    images = images_in(repository, call.yard.workshop)
    found = [(wanted, _find(images, wanted)) for wanted in shape["imageIds"]]
    return {
        "images": [_image(wanted, image, repository=repository) for wanted, image in found if image is not None],
        "failures": [_failure(wanted) for wanted, image in found if image is None],
    }


OPERATIONS: Operations = {
    "ListImages": list_images,
    "DescribeImages": describe_images,
    "BatchGetImage": batch_get_image,
}


def _page(items: Sequence[_Item], shape: Shape, *, key: Callable[[_Item], str]) -> tuple[Sequence[_Item], Shape]:
    """Of items in the order of their keys those after the token, which is the last key of the page before.

    With them comes what tells of the next page.
    """
    after, most = shape.get("nextToken", ""), shape.get("maxResults", PAGE)
    rest = [item for item in items if key(item) > after]
    return rest[:most], {"nextToken": key(rest[most - 1])} if len(rest) > most else {}


def _wanted(images: Sequence[StoredImage], shape: Shape) -> Sequence[StoredImage]:
    """Every image here has a tag, and none is archived."""
    filters = shape.get("filter", {})
    shows = filters.get("tagStatus") != "UNTAGGED" and filters.get("imageStatus", "ACTIVE") in _ACTIVE
    return images if shows else ()


def _required(images: Sequence[StoredImage], wanted: Mapping[str, str], *, repository: Resource) -> StoredImage:
    if not wanted:
        raise InvalidRequest("Each of imageIds needs an imageTag or an imageDigest.")
    found = _find(images, wanted)
    if found is None:
        raise image_not_found(wanted, repository)
    return found


def _find(images: Sequence[StoredImage], wanted: Mapping[str, str]) -> StoredImage | None:
    """The image that has all that is named of it."""
    digest, tag = wanted.get("imageDigest"), wanted.get("imageTag")
    fitting = (image for image in images if digest in (None, image.digest) and (tag is None or tag in image.tags))
    return next(fitting, None) if wanted else None


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
