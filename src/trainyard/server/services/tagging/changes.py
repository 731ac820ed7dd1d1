"""TagResources and UntagResources. Each resource is changed on its own; the answer lists those that failed."""

from collections.abc import Callable, Mapping

from trainyard.foundation.errors import TrainyardError, Unavailable
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.tag_rules import require_tags
from trainyard.server.services.tagging.owners import TagOwner, owner_of


def tag_resources(call: Call, shape: Shape) -> Shape:
    tags: Mapping[str, str] = shape["Tags"]
    require_tags(tags)

    def put(owner: TagOwner) -> None:
        require_tags(tags, known=owner.tags())
        owner.put(tags)

    return _for_each(call, shape["ResourceARNList"], put)


def untag_resources(call: Call, shape: Shape) -> Shape:
    return _for_each(call, shape["ResourceARNList"], lambda owner: owner.remove(shape["TagKeys"]))


OPERATIONS: Operations = {"TagResources": tag_resources, "UntagResources": untag_resources}


def _for_each(call: Call, arns: list[str], change: Callable[[TagOwner], None]) -> Shape:
    failed: dict[str, Shape] = {}
    for arn in arns:
        try:
            change(owner_of(call, arn))
        except Unavailable:
            raise
        except TrainyardError as error:
            failed[arn] = {
                "StatusCode": 400,
                "ErrorCode": "InvalidParameterException",
                "ErrorMessage": error.message,
            }
    return {"FailedResourcesMap": failed}
