"""The store that keeps the yard's objects, as an agent opens it."""

from collections.abc import Callable
from pathlib import Path

from trainyard.link.contract import SERVED, ObjectsSpec
from trainyard.objects.contract import ObjectAccess


def open_store(objects: ObjectsSpec, *, check: Callable[[], None] | None = None) -> ObjectAccess:
    """Open the yard's objects; who opens them closes them. Unavailable when a remote S3 cannot be reached.

    `check` is called every moment while that S3 has not answered, and may raise to end it. Only a remote S3 needs more
    than the standard library, so that an agent of any other starts as quickly as before.
    """
    if not objects.url:
        from trainyard.objects.filesystem import FilesystemObjects

        return FilesystemObjects(Path(objects.folder), reserve_bytes=objects.reserve_bytes)
    if objects.url == SERVED:
        return _open_served(objects)
    from trainyard.objects.remote.crew import do_attended

    return _open_remote(objects) if check is None else do_attended(lambda: _open_remote(objects), check=check)


def _open_remote(objects: ObjectsSpec) -> ObjectAccess:
    from trainyard.objects.remote import RemoteObjects
    from trainyard.objects.remote.patience import Patience

    return RemoteObjects(
        objects.url,
        staging=Path(objects.folder),
        endpoint=objects.endpoint or None,
        region=objects.region or "us-east-1",
        access_key_id=objects.access_key_id or None,
        secret_access_key=objects.secret_access_key or None,
        session_token=objects.session_token or None,
        patience=Patience(),
    )


def _open_served(objects: ObjectsSpec) -> ObjectAccess:
    from trainyard.objects.served import ServedObjects

    return ServedObjects(
        objects.endpoint,
        staging=Path(objects.folder),
        access_key_id=objects.access_key_id,
        secret_access_key=objects.secret_access_key,
        session_token=objects.session_token,
        region=objects.region or "us-east-1",
    )
