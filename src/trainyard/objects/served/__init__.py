"""Objects that a yard on another machine serves."""

from trainyard.objects.served.store import ServedObjects

__all__ = ["ServedObjects"]
