"""The containers of model packages: their images and models, which must exist."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.server.registry import ModelContainer
from trainyard.server.services.contract import Call, Shape
from trainyard.wire.fault import Fault


def with_etags(call: Call, specification: Shape) -> Shape:
    """Return an inference specification whose models exist, with their ETags as AWS adds them."""
    return {**specification, "Containers": [_with_etag(call, each) for each in specification["Containers"]]}


def containers_of(request: Mapping[str, Any]) -> tuple[ModelContainer, ...]:
    """Return the containers of all inference specifications of a package."""
    return tuple(
        ModelContainer(each.get("Image", ""), model_uri_of(each), each.get("ModelDataETag", ""))
        for each in _container_shapes(request)
    )


def model_uri_of(container: Shape) -> str:
    """Return the S3 location of a container's model; empty if it has none."""
    source: Shape = container.get("ModelDataSource", {}).get("S3DataSource", {})
    uri: str = container.get("ModelDataUrl") or source.get("S3Uri", "")
    return uri


def _container_shapes(request: Mapping[str, Any]) -> Iterator[Shape]:
    more: Sequence[Shape] = request.get("AdditionalInferenceSpecifications", ())
    for specification in (request.get("InferenceSpecification"), *more):
        yield from (specification or {}).get("Containers", ())


def _with_etag(call: Call, container: Shape) -> Shape:
    uri = model_uri_of(container)
    if "ModelDataUrl" in container and "ModelDataSource" in container:
        raise InvalidRequest("A container has both ModelDataUrl and ModelDataSource; give one of them.")
    if not uri:
        return container
    is_prefix = container.get("ModelDataSource", {}).get("S3DataSource", {}).get("S3DataType") == "S3Prefix"
    where = _parse(call, uri)
    try:
        if not is_prefix:
            return {**container, "ModelDataETag": call.yard.objects.info(where).etag}
        if call.yard.objects.list_objects(where.bucket, prefix=where.key, after="", limit=1).objects:
            return container
    except NotFound as error:
        raise _missing(uri) from error
    raise _missing(uri)


def _parse(call: Call, uri: str) -> Location:
    if not uri.startswith("s3://"):
        raise InvalidRequest(f'"{uri}" is not on S3; name the model by an s3:// location.')
    return parse_s3_uri(uri, call.account)


def _missing(uri: str) -> Fault:
    return Fault("ValidationException", f"Could not find model data at {uri}.")
