"""Environments as the records store them: the packages that jobs had installed, once for each different list."""

import contextlib
from collections.abc import Sequence
from datetime import datetime

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.foundation.jobs.contents import digest_of_packages
from trainyard.server.records.contract import Draft, Records, ResourceKey

KIND = "environment"


def keep_environment(records: Records, account: str, *, region: str, packages: Sequence[str], now: datetime) -> None:
    """Store a list of packages under its digest, unless it is there already."""
    if not packages:
        return
    key = ResourceKey(account, KIND, digest_of_packages(packages))
    try:
        records.load(key)
    except NotFound:
        # Another job may store it at the same time.
        with contextlib.suppress(AlreadyExists):
            records.create(Draft(key, region, {"packages": sorted(packages)}), now=now)


def packages_in(records: Records, account: str, digest: str) -> Sequence[str]:
    """Return the packages with a digest; none if they are unknown."""
    try:
        found: Sequence[str] = records.load(ResourceKey(account, KIND, digest)).body["packages"] if digest else ()
    except NotFound:
        return ()
    return found


def environment_uri(digest: str) -> str:
    """Return the URI that stands for an environment in the lineage."""
    return f"trainyard://environments/{digest}"
