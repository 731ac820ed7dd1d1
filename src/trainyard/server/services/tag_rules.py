"""The limits on tags that all services share."""

import unicodedata
from collections.abc import Mapping

from trainyard.foundation.errors import InvalidRequest, LimitExceeded

MAX_TAGS = 50
MAX_KEY_LENGTH = 128
MAX_VALUE_LENGTH = 256

# Unicode categories that tags may not contain: control characters and surrogates.
_FORBIDDEN_CATEGORIES = ("Cc", "Cs")


def require_tags(tags: Mapping[str, str], *, known: Mapping[str, str] | None = None) -> None:
    """Refuse tags that cannot be added to the `known` ones: InvalidRequest if one is bad, LimitExceeded if too many."""
    for key, value in tags.items():
        if not 1 <= len(key) <= MAX_KEY_LENGTH:
            raise InvalidRequest(f'Invalid tag key "{key}": it must have 1 to {MAX_KEY_LENGTH} characters.')
        if key.lower().startswith("aws:"):
            raise InvalidRequest(f'Invalid tag key "{key}": the prefix aws: is reserved.')
        if len(value) > MAX_VALUE_LENGTH:
            raise InvalidRequest(
                f'The value of the tag "{key}" has {len(value)} characters; at most {MAX_VALUE_LENGTH} are allowed.'
            )
        if any(unicodedata.category(character) in _FORBIDDEN_CATEGORIES for character in key + value):
            raise InvalidRequest(f"The tag {key!a} contains control characters or an unpaired surrogate.")
    total = len({**(known or {}), **tags})
    if total > MAX_TAGS:
        raise LimitExceeded(f"The resource would have {total} tags; at most {MAX_TAGS} are allowed.")
