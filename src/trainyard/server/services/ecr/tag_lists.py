"""Tags as requests of ECR list them."""

from trainyard.foundation.errors import InvalidRequest, LimitExceeded
from trainyard.server.services.contract import Shape
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault


def tags_of(shape: Shape, *, known: dict[str, str] | None = None) -> dict[str, str]:
    """The tags of a request, which could be added to the `known` ones."""
    tags = {tag["Key"]: tag["Value"] for tag in shape.get("tags", ())}
    try:
        require_tags(tags, known=known)
    except LimitExceeded as error:
        raise Fault("TooManyTagsException", error.message) from error
    except InvalidRequest as error:
        raise Fault("InvalidTagParameterException", error.message) from error
    return tags
