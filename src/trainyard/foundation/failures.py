"""Whose fault a failure is, as its card tells."""

from collections.abc import Mapping

LOST_INSTANCE = "lost instance"  # the agent died before it could tell
INTERNAL_ERROR = "internal error"  # the agent could not do its part

_OF_THE_PLATFORM = frozenset({LOST_INSTANCE, INTERNAL_ERROR})


def is_of_the_platform(card: Mapping[str, object]) -> bool:
    """Whether another try may end otherwise though the program and its data are the same."""
    return card.get("kind") in _OF_THE_PLATFORM
