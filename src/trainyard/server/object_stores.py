"""Where a yard keeps its objects."""

from trainyard.foundation.home import Home
from trainyard.objects.contract import ObjectStore
from trainyard.server.settings import ServerSettings


def open_objects(home: Home, settings: ServerSettings) -> ObjectStore:
    """The store that the settings name, opened; closed by who asked for it."""
    if not settings.objects:
        from trainyard.objects.filesystem import FilesystemObjects

        return FilesystemObjects(home.objects, reserve_bytes=settings.reserve_bytes)
    from trainyard.objects.remote import RemoteObjects

    return RemoteObjects(
        settings.objects,
        endpoint=settings.objects_endpoint or None,
        region=settings.objects_region,
        access_key_id=settings.objects_access_key_id or None,
        secret_access_key=settings.objects_secret_access_key or None,
        staging=home.objects,
    )
