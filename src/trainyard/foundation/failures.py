"""Whose fault a failure is, according to its failure card."""

from collections.abc import Mapping

# The agent died before it could report.
LOST_INSTANCE = "lost instance"
# The agent itself failed.
INTERNAL_ERROR = "internal error"

_PLATFORM_FAILURES = frozenset({LOST_INSTANCE, INTERNAL_ERROR})


def is_platform_failure(card: Mapping[str, object]) -> bool:
    """Whether another attempt with the same program and data may succeed."""
    return card.get("kind") in _PLATFORM_FAILURES
