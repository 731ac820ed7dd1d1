"""Repositories: names under which the images of one account are found."""

from collections.abc import Mapping
from typing import Any

from trainyard.foundation.arns import arn
from trainyard.foundation.errors import AlreadyExists, InvalidRequest, NotFound
from trainyard.server.records.contract import Draft, Query, Resource, ResourceKey, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.ecr.contents import images_in
from trainyard.server.services.ecr.faults import repository_not_found
from trainyard.server.services.ecr.tag_lists import tags_of
from trainyard.server.services.visible import load_visible
from trainyard.wire.fault import Fault

KIND = "ecr-repository"
PAGE = 100

_SERVED_ENCRYPTION = "AES256"


def create_repository(call: Call, shape: Shape) -> Shape:
    name, account = shape["repositoryName"], call.account
    if shape.get("registryId", account) != account:
        raise InvalidRequest("A repository is made in the registry of the account that calls; leave registryId out.")
    if shape.get("encryptionConfiguration", {}).get("encryptionType", _SERVED_ENCRYPTION) != _SERVED_ENCRYPTION:
        raise InvalidRequest("Images are not encrypted with keys of KMS; leave encryptionConfiguration out.")
    draft = Draft(
        ResourceKey(account, KIND, name),
        call.region,
        _body(shape),
        tags=tags_of(shape),
        arn=arn("ecr", call.region, account, f"repository/{name}"),
    )
    try:
        made = call.yard.records.create(draft, now=call.now)
    except AlreadyExists as error:
        message = f"The repository with name '{name}' already exists in the registry with id '{account}'"
        raise Fault("RepositoryAlreadyExistsException", message) from error
    return {"repository": _shape(made)}


def describe_repositories(call: Call, shape: Shape) -> Shape:
    names = shape.get("repositoryNames")
    if names is None:
        return _page(call, shape)
    if "maxResults" in shape or "nextToken" in shape:
        raise InvalidRequest("maxResults and nextToken cannot be combined with repositoryNames.")
    return {"repositories": [_shape(load_repository(call, {**shape, "repositoryName": name})) for name in names]}


def delete_repository(call: Call, shape: Shape) -> Shape:
    """Forgets the repository. What its images stand for stays, and so do container images of this machine."""
    while True:
        repository = load_repository(call, shape)
        if not shape.get("force") and images_in(repository, call.yard.workshop):
            name, account = repository.key.name, repository.key.account
            raise Fault(
                "RepositoryNotEmptyException",
                f"The repository with name '{name}' in registry with id '{account}' cannot be deleted because it "
                "still contains images",
            )
        if call.yard.records.delete(repository, now=call.now):
            return {"repository": _shape(repository)}


OPERATIONS: Operations = {
    "CreateRepository": create_repository,
    "DescribeRepositories": describe_repositories,
    "DeleteRepository": delete_repository,
}


def load_repository(call: Call, shape: Shape) -> Resource:
    """The repository that a request names, in the caller's registry unless it names another that the caller sees."""
    name, registry = shape["repositoryName"], shape.get("registryId", "")
    try:
        if not registry:
            return load_visible(call, KIND, name)
        if registry != call.account and not call.caller.is_admin:
            raise NotFound(KIND, name)
        return call.yard.records.load(ResourceKey(registry, KIND, name))
    except NotFound as error:
        raise repository_not_found(name, registry or call.account) from error


def repository_arn(repository: Resource) -> str:
    return arn("ecr", repository.region, repository.key.account, f"repository/{repository.key.name}")


def registry_of(account: str, region: str) -> str:
    return f"{account}.dkr.ecr.{region}.amazonaws.com"


def _page(call: Call, shape: Shape) -> Shape:
    registry = shape.get("registryId", "")
    if registry and call.caller.scope not in (None, registry):
        return {"repositories": []}
    page = call.yard.records.find(
        Query(
            KIND,
            account=registry or call.caller.scope,
            sort_by=SortBy.NAME,
            limit=shape.get("maxResults", PAGE),
            after=shape.get("nextToken", ""),
        )
    )
    shown: Shape = {"repositories": [_shape(each) for each in page.resources]}
    return shown | ({"nextToken": page.next_after} if page.next_after else {})


def _body(shape: Shape) -> Mapping[str, Any]:
    return {
        "mutability": shape.get("imageTagMutability", "MUTABLE"),
        "exclusions": shape.get("imageTagMutabilityExclusionFilters"),
        "scans": shape.get("imageScanningConfiguration", {}).get("scanOnPush", False),
    }


def _shape(repository: Resource) -> Shape:
    account, name, region = repository.key.account, repository.key.name, repository.region
    shape = {
        "repositoryArn": repository_arn(repository),
        "registryId": account,
        "repositoryName": name,
        "repositoryUri": f"{registry_of(account, region)}/{name}",
        "createdAt": repository.created_at,
        "imageTagMutability": repository.body["mutability"],
        "imageScanningConfiguration": {"scanOnPush": repository.body["scans"]},
        "encryptionConfiguration": {"encryptionType": _SERVED_ENCRYPTION},
    }
    exclusions = repository.body["exclusions"]
    return shape | ({"imageTagMutabilityExclusionFilters": exclusions} if exclusions else {})
