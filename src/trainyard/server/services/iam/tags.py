"""Tags as IAM takes and gives them."""

from collections.abc import Mapping

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Shape
from trainyard.server.services.tag_rules import require_tags


def tags_of(request: Shape, *, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tags of a request, which together with the known ones are not too many."""
    given = request.get("Tags", ())
    if len({tag["Key"].lower() for tag in given}) < len(given):
        raise InvalidRequest("Duplicate tag keys found. Please note that Tag keys are case insensitive.")
    tags = {tag["Key"]: tag["Value"] for tag in given}
    require_tags(tags, known=known)
    return tags


def tag_shapes(tags: Mapping[str, str]) -> list[Shape]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
