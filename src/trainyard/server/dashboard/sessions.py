"""Sessions of browsers: temporary credentials of a user, whose id and token are in a cookie.

The cookie lacks the secret of the credentials, so it can sign no API call. Sessions are records like all credentials:
every server of the yard knows them, they outlive a restart, and removing the user ends them.
"""

import asyncio
import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response

from trainyard.server.identity import Caller, Credential, Identities, InvalidCredential

LIFETIME = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that is signed in."""

    caller: Caller
    key_id: str
    token: str

    @property
    def csrf_token(self) -> str:
        """What a request that changes something must carry, and what a page of another origin cannot read."""
        return hashlib.sha256(b"csrf:" + self.token.encode()).hexdigest()

    def has_csrf_token(self, given: str) -> bool:
        return hmac.compare_digest(self.csrf_token.encode(), given.encode())


async def find_session(identities: Identities, request: Request, *, now: datetime) -> Session | None:
    """Return the session of the cookie; None without a valid one."""
    key_id, _, token = request.cookies.get(_cookie_name(request), "").partition(":")
    if not token:
        return None
    try:
        found = identities.resolve_cached(key_id, token, now=now)
        if found is None:
            found = await asyncio.to_thread(identities.resolve, key_id, token, now=now)
    except InvalidCredential:
        return None
    return Session(found.caller, key_id, token)


async def begin_session(
    identities: Identities, account: str, request: Request, response: Response, *, now: datetime
) -> None:
    """Create a session for the user of an account, and give its cookie to the browser."""
    key = await asyncio.to_thread(identities.session_token, account, lifetime=LIFETIME, now=now)
    response.set_cookie(
        _cookie_name(request),
        f"{key.id}:{key.session_token}",
        max_age=int(LIFETIME.total_seconds()),
        path="/-/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


async def end_session(identities: Identities, session: Session, request: Request, response: Response) -> None:
    """Revoke the session and remove its cookie."""
    await asyncio.to_thread(identities.revoke, session.caller.account, session.key_id)
    response.delete_cookie(_cookie_name(request), path="/-/", httponly=True, samesite="lax")


def check_secret(identities: Identities, key_id: str, secret: str, *, now: datetime) -> Credential | None:
    """Return the credential of a permanent key pair; None if the id is unknown or the secret is another's."""
    try:
        found = identities.resolve(key_id, None, now=now)
    except InvalidCredential:
        return None
    return found if hmac.compare_digest(found.secret.encode(), secret.encode()) else None


def _cookie_name(request: Request) -> str:
    # Browsers send cookies to all ports of a host, and there may be several yards on it.
    return f"trainyard-{request.url.port or request.url.scheme}"
