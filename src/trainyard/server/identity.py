"""Who calls: the users of the yard, their key pairs, and the temporary credentials made from them."""

import base64
import contextlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trainyard.foundation.arns import assumed_role_arn
from trainyard.foundation.errors import AlreadyExists, Conflict, LimitExceeded, NotFound
from trainyard.server import roles
from trainyard.server.records.contract import AccessKey, Draft, Query, Records, ResourceKey, User
from trainyard.wire.refusal import Reason, Refused

DEFAULT_ROLE = "TrainyardRole"
KEYS_PER_USER = 2

_LASTING = "AKIA"
_TEMPORARY = "ASIA"
_INACTIVE = "inactive-access-key"  # a record of this kind, named by its id, makes a key useless
_CACHE_SIZE = 4096
_CACHE_LIFETIME = timedelta(seconds=5)
_EXPIRED_KEYS_KEPT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, speaking as a role in a session."""

    account: str
    user: str
    role: str
    session: str
    is_admin: bool
    access_key_id: str

    @property
    def arn(self) -> str:
        return assumed_role_arn(self.account, self.role, self.session)

    @property
    def scope(self) -> str | None:
        """The account that lists are cut down to; None, for an administrator, is all of them."""
        return None if self.is_admin else self.account


@dataclass(frozen=True, slots=True)
class Credential:
    """A key pair that may be used now: the secret to verify its signatures with, and who it speaks for."""

    secret: str = field(repr=False)
    caller: Caller


class Identities:
    """The users and their keys, over records.

    Safe to share between threads. Looked-up keys are remembered for a few seconds: a change made through this object
    counts at once, one made by another process on the same database within that time.
    """

    def __init__(self, records: Records, *, cache_lifetime: timedelta = _CACHE_LIFETIME) -> None:
        self._records = records
        self._cache_lifetime = cache_lifetime
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._generation = 0
        self._lock = threading.Lock()

    def recall(self, access_key_id: str, session_token: str | None, *, now: datetime) -> Credential | None:
        """What `resolve` gives, or None where that would have to ask the records; never blocks."""
        known = self._remembered(access_key_id, now)
        if known is None or (known.root and self._remembered(known.root, now) is None):
            return None
        return self._admitted(known, session_token, now)

    def resolve(self, access_key_id: str, session_token: str | None, *, now: datetime) -> Credential:
        """The credential of a key, or Refused when it is unknown, expired, or not accompanied by its token."""
        return self._admitted(self._known_key(access_key_id, now), session_token, now)

    def first_start(self, *, now: datetime, name: str = "admin", role: str = DEFAULT_ROLE) -> AccessKey | None:
        """The administrator's key pair; in empty records an account, a role, an administrator and a pair are made.

        May be called at every start. None when there are users but no administrator with a key.
        """
        if not self._records.users():
            # Another yard on the same database may be starting for the first time too; then its administrator is ours.
            with contextlib.suppress(AlreadyExists):
                return self.add_user(name, now=now, role=role, is_admin=True).key
        for user in self._records.users():
            keys = self._usable_keys(user.account) if user.is_admin else ()
            if keys:
                return keys[0]
        return None

    def add_user(
        self, name: str, *, now: datetime, role: str = DEFAULT_ROLE, is_admin: bool = False, has_key: bool = True
    ) -> "NewUser":
        """Add a user with an account and a role of its own; AlreadyExists when the name is taken."""
        account = str(10**11 + secrets.randbelow(9 * 10**11))
        user = User(account=account, name=name, role=role, is_admin=is_admin, created_at=now)
        key = _new_key(account, now) if has_key else None
        # The role comes first, so that no user is ever without one.
        made = roles.create_role(
            self._records,
            ResourceKey(account, roles.KIND, role),
            roles.Role(description="Made for this user by Trainyard.", attached=(roles.SAGEMAKER_FULL_ACCESS,)),
            now=now,
        )
        try:
            self._records.add_user(user, key)
        except AlreadyExists:
            self._records.delete(made, now=now)
            raise
        return NewUser(user, key)

    def user_named(self, name: str) -> User:
        for user in self._records.users():
            if user.name == name:
                return user
        raise NotFound("user", name)

    def remove_user(self, account: str, *, now: datetime) -> None:
        """Remove a user and all its keys at once; what it owns stays for an administrator."""
        if self._is_last_admin(account):
            name = self._records.user(account).name
            raise Conflict("user", name, "is the last administrator with a key and cannot be removed")
        self._records.remove_user(account, now=now)
        self._forget()

    def create_access_key(self, account: str, *, now: datetime) -> AccessKey:
        if len(self._records.access_keys(account)) >= KEYS_PER_USER:
            raise LimitExceeded(f"Cannot exceed quota for AccessKeysPerUser: {KEYS_PER_USER}")
        key = _new_key(account, now)
        self._records.add_access_key(key)
        return key

    def delete_access_key(self, account: str, access_key_id: str, *, now: datetime) -> None:
        """Forget a lasting key pair; NotFound when the account has none of that id."""
        self._require_dispensable(account, access_key_id)
        self._records.remove_access_key(account, access_key_id)
        self._set_usable(account, access_key_id, now=now)
        self._forget()

    def set_key_active(self, account: str, access_key_id: str, *, is_active: bool, now: datetime) -> None:
        """Make a lasting key pair useless until it is made active again; NotFound when the account has none."""
        if is_active:
            self._require_key(account, access_key_id)
            self._set_usable(account, access_key_id, now=now)
        else:
            self._require_dispensable(account, access_key_id)
            with contextlib.suppress(AlreadyExists):
                self._records.create(Draft(_inactive(account, access_key_id), region="", body={}), now=now)
        self._forget()

    def inactive_keys(self, account: str) -> frozenset[str]:
        """The ids of those of an account's key pairs that were made inactive."""
        found = self._records.find(Query(_INACTIVE, account=account)).resources
        return frozenset(resource.key.name for resource in found)

    def assume_role(
        self, account: str, role: str, *, session: str, lifetime: timedelta, now: datetime, within: str | None = None
    ) -> AccessKey:
        """Temporary credentials that speak as a role, never as an administrator.

        `within` is the id of the key that asks. When that one is temporary itself, the new ones die with it: they never
        outlive it, and revoking it revokes them.
        """
        expires_at = now + lifetime
        root = ""
        if within is not None and (parent := self._known_key(within, now)).key.expires_at is not None:
            root = parent.root or parent.key.id
            expires_at = min(expires_at, parent.key.expires_at)
        key = _temporary_key(account, now, expires_at=expires_at, root=root, role=role, session=session)
        self._records.add_access_key(key)
        return key

    def session_token(self, account: str, *, lifetime: timedelta, now: datetime) -> AccessKey:
        """Temporary credentials that speak as the user itself, as an administrator too."""
        key = _temporary_key(account, now, expires_at=now + lifetime)
        self._records.add_access_key(key)
        return key

    def revoke(self, account: str, access_key_id: str) -> None:
        """Make temporary credentials, and all that were made with them, useless at once. May be repeated."""
        with contextlib.suppress(NotFound):
            self._records.remove_access_key(account, access_key_id)
        self._forget()

    def forget_expired(self, *, now: datetime) -> int:
        """Drop what expired a day ago or earlier; until then a user is told that it expired, not that it is unknown."""
        return self._records.forget_expired_keys(now=now - _EXPIRED_KEYS_KEPT)

    def _admitted(self, known: "_Known", session_token: str | None, now: datetime) -> Credential:
        key = known.key
        if key.session_token is None:
            if session_token is not None:
                raise Refused(Reason.INVALID_TOKEN)
            return known.credential
        if session_token is None:
            raise Refused(Reason.UNKNOWN_KEY)
        if not hmac.compare_digest(key.session_token.encode(), session_token.encode("utf-8", "replace")):
            raise Refused(Reason.INVALID_TOKEN)
        if key.expires_at is not None and now >= key.expires_at:
            raise Refused(Reason.EXPIRED_TOKEN)
        if known.root:
            self._known_key(known.root, now)
        return known.credential

    def _known_key(self, access_key_id: str, now: datetime) -> "_Known":
        return self._remembered(access_key_id, now) or self._load(access_key_id, now)

    def _remembered(self, access_key_id: str, now: datetime) -> "_Known | None":
        known = self._known.get(access_key_id)
        # A clock that was set back makes an entry look younger than it is, so the past counts as stale too.
        if known is None or not timedelta(0) <= now - known.loaded_at < self._cache_lifetime:
            return None
        return known

    def _load(self, access_key_id: str, now: datetime) -> "_Known":
        generation = self._generation
        if not (access_key_id.isascii() and access_key_id.isalnum()):
            raise Refused(Reason.UNKNOWN_KEY)
        try:
            key = self._records.access_key(access_key_id)
            user = self._records.user(key.account)
        except NotFound:
            raise Refused(Reason.UNKNOWN_KEY) from None
        if user.removed_at is not None or (key.expires_at is None and key.id in self.inactive_keys(key.account)):
            raise Refused(Reason.UNKNOWN_KEY)
        known = _Known(key, _credential(key, user), loaded_at=now)
        with self._lock:
            if generation == self._generation:  # otherwise what was just read may have been removed since
                self._known[access_key_id] = known
                self._known.move_to_end(access_key_id)
                while len(self._known) > _CACHE_SIZE:
                    self._known.popitem(last=False)
        return known

    def _forget(self) -> None:
        with self._lock:
            self._generation += 1
            self._known.clear()

    def _require_key(self, account: str, access_key_id: str) -> None:
        if access_key_id not in {key.id for key in self._records.access_keys(account)}:
            raise NotFound("access key", access_key_id)

    def _require_dispensable(self, account: str, access_key_id: str) -> None:
        """Refuse to take the last key from the last one who could administer the yard."""
        self._require_key(account, access_key_id)
        others = [key for key in self._usable_keys(account) if key.id != access_key_id]
        if not others and self._is_last_admin(account):
            raise Conflict("access key", access_key_id, "is an administrator's last one; create another first")

    def _usable_keys(self, account: str) -> Sequence[AccessKey]:
        inactive = self.inactive_keys(account)
        return [key for key in self._records.access_keys(account) if key.id not in inactive]

    def _set_usable(self, account: str, access_key_id: str, *, now: datetime) -> None:
        with contextlib.suppress(NotFound):
            self._records.delete(self._records.load(_inactive(account, access_key_id)), now=now)

    def _is_last_admin(self, account: str) -> bool:
        """Whether nobody else could administer the yard: no other administrator has a key."""
        others = [user.account for user in self._records.users() if user.is_admin and user.account != account]
        return self._records.user(account).is_admin and not any(map(self._usable_keys, others))


@dataclass(frozen=True, slots=True)
class NewUser:
    user: User
    key: AccessKey | None


def is_temporary(access_key_id: str) -> bool:
    return access_key_id.startswith(_TEMPORARY)


@dataclass(frozen=True, slots=True)
class _Known:
    key: AccessKey
    credential: Credential
    loaded_at: datetime

    @property
    def root(self) -> str:
        """The temporary key that this one was made with and dies with, or ""."""
        return (self.key.session_token or "").rpartition(".")[0]


def _credential(key: AccessKey, user: User) -> Credential:
    caller = Caller(
        account=user.account,
        user=user.name,
        role=key.role or user.role,
        session=key.session or user.name,
        is_admin=user.is_admin and key.role is None,
        access_key_id=key.id,
    )
    return Credential(secret=key.secret, caller=caller)


def role_key(key_id: str, account: str, role: str, *, session: str, lifetime: timedelta, now: datetime) -> AccessKey:
    """Temporary credentials that speak as a role, to be remembered together with what they are for."""
    return _temporary_key(account, now, expires_at=now + lifetime, role=role, session=session, key_id=key_id)


def new_key_id() -> str:
    """One for temporary credentials."""
    return _new_id(_TEMPORARY)


def _inactive(account: str, access_key_id: str) -> ResourceKey:
    return ResourceKey(account, _INACTIVE, access_key_id)


def _new_key(account: str, now: datetime) -> AccessKey:
    return AccessKey(id=_new_id(_LASTING), secret=_new_secret(), account=account, created_at=now)


def _temporary_key(
    account: str,
    now: datetime,
    *,
    expires_at: datetime,
    root: str = "",
    role: str | None = None,
    session: str | None = None,
    key_id: str = "",
) -> AccessKey:
    token = secrets.token_urlsafe(96)  # has no dot, so the root can be read back
    return AccessKey(
        id=key_id or new_key_id(),
        secret=_new_secret(),
        account=account,
        created_at=now,
        session_token=f"{root}.{token}" if root else token,
        expires_at=expires_at,
        role=role,
        session=session,
    )


def _new_id(prefix: str) -> str:
    return prefix + base64.b32encode(secrets.token_bytes(10)).decode()


def _new_secret() -> str:
    return base64.b64encode(secrets.token_bytes(30)).decode()
