"""What a rule does when it finds something."""

from .action import Actions

__all__ = ["Actions"]
