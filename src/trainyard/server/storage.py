"""The object store of a yard, and how many bytes users may store in it.

The store itself counts and limits by account, in the transaction of each write; this module translates accounts to
users. A remote S3 does not count for a yard: set limits there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.home import Home
from trainyard.objects.contract import CountsStorage, ObjectStore
from trainyard.objects.encryption.keyring import MASTER_KEY
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.jobs.quotas import ANY
from trainyard.server.records.contract import Records
from trainyard.server.settings import ServerSettings


def open_objects(home: Home, settings: ServerSettings) -> ObjectStore:
    """Open the object store that the settings name. The caller closes it."""
    if not settings.objects:
        return open_folder(home, settings)
    from trainyard.objects.remote import RemoteObjects

    return RemoteObjects(
        settings.objects,
        endpoint=settings.objects_endpoint or None,
        region=settings.objects_region,
        access_key_id=settings.objects_access_key_id or None,
        secret_access_key=settings.objects_secret_access_key or None,
        staging=home.objects,
    )


def open_folder(home: Home, settings: ServerSettings) -> FilesystemObjects:
    """Open the store in the home folder. The caller closes it."""
    return FilesystemObjects(
        home.objects,
        reserve_bytes=settings.reserve_bytes,
        keys=home.keys,
        master_key_file=master_key_file(home, settings),
    )


def master_key_file(home: Home, settings: ServerSettings) -> Path:
    """Return the file of the master key; InvalidRequest if the setting is not an absolute path."""
    if not settings.master_key_file:
        return home.keys / MASTER_KEY
    file = Path(settings.master_key_file)
    if not file.is_absolute():
        raise InvalidRequest(f"The setting master_key_file is {file}; give an absolute path.")
    return file


@dataclass(frozen=True, slots=True)
class StorageUse:
    """How much a user stores, and how much it may store.

    ANY stands for all users without a limit of their own. Its use is that of the user among them who stores most.
    """

    user: str
    limit_bytes: int | None
    used_bytes: int


class StorageQuotas:
    """The limits on what users store. Safe to share between threads."""

    def __init__(self, records: Records, objects: ObjectStore) -> None:
        self._records = records
        self._objects = objects

    def list(self, user: str | None = None) -> Sequence[StorageUse]:
        """Return the use of all users that store something or have a limit, or of one user. NotFound if unknown."""
        if not isinstance(self._objects, CountsStorage):
            return []
        users = {each.account: each.name for each in self._records.users()}
        if user is not None:
            users = {self._account(user): user}
        used, limits = self._objects.usage(), self._objects.limits()
        found = [
            StorageUse(name, limits.get(account, limits.get(ANY)), used.get(account, 0))
            for account, name in sorted(users.items(), key=lambda each: each[1])
            if user is not None or account in limits or used.get(account)
        ]
        if ANY not in limits or user is not None:
            return found
        without = [used.get(account, 0) for account in users if account not in limits]
        return [StorageUse(ANY, limits[ANY], max(without, default=0)), *found]

    def put(self, user: str, limit_bytes: int) -> None:
        """Set a limit. NotFound when there is no such user. Existing objects stay."""
        self._require_counting_store().set_limit(self._account(user), limit_bytes)

    def remove(self, user: str) -> None:
        """Remove a limit. NotFound when there is none."""
        objects, account = self._require_counting_store(), self._account(user)
        if account not in objects.limits():
            raise NotFound("storage quota", user)
        objects.set_limit(account, None)

    def _require_counting_store(self) -> CountsStorage:
        if not isinstance(self._objects, CountsStorage):
            raise InvalidRequest(
                "This yard stores its objects in a remote S3, which does not count them for the yard. Set quotas there."
            )
        return self._objects

    def _account(self, name: str) -> str:
        if name == ANY:
            return ANY
        for user in self._records.users():
            if user.name == name:
                return user.account
        raise NotFound("user", name)
