"""The store that keeps the yard's objects, as an agent opens it."""

from collections.abc import Callable
from pathlib import Path

from trainyard.link.contract import ObjectsSpec
from trainyard.objects.contract import ObjectStore


def open_store(objects: ObjectsSpec, *, check: Callable[[], None] | None = None) -> ObjectStore:
    """Open the yard's objects; who opens them closes them. Unavailable when a remote S3 cannot be reached.

    `check` is called every moment while that S3 has not answered, and may raise to end it. Only a remote S3 needs more
    than the standard library, so that an agent of any other starts as quickly as before.
    """
    if not objects.url:
        from trainyard.objects.filesystem import FilesystemObjects

        return FilesystemObjects(Path(objects.folder))
    from trainyard.objects.remote.crew import do_attended

    return _open_remote(objects) if check is None else do_attended(lambda: _open_remote(objects), check=check)


def _open_remote(objects: ObjectsSpec) -> ObjectStore:
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
