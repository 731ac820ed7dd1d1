"""Actions of a rule whose condition is met."""

from .action import Actions

__all__ = ["Actions"]
