"""What a yard keeps but nothing owns: found, weighed and cleared away, also beside a running yard."""

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
from trainyard.link.environments import KeptEnvironments
from trainyard.objects.datafiles import DataFiles
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.objects.index import Index
from trainyard.objects.index_data import DataIndex, Trash
from trainyard.server.records.contract import Records
from trainyard.server.services.logs.storage import orphans

_REMOVED_WITHIN_S = 60.0
_SETTLED_S = 3600  # a file this old is not on its way to anywhere
_IDLE_KEPT = timedelta(days=30)  # environments that no job used for so long
_EXPIRED_KEPT = timedelta(days=1)  # so long a user is told that a key expired, not that it is unknown


@dataclass(frozen=True, slots=True)
class Garbage:
    """One kind of garbage: how many, and how many bytes they take."""

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
    """Clear away, or with `dry_run` only weigh, every kind in turn."""
    found = _sweep_objects(home.objects, dry_run=dry_run) if has_local_objects else []
    found.append(_sweep_folders("log streams that are deleted", home.logs, records=records, dry_run=dry_run))
    found.append(_sweep_folders("metrics that are deleted", home.metrics, records=records, dry_run=dry_run))
    found.append(_sweep_containers(home.jobs, dry_run=dry_run))
    found.append(_sweep_folders("jobs that are deleted", home.jobs, records=records, dry_run=dry_run))
    found.append(_sweep_keys(records, now=now, dry_run=dry_run))
    found.append(_sweep_cache(home.cache, dry_run=dry_run))
    found += _sweep_environments(home.environments, limit_bytes=environments_limit_bytes, dry_run=dry_run)
    found.append(_sweep_warm(home.warm, dry_run=dry_run))
    return found


def _sweep_objects(root: Path, *, dry_run: bool) -> list[Garbage]:
    with closing(DataFiles(root)) as files:
        if next(iter(files), None) is not None and not (root / "index.sqlite").exists():
            raise Corrupt(
                f"{root} has lost its index; bring back a backup with `trainyard restore`. Nothing was swept."
            )
        with closing(Index(root / "index.sqlite")) as index:
            damage = index.data.damage()
            if damage:  # it might not name a file that somebody needs
                raise Corrupt(f"The index in {root} is damaged ({damage[0]}), so nothing was swept.")
            deleted = [trash.data for trash in _all_trash(index.data)]
            strays = list(_strays(index.data, files))
            arrivals = [files.incoming(data) for data in files.arrivals()] if files.is_alone else []
        found = [
            _weigh("data files of deleted objects", [files.path(data) for data in deleted]),
            _weigh("data files that belong to no object", [files.path(data) for data in strays]),
            _weigh("uploads that a crash interrupted", arrivals),
        ]
        if not dry_run:
            files.remove(strays)
    if not dry_run:
        FilesystemObjects(root).close()  # opening it clears up the rest
    return found


def _all_trash(index: DataIndex) -> Iterator[Trash]:
    after = 0
    while page := index.trash(after=after):
        yield from page
        after = page[-1].sequence


def _strays(index: DataIndex, files: DataFiles) -> Iterator[str]:
    """The index names a file before it stops arriving; one that is neither, asked in that order, nobody will claim."""
    before = time.time() - _SETTLED_S
    for data in files:
        if index.names(data) or index.discards(data) or files.is_arriving(data) or index.names(data):
            continue
        path = files.path(data)
        if path.exists() and path.stat().st_mtime < before:
            yield data


def _sweep_folders(what: str, parent: Path, *, records: Records, dry_run: bool) -> Garbage:
    """Each folder has the id of the resource whose events or points it holds."""
    folders = list(orphans(records, parent))
    weighed = _weigh(what, folders)
    for folder in [] if dry_run else folders:
        with suppress(OSError):  # what is left is swept with the next
            remove_tree(folder)
    return weighed


def _sweep_containers(jobs: Path, *, dry_run: bool) -> Garbage:
    """Of instances whose agents are gone; a yard that runs removes them too, when it ends their attempts."""
    left = containers.abandoned(jobs)
    for tool, instance in [] if dry_run else left:
        containers.remove_containers(tool, instance, within_s=_REMOVED_WITHIN_S)
    return Garbage("containers whose agents are gone", len(left), 0)


def _sweep_keys(records: Records, *, now: datetime, dry_run: bool) -> Garbage:
    before = now - _EXPIRED_KEPT
    if not dry_run:
        return Garbage("temporary keys that expired", records.forget_expired_keys(now=before), 0)
    expiries = [row["expires_at"] for table, row in records.export() if table == "access_keys"]
    count = sum(1 for expiry in expiries if expiry is not None and expiry <= to_micros(before))
    return Garbage("temporary keys that expired", count, 0)


def _sweep_cache(cache: Path, *, dry_run: bool) -> Garbage:
    """Models of other versions of botocore than the one that is installed."""
    current = f"-{version('botocore')}.json"
    stale = [path for path in cache.iterdir() if not path.name.endswith(current)]
    weighed = _weigh("cached service models of another version", stale)
    for path in [] if dry_run else stale:
        path.unlink(missing_ok=True)
    return weighed


def _sweep_environments(root: Path, *, limit_bytes: int, dry_run: bool) -> list[Garbage]:
    """What jobs installed beyond the limit of their users, or long ago; what is in use stays."""
    users = [KeptEnvironments(folder) for folder in (sorted(root.iterdir()) if root.is_dir() else [])]
    idle_s = _IDLE_KEPT.total_seconds()
    kept = [(user, each) for user in users for each in user.surplus(limit_bytes, unused_s=idle_s)]
    left = [path for user in users for path in user.leftovers()]
    found = [
        Garbage("environments of jobs that are not used", len(kept), sum(each.size_bytes for _, each in kept)),
        _weigh("installations that a crash interrupted", left),
    ]
    if not dry_run:
        for user, each in kept:
            user.remove(each.key)
        for user in users:
            user.trim(limit_bytes)
    return found


def _sweep_warm(folder: Path, *, dry_run: bool) -> Garbage:
    weighed = _weigh("folders of warm workers that have ended", warm.dead_folders(folder))
    if not dry_run:
        warm.sweep(folder)
    return weighed


def _weigh(what: str, paths: list[Path]) -> Garbage:
    return Garbage(what, len(paths), sum(_size(path) for path in paths))


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return tree_size(path)
