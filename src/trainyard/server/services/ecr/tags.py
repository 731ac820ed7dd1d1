"""Tags of repositories."""

import re

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.ecr.repositories import load_repository, repository_arn
from trainyard.server.services.ecr.tag_lists import tags_of

_ARN = re.compile(r"arn:aws:ecr:[^:]*:(?P<account>[0-9]{12}):repository/(?P<name>.+)")


def tag_resource(call: Call, shape: Shape) -> Shape:
    repository = repository_of_arn(call, shape["resourceArn"])
    tags = tags_of(shape, known=_tags(call, repository))
    call.yard.records.set_tags(repository.key.account, repository_arn(repository), tags)
    return {}


def untag_resource(call: Call, shape: Shape) -> Shape:
    repository = repository_of_arn(call, shape["resourceArn"])
    call.yard.records.remove_tags(repository.key.account, repository_arn(repository), shape["tagKeys"])
    return {}


def list_tags_for_resource(call: Call, shape: Shape) -> Shape:
    tags = _tags(call, repository_of_arn(call, shape["resourceArn"]))
    return {"tags": [{"Key": key, "Value": value} for key, value in sorted(tags.items())]}


OPERATIONS: Operations = {
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
    "ListTagsForResource": list_tags_for_resource,
}


def repository_of_arn(call: Call, resource: str) -> Resource:
    """The repository of an ARN, of whichever region; InvalidRequest when it is no such ARN."""
    named = _ARN.fullmatch(resource)
    if named is None:
        raise InvalidRequest(f'"{resource}" is not the ARN of a repository.')
    return load_repository(call, {"registryId": named["account"], "repositoryName": named["name"]})


def _tags(call: Call, repository: Resource) -> dict[str, str]:
    return dict(call.yard.records.tags(repository.key.account, repository_arn(repository)))
