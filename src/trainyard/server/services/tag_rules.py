"""What tags a resource may have, the same for every service."""

import unicodedata
from collections.abc import Mapping

from trainyard.foundation.errors import InvalidRequest, LimitExceeded

MAX_TAGS = 50
MAX_KEY_LENGTH = 128
MAX_VALUE_LENGTH = 256

_UNWRITABLE = ("Cc", "Cs")


def require_tags(tags: Mapping[str, str], *, known: Mapping[str, str] | None = None) -> None:
    """Refuse tags that could not be added to the `known` ones: InvalidRequest for one, LimitExceeded for too many."""
    for key, value in tags.items():
        if not 1 <= len(key) <= MAX_KEY_LENGTH:
            raise InvalidRequest(f'"{key}" cannot be a tag key; it needs 1 to {MAX_KEY_LENGTH} characters.')
        if key.lower().startswith("aws:"):
            raise InvalidRequest(f'"{key}" cannot be a tag key; those that begin with aws: are reserved.')
        if len(value) > MAX_VALUE_LENGTH:
            raise InvalidRequest(f'The value of the tag "{key}" is longer than {MAX_VALUE_LENGTH} characters.')
        if any(unicodedata.category(character) in _UNWRITABLE for character in key + value):
            raise InvalidRequest(f"The tag {key!a} holds control characters or half a surrogate pair.")
    total = len({**(known or {}), **tags})
    if total > MAX_TAGS:
        raise LimitExceeded(f"The resource would have {total} tags; at most {MAX_TAGS} are allowed.")
