"""Opens the yard's object store for an agent."""

from collections.abc import Callable
from pathlib import Path

from trainyard.link.contract import SERVED, ObjectsSpec
from trainyard.objects.contract import ObjectAccess


def open_store(objects: ObjectsSpec, *, check: Callable[[], None] | None = None) -> ObjectAccess:
    """Open the object store; the caller closes it. Unavailable when a remote S3 cannot be reached.

    Calls `check` frequently while waiting for that S3, which may raise. Only a remote S3 imports more than the standard
    library, so that other agents start quickly.
    """
    if not objects.url:
        from trainyard.objects.filesystem import FilesystemObjects

        return FilesystemObjects(
            Path(objects.folder),
            reserve_bytes=objects.reserve_bytes,
            keys=Path(objects.keys) if objects.keys else None,
            master_key_file=Path(objects.master_key_file) if objects.master_key_file else None,
        )
    if objects.url == SERVED:
        return _open_served(objects)
    from trainyard.objects.remote.parallel import run_watched

    return _open_remote(objects) if check is None else run_watched(lambda: _open_remote(objects), check=check)


def _open_remote(objects: ObjectsSpec) -> ObjectAccess:
    from trainyard.objects.remote import RemoteObjects
    from trainyard.objects.remote.failures import RetryPolicy

    return RemoteObjects(
        objects.url,
        staging=Path(objects.folder),
        endpoint=objects.endpoint or None,
        region=objects.region or "us-east-1",
        access_key_id=objects.access_key_id or None,
        secret_access_key=objects.secret_access_key or None,
        session_token=objects.session_token or None,
        retry_policy=RetryPolicy(),
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
