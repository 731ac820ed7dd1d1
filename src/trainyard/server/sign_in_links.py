"""One-time links that sign a browser in.

A link has a random code, and the records keep only its hash, with the account. Redeeming deletes the record, so of
several browsers with one link exactly one is signed in.
"""

import hashlib
import secrets
from datetime import datetime, timedelta

from trainyard.foundation.errors import NotFound
from trainyard.server.records.contract import Draft, Query, Records, ResourceKey

KIND = "sign-in-link"
LIFETIME = timedelta(minutes=15)

_REMOVED_AT_ONCE = 100


def create_link(records: Records, account: str, *, now: datetime) -> str:
    """Return the code of a new link for the user of an account, which works once within LIFETIME."""
    _remove_expired(records, account, now=now)
    code = secrets.token_urlsafe(32)
    records.create(Draft(ResourceKey(account, KIND, _hash(code)), region="", body={}), now=now)
    return code


def sign_in_path(code: str) -> str:
    """Return what follows the address of the yard in a link."""
    return f"/-/sign-in?code={code}"


def redeem_link(records: Records, code: str, *, now: datetime) -> str:
    """Return the account of a link, which is used up then. NotFound if it is unknown, used or expired."""
    for found in records.find(Query(KIND, name=_hash(code), limit=1)).resources:
        if records.delete(found, now=now) and now - found.created_at < LIFETIME:
            return found.key.account
    raise NotFound("sign-in link", "")


def _remove_expired(records: Records, account: str, *, now: datetime) -> None:
    query = Query(KIND, account=account, created_before=now - LIFETIME, limit=_REMOVED_AT_ONCE)
    for expired in records.find(query).resources:
        records.delete(expired, now=now)


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
