"""Objects of a yard on another machine."""

from trainyard.objects.served.store import ServedObjects

__all__ = ["ServedObjects"]
