"""Objects in one bucket of any S3."""

from trainyard.objects.remote.store import RemoteObjects

__all__ = ["RemoteObjects"]
