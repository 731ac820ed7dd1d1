"""Garbage collection: finds, measures and removes what nothing in a home uses any more, even while a yard runs."""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from trainyard.foundation.clock import to_micros
from trainyard.foundation.confined import remove_tree, tree_size
from trainyard.foundation.errors import Corrupt
from trainyard.foundation.home import Home
from trainyard.link import containers, warm
from trainyard.link.contract import ENVIRONMENTS_BYTES
from trainyard.link.environments import EnvironmentCache
from trainyard.link.package_downloads import PackageDownloads
from trainyard.objects.datafiles import DataFiles
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.objects.index import Index
from trainyard.objects.index_data import DataIndex, Trash
from trainyard.server.log_streams import find_orphans
from trainyard.server.records.contract import Records

_REMOVE_TIMEOUT_S = 60.0
# A file this old is no longer being written.
_MIN_STRAY_AGE_S = 3600
# Environments that no job has used for this time are removed.
_UNUSED_ENVIRONMENT_AGE = timedelta(days=30)
# For this time, a user reads that a key has expired, and not that it is unknown.
_EXPIRED_KEY_AGE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Garbage:
    """One kind of garbage: how many items, and their size in bytes."""

    what: str
    count: int
    bytes: int


def sweep(
    home: Home,
    records: Records,
    *,
    has_local_objects: bool,
    now: datetime,
    dry_run: bool,
    environments_limit_bytes: int = ENVIRONMENTS_BYTES,
) -> list[Garbage]:
    """Remove every kind of garbage, or only measure it with `dry_run`."""
    found = _sweep_objects(home.objects, dry_run=dry_run) if has_local_objects else []
    found.append(_sweep_folders("deleted log streams", home.logs, records=records, dry_run=dry_run))
    found.append(_sweep_folders("deleted metrics", home.metrics, records=records, dry_run=dry_run))
    found.append(_sweep_containers(home.jobs, dry_run=dry_run))
    found.append(_sweep_folders("deleted jobs", home.jobs, records=records, dry_run=dry_run))
    found.append(_sweep_keys(records, now=now, dry_run=dry_run))
    found.append(_sweep_cache(home.cache, dry_run=dry_run))
    found += _sweep_environments(home.environments, limit_bytes=environments_limit_bytes, dry_run=dry_run)
    found.append(_sweep_warm(home.warm, dry_run=dry_run))
    return found


def _sweep_objects(root: Path, *, dry_run: bool) -> list[Garbage]:
    with closing(DataFiles(root)) as files:
        if next(iter(files), None) is not None and not (root / "index.sqlite").exists():
            raise Corrupt(f"{root} has lost its index; restore a backup with `trainyard restore`. Nothing was removed.")
        with closing(Index(root / "index.sqlite")) as index:
            damage = index.data.find_damage()
            # A damaged index may not name a file that somebody needs.
            if damage:
                raise Corrupt(f"The index in {root} is damaged ({damage[0]}), so nothing was removed.")
            deleted = [trash.data for trash in _all_trash(index.data)]
            strays = list(_find_strays(index.data, files))
            incoming_files = [files.incoming(data) for data in files.incoming_files()] if files.is_exclusive else []
        found = [
            _measure("data files of deleted objects", [files.path(data) for data in deleted]),
            _measure("data files without an object", [files.path(data) for data in strays]),
            _measure("uploads interrupted by a crash", incoming_files),
        ]
        if not dry_run:
            files.remove(strays)
    if not dry_run:
        # Opening the store removes the rest.
        FilesystemObjects(root).close()
    return found


def _all_trash(index: DataIndex) -> Iterator[Trash]:
    after = 0
    while page := index.trash(after=after):
        yield from page
        after = page[-1].sequence


def _find_strays(index: DataIndex, files: DataFiles) -> Iterator[str]:
    """Yield the data files that nobody will claim.

    The index names a file before its upload ends. So a file that is neither, checked in this order, belongs to nobody.
    """
    before = time.time() - _MIN_STRAY_AGE_S
    for data in files:
        if index.has_reference(data) or index.is_trash(data) or files.is_incoming(data) or index.has_reference(data):
            continue
        path = files.path(data)
        if path.exists() and path.stat().st_mtime < before:
            yield data


def _sweep_folders(what: str, parent: Path, *, records: Records, dry_run: bool) -> Garbage:
    """Remove the folders of deleted resources. Each folder is named after the id of its resource."""
    folders = list(find_orphans(records, parent))
    measured = _measure(what, folders)
    for folder in [] if dry_run else folders:
        # The next run removes what is left.
        with suppress(OSError):
            remove_tree(folder)
    return measured


def _sweep_containers(jobs: Path, *, dry_run: bool) -> Garbage:
    """Remove the containers of instances whose agents are gone. A running yard also does so when it ends an attempt."""
    left = containers.abandoned_containers(jobs)
    for tool, instance in [] if dry_run else left:
        containers.remove_containers(tool, instance, within_s=_REMOVE_TIMEOUT_S)
    return Garbage("containers whose agents are gone", len(left), 0)


def _sweep_keys(records: Records, *, now: datetime, dry_run: bool) -> Garbage:
    before = now - _EXPIRED_KEY_AGE
    if not dry_run:
        return Garbage("expired temporary keys", records.forget_expired_keys(now=before), 0)
    expiries = [row["expires_at"] for table, row in records.export() if table == "access_keys"]
    count = sum(1 for expiry in expiries if expiry is not None and expiry <= to_micros(before))
    return Garbage("expired temporary keys", count, 0)


def _sweep_cache(cache: Path, *, dry_run: bool) -> Garbage:
    """Remove the cached service models of other botocore versions than the installed one."""
    current = f"-{version('botocore')}.json"
    stale = [path for path in cache.iterdir() if not path.name.endswith(current)]
    measured = _measure("cached service models of another version", stale)
    for path in [] if dry_run else stale:
        path.unlink(missing_ok=True)
    return measured


def _sweep_environments(root: Path, *, limit_bytes: int, dry_run: bool) -> list[Garbage]:
    """Remove what jobs installed that exceeds the limit of their users or is long unused. What is in use stays."""
    users = [EnvironmentCache(folder) for folder in (sorted(root.iterdir()) if root.is_dir() else [])]
    idle_s = _UNUSED_ENVIRONMENT_AGE.total_seconds()
    surplus = [(user, each) for user in users for each in user.surplus(limit_bytes, unused_s=idle_s)]
    left = [path for user in users for path in user.leftovers()]
    downloads = [PackageDownloads(folder) for folder in (sorted(root.iterdir()) if root.is_dir() else [])]
    unused = [path for store in downloads for path in store.surplus(limit_bytes, unused_s=idle_s)]
    found = [
        Garbage("unused job environments", len(surplus), sum(each.size_bytes for _, each in surplus)),
        _measure("installations interrupted by a crash", left),
        _measure("unused package downloads of jobs", unused),
    ]
    if not dry_run:
        for user, each in surplus:
            user.remove(each.key)
        for user in users:
            user.trim(limit_bytes)
        for store in downloads:
            store.trim(limit_bytes, unused_s=idle_s)
    return found


def _sweep_warm(folder: Path, *, dry_run: bool) -> Garbage:
    measured = _measure("folders of warm workers that have ended", warm.dead_folders(folder))
    if not dry_run:
        warm.sweep_dead_workers(folder)
    return measured


def _measure(what: str, paths: list[Path]) -> Garbage:
    return Garbage(what, len(paths), sum(_size_of(path) for path in paths))


def _size_of(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return tree_size(path)
