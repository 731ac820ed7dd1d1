"""Backup of everything that a yard stores into an archive, and restore.

    records.jsonl          every row of the records, as [table, row]
    objects/               a snapshot of the object index, and the data files that it names
    keys/                  the encryption keys; the master key that unlocks them only if asked for
    logs/ metrics/ jobs/   as they were when each was read; they only grow. Of jobs, only logs and metrics
    certificates/ credentials.json
    settings.toml catalog.toml images.toml file_systems.toml engines.toml

The archive leaves out what can be rebuilt (the cache), what belongs to this machine (the lock, the runtime file, what
`trainyard connect` replaced), and the server's own log.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from trainyard import __version__
from trainyard.foundation.errors import Conflict, Corrupt, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER
from trainyard.foundation.home import FORMAT, Home, HomeVersion
from trainyard.foundation.settings import read_settings
from trainyard.link.folders import InstanceFolder
from trainyard.objects.datafiles import DATA_FILE_MODE
from trainyard.objects.encryption.keyring import DATABASE, MASTER_KEY, Keyring
from trainyard.objects.filesystem import snapshot
from trainyard.server.home import lock_home
from trainyard.server.records.contract import Body
from trainyard.server.records.sql import open_records
from trainyard.server.settings import PREFIX, ServerSettings
from trainyard.server.storage import master_key_file
from trainyard.server.upkeep.archive import Archive, ArchiveMember, ArchiveWriter, new_archive, open_archive

RECORDS = "records.jsonl"

_FOLDERS = frozenset({"objects", "keys", "logs", "metrics", "jobs", "certificates"})
# Written by the administrator.
_CONFIG_FILES = frozenset({"settings.toml", "catalog.toml", "images.toml", "file_systems.toml", "engines.toml"})
_FILES = frozenset({RECORDS, "credentials.json"}) | _CONFIG_FILES
_PARTS = _FOLDERS | _FILES
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupSummary:
    """How much was backed up or restored."""

    objects: int
    records: int
    files: int
    bytes: int


def back_up(
    home: Home, target: Path, *, settings: ServerSettings, now: datetime, with_master_key: bool = False
) -> BackupSummary:
    """Back up everything to `target`, whether a yard runs or not. The backup is complete or absent.

    Without the master key, nobody can read encrypted objects who has only the backup.
    """
    if home.check() is None:
        raise NotFound("home folder", str(home.root))
    if target.resolve().is_relative_to(home.root.resolve()):
        raise InvalidRequest(f"{target} is inside the home folder that is backed up; choose a path outside it.")
    with new_archive(target) as archive:
        records = _add_records(archive, _records_url(home, settings), beside=target)
        objects = 0 if settings.objects else _add_objects(archive, home, beside=target)
        # After the objects, so that it has the keys of all of them.
        _add_keys(archive, home, settings, beside=target, with_master_key=with_master_key)
        for folder in (home.logs, home.metrics, *_log_and_metric_folders(home.jobs), home.certificates):
            _add_folder(archive, folder, root=home.root)
        for file in (home.credentials_file, *(home.root / name for name in sorted(_CONFIG_FILES))):
            if file.exists():
                _add_file(archive, file, root=home.root)
        summary = BackupSummary(objects, records, len(archive), archive.size)
        archive.finish(_about(home, summary, now=now))
    return summary


def restore(home: Home, source: Path, *, environment: Mapping[str, str]) -> BackupSummary:
    """Fill an empty home from a complete archive. An interrupted restore may be started again."""
    if not home.is_being_restored and home.check() is not None:
        raise Conflict(
            "home folder", str(home.root), "contains a yard already; restore into an empty folder with --home DIR"
        )
    archive = open_archive(source)
    summary = _read_summary(archive, source)
    home.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with lock_home(home):
        _remove_unfinished(home)
        staging = Home(home.restoring)
        try:
            _fill_staging(archive, staging, environment=environment)
        except OSError as error:
            shutil.rmtree(staging.root, ignore_errors=True)
            raise Unavailable(f"{home.root} cannot be filled: {error.strerror}. Nothing was changed.") from error
        except BaseException:
            shutil.rmtree(staging.root, ignore_errors=True)
            raise
        _move_into_home(staging, home)
    return summary


def _records_url(home: Home, settings: ServerSettings) -> str:
    return settings.records or f"sqlite:///{home.records_file}"


def _about(home: Home, summary: BackupSummary, *, now: datetime) -> dict[str, object]:
    return {
        "format": FORMAT,
        "made_by": __version__,
        "made_at": now.isoformat(),
        "home": str(home.root),
        "objects": summary.objects,
        "records": summary.records,
    }


def _add_records(archive: ArchiveWriter, url: str, *, beside: Path) -> int:
    count = 0
    with closing(open_records(url)) as records, tempfile.TemporaryFile(dir=beside.parent) as lines:
        for table, row in records.export():
            lines.write(json.dumps([table, row]).encode() + b"\n")
            count += 1
        lines.seek(0)
        archive.add(RECORDS, lines)
    return count


def _add_objects(archive: ArchiveWriter, home: Home, *, beside: Path) -> int:
    count = 0
    with tempfile.TemporaryDirectory(dir=beside.parent, prefix=".trainyard-") as folder:
        index = Path(folder) / "index.sqlite"
        with snapshot(home.objects, index) as data_files:
            for path in data_files:
                with path.open("rb") as file:
                    archive.add(path.relative_to(home.root).as_posix(), file)
                count += 1
        with index.open("rb") as file:
            archive.add("objects/index.sqlite", file)
    return count


def _add_keys(
    archive: ArchiveWriter, home: Home, settings: ServerSettings, *, beside: Path, with_master_key: bool
) -> None:
    with (
        closing(Keyring(home.keys, master_key_file=master_key_file(home, settings))) as keyring,
        tempfile.TemporaryDirectory(dir=beside.parent, prefix=".trainyard-") as folder,
    ):
        if not keyring.exists:
            return
        copy = Path(folder) / DATABASE
        keyring.back_up(copy)
        with copy.open("rb") as file:
            archive.add(f"keys/{DATABASE}", file)
        if with_master_key:
            keyring.check()
            with keyring.master_key_file.open("rb") as file:
                archive.add(f"keys/{MASTER_KEY}", file)


def _log_and_metric_folders(jobs: Path) -> Iterator[Path]:
    """Yield the log and metric folders of every instance. A new attempt would recreate its data and scratch space."""
    for instance in sorted(jobs.glob("*/*/*/")):
        folder = InstanceFolder(instance)
        yield from (folder.logs, folder.metrics)


def _add_folder(archive: ArchiveWriter, folder: Path, *, root: Path) -> None:
    """Add the files in order of their names, so that the index of a log segment comes before the bytes it describes."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            _add_file(archive, Path(parent, name), root=root)


def _add_file(archive: ArchiveWriter, path: Path, *, root: Path) -> None:
    """Add a copy of a file, because the file itself may grow, shrink or vanish meanwhile."""
    try:
        with path.open("rb") as file, tempfile.TemporaryFile() as copy:
            _copy(file, copy, os.fstat(file.fileno()).st_size)
            copy.seek(0)
            archive.add(path.relative_to(root).as_posix(), copy)
    except FileNotFoundError:
        return


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0 and (chunk := source.read(min(size, _CHUNK))):
        target.write(chunk)
        size -= len(chunk)


def _read_summary(archive: Archive, source: Path) -> BackupSummary:
    about = archive.about
    try:
        made_by, format_ = about["made_by"], int(about["format"])
        sizes = [int(size) for size, _ in about["files"].values()]
        summary = BackupSummary(int(about["objects"]), int(about["records"]), len(sizes), sum(sizes))
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"The manifest of {source} is damaged.") from error
    if format_ > FORMAT:
        raise InvalidRequest(
            f"The backup {source} was made by Trainyard {made_by} (format {format_}); this one reads format {FORMAT}. "
            f"Install trainyard>={made_by}."
        )
    return summary


def _fill_staging(archive: Archive, staging: Home, *, environment: Mapping[str, str]) -> None:
    staging.root.mkdir(mode=PRIVATE_FOLDER)
    for folder in staging.folders:
        folder.mkdir(mode=PRIVATE_FOLDER)
    for member in archive.members():
        _write_member(member, staging)
    lines = staging.root / RECORDS
    settings = read_settings(ServerSettings, file=staging.settings_file, environment=environment, prefix=PREFIX)
    with closing(open_records(_records_url(staging, settings))) as records:
        records.restore(_read_rows(lines))
    lines.unlink()
    os.sync()


def _write_member(member: ArchiveMember, staging: Home) -> None:
    name = PurePosixPath(member.name)
    if name.parts[0] not in _PARTS:
        raise Corrupt(f"The backup contains {name}, which is not part of a home folder.")
    path = staging.root / name
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with path.open("xb") as file:
        os.fchmod(file.fileno(), DATA_FILE_MODE if name.parts[:2] == ("objects", "data") else PRIVATE_FILE)
        while chunk := member.body.read(_CHUNK):
            file.write(chunk)


def _read_rows(lines: Path) -> Iterator[tuple[str, Body]]:
    with lines.open("rb") as file:
        for line in file:
            try:
                table, row = json.loads(line)
            except ValueError as error:
                raise Corrupt(f"{lines.name} of the backup is damaged: {error}.") from error
            yield table, row


def _move_into_home(staging: Home, home: Home) -> None:
    """Move the parts one by one. The version comes last and makes the folder a home."""
    for path in staging.root.iterdir():
        path.rename(home.root / path.name)
    home.root.chmod(PRIVATE_FOLDER)
    home.write_version(HomeVersion(FORMAT, __version__))
    staging.root.rmdir()


def _remove_unfinished(home: Home) -> None:
    """Remove what an interrupted restore left. It has no version yet, so nobody has used it."""
    if not home.is_being_restored:
        return
    for path in home.root.iterdir():
        if path == home.restoring or path in home.folders:
            shutil.rmtree(path)
        elif path.name in _PARTS or path.name.startswith(home.records_file.name):
            path.unlink()
