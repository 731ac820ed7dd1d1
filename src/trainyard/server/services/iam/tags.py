"""Tags as IAM takes and gives them."""

from collections.abc import Mapping

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.iam.paging import page_of
from trainyard.server.services.tag_rules import require_tags


def tags_of(request: Shape, *, known: Mapping[str, str] | None = None, ignores_case: bool = True) -> dict[str, str]:
    """The tags of a request, which together with the known ones are not too many.

    Keys of roles and users are the same in either case, those of policies and instance profiles are not.
    """
    given = request.get("Tags", ())
    keys = {tag["Key"].lower() if ignores_case else tag["Key"] for tag in given}
    if len(keys) < len(given):
        hint = " Please note that Tag keys are case insensitive." if ignores_case else ""
        raise InvalidRequest(f"Duplicate tag keys found.{hint}")
    tags = {tag["Key"]: tag["Value"] for tag in given}
    require_tags(tags, known=known)
    return tags


def add_tags(call: Call, account: str, *, arn: str, request: Shape, ignores_case: bool = True) -> None:
    records = call.yard.records
    tags = tags_of(request, known=records.tags(account, arn), ignores_case=ignores_case)
    records.set_tags(account, arn, tags)


def page_of_tags(tags: Mapping[str, str], request: Shape) -> Shape:
    return page_of("Tags", tag_shapes(tags), request, key=lambda tag: str(tag["Key"]), shape=dict)


def tag_shapes(tags: Mapping[str, str]) -> list[Shape]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
