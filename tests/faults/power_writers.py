"""Programs that write to a disk whose power is cut, each with a check of what is left.

    python -m tests.faults.power_writers KIND synced|unsynced FOLDER

writes until it is killed, and prints the number of each item once it is acknowledged as durable. With `unsynced` every
sync does nothing, which the test must detect.
"""

import hashlib
import itertools
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainyard.formats.logs import LogReader, LogWriter
from trainyard.foundation.locations import BucketRef, Location
from trainyard.link.contract import CommandKind, FrameKind
from trainyard.link.mailbox import Mailbox
from trainyard.link.spool import SpoolWriter, read_frames
from trainyard.objects.contract import Attributes
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.records.contract import Draft, Query, ResourceKey
from trainyard.server.records.sql import open_records
from trainyard.server.records.sqlite import SqliteDatabase

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
BUCKET = BucketRef("111111111111", "bucket")
KEYS = 10  # objects that are overwritten repeatedly


@dataclass(frozen=True)
class Kind:
    """`write` writes item after item and yields the number of each, from 0, once it is durable.

    `check` asserts that what is left is complete, and returns the numbers of the items found.
    """

    write: Callable[[Path], Iterator[int]]
    check: Callable[[Path], Sequence[int]]


def write_objects(folder: Path) -> Iterator[int]:
    store = FilesystemObjects(folder / "objects")
    store.create_bucket(BUCKET, region="eu-central-1", now=NOON)
    number = 0
    while True:
        writer = store.writer(Location(BUCKET, f"key-{number % KEYS}"), Attributes())
        writer.write(body_of(number))
        writer.commit(now=NOON)
        yield number
        number += 1


def check_objects(folder: Path) -> Sequence[int]:
    """Only the last version of an overwritten key is there; all versions before it count as found."""
    with closing(FilesystemObjects(folder / "objects")) as store:
        problems = [each for each in store.verify(deep=True) if "only takes up space" not in each]
        assert problems == []
        found: list[int] = []
        for summary in store.list_objects(BUCKET).objects if store.buckets() else ():
            with store.open(Location(BUCKET, summary.key)) as reader:
                body = reader.read(0, summary.size)
            number = int(body.partition(b" ")[0])
            assert body == body_of(number)
            found += range(number % KEYS, number + 1, KEYS)
        return found


def body_of(number: int) -> bytes:
    return f"{number} ".encode() + hashlib.sha256(str(number).encode()).digest() * (200 * (number % 5))


def write_records(folder: Path) -> Iterator[int]:
    records = open_records(f"sqlite:///{folder / 'records.sqlite'}")
    number = 0
    while True:
        records.create(Draft(ResourceKey("111111111111", "thing", str(number)), "", {"number": number}), now=NOON)
        yield number
        number += 1


def check_records(folder: Path) -> Sequence[int]:
    with closing(sqlite3.connect(folder / "records.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with closing(open_records(f"sqlite:///{folder / 'records.sqlite'}")) as records:
        found: list[int] = []
        query = Query("thing", limit=100_000)
        for resource in records.find(query).resources:
            assert resource.body == {"number": int(resource.key.name)}
            found.append(int(resource.key.name))
        return found


def write_spool(folder: Path) -> Iterator[int]:
    with SpoolWriter(folder / "spool") as spool:
        number = 0
        while True:
            spool.append(FrameKind.NOTE, {"text": "x" * (number % 5000)}, at_us=number)
            spool.append(FrameKind.ARTIFACT, {"number": number}, at_us=number, durable=True)
            yield number
            number += 1


def check_spool(folder: Path) -> Sequence[int]:
    """Check a spool. A restarted agent truncates an incomplete end."""
    SpoolWriter(folder / "spool").close()
    found: list[int] = []
    offset = 0
    while (read := read_frames(folder / "spool", offset)).frames:
        found += [frame.payload["number"] for frame in read.frames if frame.kind is FrameKind.ARTIFACT]
        offset = read.next_offset
    return found


def write_logs(folder: Path) -> Iterator[int]:
    with LogWriter(folder / "stream", segment_bytes=20_000) as writer:
        for group in itertools.count():
            # With groups of ten, a segment sometimes fills up in the middle of one.
            numbers = range(group * 10, group * 10 + 10)
            for number in numbers:
                writer.append(f"{number} {'x' * (number * 100 % 5000)}\n".encode(), number)
            writer.sync()
            yield from numbers


def check_logs(folder: Path) -> Sequence[int]:
    """Check a log. Opening it for writing truncates an incomplete end."""
    LogWriter(folder / "stream").close()
    found: list[int] = []
    for event in LogReader(folder / "stream").scan():
        number, _, rest = event.text.partition(" ")
        assert rest == "x" * (int(number) * 100 % 5000), event.text[:80]
        found.append(int(number))
    return found


def write_mailbox(folder: Path) -> Iterator[int]:
    mailbox = Mailbox(folder / "mailbox")
    while True:
        yield mailbox.put(CommandKind.STOP, {"reason": "x" * 100}).number - 1


def check_mailbox(folder: Path) -> Sequence[int]:
    return [command.number - 1 for command in Mailbox(folder / "mailbox").read(0)]


KINDS = {
    "objects": Kind(write_objects, check_objects),
    "records": Kind(write_records, check_records),
    "spool": Kind(write_spool, check_spool),
    "logs": Kind(write_logs, check_logs),
    "mailbox": Kind(write_mailbox, check_mailbox),
}


def take_syncs_out() -> None:
    for name in ("fsync", "fdatasync"):
        setattr(os, name, lambda _: None)
    connect = SqliteDatabase._connect

    def connect_without(database: SqliteDatabase) -> sqlite3.Connection:
        connection = connect(database)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    setattr(SqliteDatabase, "_connect", connect_without)  # noqa: B010 - a plain assignment has the wrong type


if __name__ == "__main__":
    if sys.argv[2] == "unsynced":
        take_syncs_out()
    for done in KINDS[sys.argv[1]].write(Path(sys.argv[3])):
        os.write(1, f"{done}\n".encode())
