"""How many bytes users may keep in the yard's object store, and how much of its disk is left.

The store itself counts and limits, in the transaction of each write; here users are put in the place of accounts. An S3
elsewhere counts nothing for a yard: limits are set there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.objects.contract import CountsStorage, ObjectStore
from trainyard.server.quotas import ANY
from trainyard.server.records.contract import Records


@dataclass(frozen=True, slots=True)
class StorageUse:
    """What a user keeps and may keep.

    ANY stands for every user without a limit of its own, and has the use of the one of them who keeps most.
    """

    user: str
    limit_bytes: int | None
    used_bytes: int


class StorageQuotas:
    """The limits on what users keep. Safe to share between threads."""

    def __init__(self, records: Records, objects: ObjectStore) -> None:
        self._records = records
        self._objects = objects

    def list(self, user: str | None = None) -> Sequence[StorageUse]:
        """All users that keep something or have a limit; with a user, its own. NotFound when there is no such user."""
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
        """Set a limit; NotFound when there is no such user. What is kept already stays."""
        self._counting().set_limit(self._account(user), limit_bytes)

    def remove(self, user: str) -> None:
        """Take a limit away; NotFound when there is none."""
        objects, account = self._counting(), self._account(user)
        if account not in objects.limits():
            raise NotFound("storage quota", user)
        objects.set_limit(account, None)

    def _counting(self) -> CountsStorage:
        if not isinstance(self._objects, CountsStorage):
            raise InvalidRequest(
                "This yard keeps its objects in another S3, which counts nothing for it. Set quotas there."
            )
        return self._objects

    def _account(self, name: str) -> str:
        if name == ANY:
            return ANY
        for user in self._records.users():
            if user.name == name:
                return user.account
        raise NotFound("user", name)
