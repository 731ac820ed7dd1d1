"""Repositories: names under which an account finds its images, their tags, and the login to a registry."""

import base64
import re
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from trainyard.foundation.arns import arn
from trainyard.foundation.errors import AlreadyExists, InvalidRequest, LimitExceeded, NotFound
from trainyard.server.records.contract import Draft, Query, Resource, ResourceKey, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.ecr.contents import images_in
from trainyard.server.services.tag_rules import require_tags
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault

KIND = "ecr-repository"
PAGE = 100

TOKEN_LIFETIME = timedelta(hours=12)

_SERVED_ENCRYPTION = "AES256"
_ARN = re.compile(r"arn:aws:ecr:[^:]*:(?P<account>[0-9]{12}):repository/(?P<name>.+)")


def create_repository(call: Call, shape: Shape) -> Shape:
    name, account = shape["repositoryName"], call.account
    if shape.get("registryId", account) != account:
        raise InvalidRequest("A repository is always created in the caller's registry; leave registryId out.")
    if shape.get("encryptionConfiguration", {}).get("encryptionType", _SERVED_ENCRYPTION) != _SERVED_ENCRYPTION:
        raise InvalidRequest("Trainyard does not encrypt images with KMS keys; leave encryptionConfiguration out.")
    draft = Draft(
        ResourceKey(account, KIND, name),
        call.region,
        _body(shape),
        tags=_tags_of(shape),
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
    """Delete the record of a repository. The mapped environments and container images stay on this machine."""
    while True:
        repository = load_repository(call, shape)
        if not shape.get("force") and images_in(repository, call.yard.compute):
            name, account = repository.key.name, repository.key.account
            raise Fault(
                "RepositoryNotEmptyException",
                f"The repository with name '{name}' in registry with id '{account}' cannot be deleted because it "
                "still contains images",
            )
        if call.yard.records.delete(repository, now=call.now):
            return {"repository": _shape(repository)}


def tag_resource(call: Call, shape: Shape) -> Shape:
    repository = repository_of_arn(call, shape["resourceArn"])
    tags = _tags_of(shape, known=_tags(call, repository))
    call.yard.records.set_tags(repository.key.account, repository_arn(repository), tags)
    return {}


def untag_resource(call: Call, shape: Shape) -> Shape:
    repository = repository_of_arn(call, shape["resourceArn"])
    call.yard.records.remove_tags(repository.key.account, repository_arn(repository), shape["tagKeys"])
    return {}


def list_tags_for_resource(call: Call, shape: Shape) -> Shape:
    tags = _tags(call, repository_of_arn(call, shape["resourceArn"]))
    return {"tags": [{"Key": key, "Value": value} for key, value in sorted(tags.items())]}


def get_authorization_token(call: Call, shape: Shape) -> Shape:
    """Return a token in the format of AWS, so that scripts continue. The yard has no registry that would accept it."""
    return {"authorizationData": [_token(call, account) for account in shape.get("registryIds", [call.account])]}


OPERATIONS: Operations = {
    "GetAuthorizationToken": get_authorization_token,
    "CreateRepository": create_repository,
    "DescribeRepositories": describe_repositories,
    "DeleteRepository": delete_repository,
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
    "ListTagsForResource": list_tags_for_resource,
}


def load_repository(call: Call, shape: Shape) -> Resource:
    """Load the repository that a request names, from the caller's registry or from another that the caller can see."""
    name, registry = shape["repositoryName"], shape.get("registryId", "")
    try:
        if not registry:
            return load_visible(call, KIND, name)
        if registry != call.account and not call.caller.is_admin:
            raise NotFound(KIND, name)
        return call.yard.records.load(ResourceKey(registry, KIND, name))
    except NotFound as error:
        raise _repository_not_found(name, registry or call.account) from error


def repository_of_arn(call: Call, resource: str) -> Resource:
    """Load the repository with this ARN, in any region; InvalidRequest if it is not the ARN of a repository."""
    named = _ARN.fullmatch(resource)
    if named is None:
        raise InvalidRequest(f'"{resource}" is not the ARN of a repository.')
    return load_repository(call, {"registryId": named["account"], "repositoryName": named["name"]})


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


def _tags(call: Call, repository: Resource) -> dict[str, str]:
    return dict(call.yard.records.tags(repository.key.account, repository_arn(repository)))


def _tags_of(shape: Shape, *, known: dict[str, str] | None = None) -> dict[str, str]:
    """Return the tags of a request, checked together with the `known` ones of the repository."""
    tags = {tag["Key"]: tag["Value"] for tag in shape.get("tags", ())}
    try:
        require_tags(tags, known=known)
    except LimitExceeded as error:
        raise Fault("TooManyTagsException", error.message) from error
    except InvalidRequest as error:
        raise Fault("InvalidTagParameterException", error.message) from error
    return tags


def _token(call: Call, account: str) -> Shape:
    return {
        "authorizationToken": base64.b64encode(f"AWS:{secrets.token_urlsafe(48)}".encode()).decode(),
        "expiresAt": call.now + TOKEN_LIFETIME,
        "proxyEndpoint": f"https://{registry_of(account, call.region)}",
    }


def _repository_not_found(name: str, account: str) -> Fault:
    message = f"The repository with name '{name}' does not exist in the registry with id '{account}'"
    return Fault("RepositoryNotFoundException", message)
