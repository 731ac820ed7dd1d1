"""Identities of callers: the users of the yard, their key pairs, and temporary credentials."""

import base64
import contextlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto

from trainyard.foundation.arns import assumed_role_arn
from trainyard.foundation.errors import AlreadyExists, Conflict, LimitExceeded, NotFound, TrainyardError
from trainyard.server import roles
from trainyard.server.records.contract import AccessKey, Draft, Query, Records, ResourceKey, User

DEFAULT_ROLE = "TrainyardRole"
KEYS_PER_USER = 2

_PERMANENT = "AKIA"
_TEMPORARY = "ASIA"
# A record of this kind, named after the id of a key, makes that key inactive.
_INACTIVE = "inactive-access-key"
_CACHE_SIZE = 4096
_CACHE_LIFETIME = timedelta(seconds=5)
_EXPIRED_KEYS_KEPT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Caller:
    """A user that acts as a role in a session."""

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
        """The account that lists are limited to. None, for an administrator, means all accounts."""
        return None if self.is_admin else self.account


class CredentialProblem(Enum):
    """Why a credential is invalid."""

    UNKNOWN_KEY = auto()
    INVALID_TOKEN = auto()
    EXPIRED_TOKEN = auto()


class InvalidCredential(TrainyardError):
    """An access key is unknown, or its session token is wrong or has expired. `server/app.py` words it for AWS."""

    def __init__(self, problem: CredentialProblem) -> None:
        super().__init__(f"The credential is invalid: {problem.name.lower().replace('_', ' ')}.")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Credential:
    """A valid key pair: the secret that verifies its signatures, and its caller."""

    secret: str = field(repr=False)
    caller: Caller


class Identities:
    """The users and their keys, on top of the records.

    Safe to share between threads. Keys are cached for a few seconds. A change through this object takes effect at once,
    a change by another process on the same database within that time.
    """

    def __init__(self, records: Records, *, cache_lifetime: timedelta = _CACHE_LIFETIME) -> None:
        self._records = records
        self._cache_lifetime = cache_lifetime
        self._cache: OrderedDict[str, _CachedKey] = OrderedDict()
        self._generation = 0
        self._lock = threading.Lock()

    def resolve_cached(self, access_key_id: str, session_token: str | None, *, now: datetime) -> Credential | None:
        """Return what `resolve` returns, or None if that would have to read the records. Never blocks."""
        known = self._find_cached(access_key_id, now)
        if known is None or (known.root and self._find_cached(known.root, now) is None):
            return None
        return self._check_token(known, session_token, now)

    def resolve(self, access_key_id: str, session_token: str | None, *, now: datetime) -> Credential:
        """Return the credential of a key. InvalidCredential when it is unknown or expired, or lacks its token."""
        return self._check_token(self._find_key(access_key_id, now), session_token, now)

    def ensure_admin(self, *, now: datetime, name: str = "admin", role: str = DEFAULT_ROLE) -> AccessKey | None:
        """Return an administrator's key pair. In empty records, create an account, a role, an administrator and a key.

        May be called at every start. None when there are users but no administrator with a key.
        """
        if not self._records.users():
            # Another yard on the same database may start for the first time too. Then use its administrator.
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
        """Add a user with its own account and role. AlreadyExists when the name is taken."""
        account = str(10**11 + secrets.randbelow(9 * 10**11))
        user = User(account=account, name=name, role=role, is_admin=is_admin, created_at=now)
        key = _new_key(account, now) if has_key else None
        # Create the role first, so that no user is ever without one.
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
        """Remove a user and all its keys. Its resources stay, for an administrator."""
        if self._is_last_admin(account):
            name = self._records.user(account).name
            raise Conflict("user", name, "is the last administrator with a key and cannot be removed")
        self._records.remove_user(account, now=now)
        self._clear_cache()

    def create_access_key(self, account: str, *, now: datetime) -> AccessKey:
        if len(self._records.access_keys(account)) >= KEYS_PER_USER:
            raise LimitExceeded(f"Cannot exceed quota for AccessKeysPerUser: {KEYS_PER_USER}")
        key = _new_key(account, now)
        self._records.add_access_key(key)
        return key

    def delete_access_key(self, account: str, access_key_id: str, *, now: datetime) -> None:
        """Delete a permanent key pair. NotFound when the account has none with this id."""
        self._require_dispensable(account, access_key_id)
        self._records.remove_access_key(account, access_key_id)
        self._reactivate(account, access_key_id, now=now)
        self._clear_cache()

    def set_key_active(self, account: str, access_key_id: str, *, is_active: bool, now: datetime) -> None:
        """Activate or deactivate a permanent key pair. NotFound when the account has none with this id."""
        if is_active:
            self._require_key(account, access_key_id)
            self._reactivate(account, access_key_id, now=now)
        else:
            self._require_dispensable(account, access_key_id)
            with contextlib.suppress(AlreadyExists):
                self._records.create(Draft(_inactive_key(account, access_key_id), region="", body={}), now=now)
        self._clear_cache()

    def inactive_keys(self, account: str) -> frozenset[str]:
        """Return the ids of an account's inactive key pairs."""
        found = self._records.find(Query(_INACTIVE, account=account)).resources
        return frozenset(resource.key.name for resource in found)

    def assume_role(
        self, account: str, role: str, *, session: str, lifetime: timedelta, now: datetime, within: str | None = None
    ) -> AccessKey:
        """Create temporary credentials that act as a role, never as an administrator.

        `within` is the id of the calling key. If that key is temporary itself, the new credentials depend on it: they
        expire with it, and revoking it revokes them.
        """
        expires_at = now + lifetime
        root = ""
        if within is not None and (parent := self._find_key(within, now)).key.expires_at is not None:
            root = parent.root or parent.key.id
            expires_at = min(expires_at, parent.key.expires_at)
        key = _temporary_key(account, now, expires_at=expires_at, root=root, role=role, session=session)
        self._records.add_access_key(key)
        return key

    def session_token(self, account: str, *, lifetime: timedelta, now: datetime) -> AccessKey:
        """Create temporary credentials that act as the user itself, even as an administrator."""
        key = _temporary_key(account, now, expires_at=now + lifetime)
        self._records.add_access_key(key)
        return key

    def revoke(self, account: str, access_key_id: str) -> None:
        """Revoke temporary credentials, and all that were created with them, at once. May be repeated."""
        with contextlib.suppress(NotFound):
            self._records.remove_access_key(account, access_key_id)
        self._clear_cache()

    def forget_expired(self, *, now: datetime) -> int:
        """Delete keys that expired at least a day ago. Until then, callers read that the key expired."""
        return self._records.forget_expired_keys(now=now - _EXPIRED_KEYS_KEPT)

    def _check_token(self, known: "_CachedKey", session_token: str | None, now: datetime) -> Credential:
        key = known.key
        if key.session_token is None:
            if session_token is not None:
                raise InvalidCredential(CredentialProblem.INVALID_TOKEN)
            return known.credential
        if session_token is None:
            raise InvalidCredential(CredentialProblem.UNKNOWN_KEY)
        if not hmac.compare_digest(key.session_token.encode(), session_token.encode("utf-8", "replace")):
            raise InvalidCredential(CredentialProblem.INVALID_TOKEN)
        if key.expires_at is not None and now >= key.expires_at:
            raise InvalidCredential(CredentialProblem.EXPIRED_TOKEN)
        if known.root:
            self._find_key(known.root, now)
        return known.credential

    def _find_key(self, access_key_id: str, now: datetime) -> "_CachedKey":
        return self._find_cached(access_key_id, now) or self._load(access_key_id, now)

    def _find_cached(self, access_key_id: str, now: datetime) -> "_CachedKey | None":
        known = self._cache.get(access_key_id)
        # After the clock was set back, an entry looks younger than it is, so an entry from the future is stale too.
        if known is None or not timedelta(0) <= now - known.loaded_at < self._cache_lifetime:
            return None
        return known

    def _load(self, access_key_id: str, now: datetime) -> "_CachedKey":
        generation = self._generation
        if not (access_key_id.isascii() and access_key_id.isalnum()):
            raise InvalidCredential(CredentialProblem.UNKNOWN_KEY)
        try:
            key = self._records.access_key(access_key_id)
            user = self._records.user(key.account)
        except NotFound:
            raise InvalidCredential(CredentialProblem.UNKNOWN_KEY) from None
        if user.removed_at is not None or (key.expires_at is None and key.id in self.inactive_keys(key.account)):
            raise InvalidCredential(CredentialProblem.UNKNOWN_KEY)
        known = _CachedKey(key, _credential(key, user), loaded_at=now)
        with self._lock:
            # Otherwise the key may have been removed since it was read.
            if generation == self._generation:
                self._cache[access_key_id] = known
                self._cache.move_to_end(access_key_id)
                while len(self._cache) > _CACHE_SIZE:
                    self._cache.popitem(last=False)
        return known

    def _clear_cache(self) -> None:
        with self._lock:
            self._generation += 1
            self._cache.clear()

    def _require_key(self, account: str, access_key_id: str) -> None:
        if access_key_id not in {key.id for key in self._records.access_keys(account)}:
            raise NotFound("access key", access_key_id)

    def _require_dispensable(self, account: str, access_key_id: str) -> None:
        """Raise Conflict if this is the last key of the last administrator."""
        self._require_key(account, access_key_id)
        others = [key for key in self._usable_keys(account) if key.id != access_key_id]
        if not others and self._is_last_admin(account):
            raise Conflict(
                "access key", access_key_id, "is the last key of the last administrator; create another first"
            )

    def _usable_keys(self, account: str) -> Sequence[AccessKey]:
        inactive = self.inactive_keys(account)
        return [key for key in self._records.access_keys(account) if key.id not in inactive]

    def _reactivate(self, account: str, access_key_id: str, *, now: datetime) -> None:
        with contextlib.suppress(NotFound):
            self._records.delete(self._records.load(_inactive_key(account, access_key_id)), now=now)

    def _is_last_admin(self, account: str) -> bool:
        """Whether no other administrator has a key."""
        others = [user.account for user in self._records.users() if user.is_admin and user.account != account]
        return self._records.user(account).is_admin and not any(map(self._usable_keys, others))


@dataclass(frozen=True, slots=True)
class NewUser:
    """A user that was just added, and its first key pair if it has one."""

    user: User
    key: AccessKey | None


def is_temporary(access_key_id: str) -> bool:
    return access_key_id.startswith(_TEMPORARY)


@dataclass(frozen=True, slots=True)
class _CachedKey:
    key: AccessKey
    credential: Credential
    loaded_at: datetime

    @property
    def root(self) -> str:
        """The id of the temporary key that this one depends on, or ""."""
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
    """Return new temporary credentials that act as a role. The caller stores them with the resource that uses them."""
    return _temporary_key(account, now, expires_at=now + lifetime, role=role, session=session, key_id=key_id)


def new_key_id() -> str:
    """Return a new id for temporary credentials."""
    return _new_id(_TEMPORARY)


def _inactive_key(account: str, access_key_id: str) -> ResourceKey:
    return ResourceKey(account, _INACTIVE, access_key_id)


def _new_key(account: str, now: datetime) -> AccessKey:
    return AccessKey(id=_new_id(_PERMANENT), secret=_new_secret(), account=account, created_at=now)


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
    # It contains no dot, so the root can be parsed again.
    token = secrets.token_urlsafe(96)
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
