"""Every promise of durability in a docstring: acknowledged data survives a power cut, other data is all or nothing.

Each promise must hold at every moment of its operation, as `disk_recorder` defines them. SQLite keeps its own promises;
it is set to sync at each commit.
"""

import ast
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import trainyard
from tests.unit.disk_recorder import DiskRecorder, power_cuts
from trainyard.engines.cluster import mirror
from trainyard.engines.cluster.attempt_register import AttemptRegister, RegisteredAttempt
from trainyard.engines.cluster.contract import FileChunk, InstancePlacement
from trainyard.formats.logs import LogReader, LogWriter
from trainyard.formats.metrics import Point, PointsFile
from trainyard.formats.run_metrics import RunMetrics, RunPoint
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.files import make_folder, replace_file, sync_folder
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.watch.output import ProgramOutput
from trainyard.instance.sandbox.contract import ProgramExit
from trainyard.link.contract import CommandKind, FrameKind, LimitSpec
from trainyard.link.environments import EnvironmentCache
from trainyard.link.folders import AttemptRef, InstanceFolder, InstanceRef
from trainyard.link.ledger import Ledger, LedgerKind
from trainyard.link.mailbox import Mailbox
from trainyard.link.spool import SpoolWriter, read_frames
from trainyard.objects.contract import Attributes, CompletedPart, NewObject
from trainyard.objects.encryption.headers import ALGORITHM
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.records.sqlite import SqliteDatabase
from trainyard.server.upkeep.archive import new_archive, open_archive
from trainyard.testing.objects.samples import ALICE, NOON, PART, REGION, body_of, put, put_part

BUCKET = BucketRef(ALICE, "bucket")
ATTEMPT = AttemptRef("job-1", 1)
FULL = 2  # as SQLite numbers `PRAGMA synchronous`


@dataclass(frozen=True)
class Promise:
    """An operation below a folder. `keeps` asserts what it acknowledged, `allows` what may be visible at any moment."""

    name: str
    of: Sequence[str]
    operate: Callable[[Path], object]
    keeps: Callable[[Path], None]
    allows: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda folder: None


def location(key: str) -> Location:
    return Location(BUCKET, key)


def replace(folder: Path) -> None:
    replace_file(folder / "file", b"new")


def has_new_file(folder: Path) -> None:
    assert (folder / "file").read_bytes() == b"new"


def has_old_or_new_file(folder: Path) -> None:
    assert (folder / "file").read_bytes() in (b"old", b"new")


def make_and_sync(folder: Path) -> None:
    (folder / "name").mkdir()
    sync_folder(folder)


def assert_is_folder(path: Path) -> None:
    assert path.is_dir()


def put_commands(folder: Path) -> None:
    mailbox = Mailbox(folder / "mailbox")
    mailbox.put(CommandKind.STOP, {"reason": "user"})
    mailbox.put(CommandKind.KILL)


def has_commands(folder: Path) -> None:
    kinds = [command.kind for command in Mailbox(folder / "mailbox").read(0)]
    assert kinds == [CommandKind.STOP, CommandKind.KILL]


def append_frames(folder: Path) -> None:
    with SpoolWriter(folder / "spool") as spool:
        spool.append(FrameKind.NOTE, {"text": "fleeting"}, at_us=1)
        spool.append(FrameKind.EXITED, {"code": 0}, at_us=2, durable=True)
        spool.append(FrameKind.ENDED, {"outcome": "completed"}, at_us=3, durable=True)


def frame_kinds(folder: Path) -> list[FrameKind]:
    return [frame.kind for frame in read_frames(folder / "spool", 0).frames]


def has_frames(folder: Path) -> None:
    assert frame_kinds(folder) == [FrameKind.NOTE, FrameKind.EXITED, FrameKind.ENDED]


def report(kind: FrameKind) -> Callable[[Path], None]:
    def operate(folder: Path) -> None:
        with SpoolWriter(folder / "spool") as spool:
            reports = Reports(spool)
            if kind is FrameKind.EXITED:
                reports.report_exit(ProgramExit(0, None))
            elif kind is FrameKind.ARTIFACT:
                reports.report_artifact("model", "s3://bucket/model.tar.gz", size=5)
            else:
                reports.report_end("completed", "")

    return operate


def has_frame(kind: FrameKind) -> Callable[[Path], None]:
    def keeps(folder: Path) -> None:
        assert frame_kinds(folder) == [kind]

    return keeps


def enter_in_ledger(folder: Path) -> None:
    ledger = Ledger(folder / "ledger")
    ledger.add(LedgerKind.FOLDER, path="/a")
    ledger.add(LedgerKind.FOLDER, path="/b")


def has_ledger(folder: Path) -> None:
    assert [entry.details["path"] for entry in Ledger(folder / "ledger").entries()] == ["/a", "/b"]


LINES = [b"line %d\n" % number for number in range(8)]


def append_lines(folder: Path) -> None:
    """Append enough lines to start several segments."""
    with LogWriter(folder / "stream", segment_bytes=20) as writer:
        for ms, line in enumerate(LINES):
            writer.append(line, ms)
        writer.sync()


def append_without_sync(folder: Path) -> None:
    with LogWriter(folder / "stream") as writer:
        writer.append(LINES[0], 0)


def append_after_a_crash(folder: Path) -> None:
    append_without_sync(folder)
    with LogWriter(folder / "stream") as writer:
        for ms, line in enumerate(LINES[1:], start=1):
            writer.append(line, ms)
        writer.sync()


def texts(folder: Path) -> list[str]:
    if not folder.exists():
        return []
    return [event.text for event in LogReader(folder).forward(max_events=100).events]


def has_lines(folder: Path) -> None:
    assert texts(folder / "stream") == [line.decode().strip() for line in LINES]


def write_output(folder: Path) -> None:
    output = ProgramOutput(folder / "stream", limit_bytes=1 << 20)
    output.write(b"".join(LINES))
    output.close()


def append_points(folder: Path) -> None:
    points = PointsFile(folder / "metrics" / "loss.points")
    points.append([Point.of(0.5, 1)])
    points.append([Point.of(0.25, 2)])


def append_points_after_fleeting_ones(folder: Path) -> None:
    points = PointsFile(folder / "metrics" / "loss.points")
    points.append([Point.of(0.5, 1)], durable=False)
    points.append([Point.of(0.25, 2)])


def points_of(folder: Path) -> list[float]:
    return list(PointsFile(folder / "metrics" / "loss.points").tail(0).sums)


def has_points(folder: Path) -> None:
    assert points_of(folder) == [0.5, 0.25]


def append_run_metrics(folder: Path) -> None:
    metrics = RunMetrics(folder / "run")
    metrics.append([RunPoint("loss", 1, 0.5, 0)])
    metrics.append([RunPoint("loss", 2, 0.25, 1)])
    metrics.sync()


def run_metrics_of(folder: Path) -> list[RunPoint]:
    return list(RunMetrics(folder / "run").read_all())


def has_run_metrics(folder: Path) -> None:
    assert [(point.name, point.value) for point in run_metrics_of(folder)] == [("loss", 0.5), ("loss", 0.25)]


def keep_environment(folder: Path) -> None:
    making = EnvironmentCache(folder).begin_build("key")
    assert making is not None
    with making:
        (making.folder / "packages").mkdir()
        (making.folder / "packages" / "module.py").write_bytes(b"x = 1\n")
        making.commit()


def has_whole_environment_or_none(folder: Path) -> None:
    assert not (folder / "key").exists() or (folder / "key" / "packages" / "module.py").read_bytes() == b"x = 1\n"


def has_environment(folder: Path) -> None:
    assert (folder / "key").is_dir()
    has_whole_environment_or_none(folder)


ENTRY = RegisteredAttempt(
    ATTEMPT, (InstancePlacement(InstanceRef(ATTEMPT, "algo-1"), "north", LimitSpec()),), lease_s=60
)


def has_entry(folder: Path) -> None:
    assert list(AttemptRegister(folder / "live").entries()) == [ENTRY]


def has_no_entry(folder: Path) -> None:
    assert list(AttemptRegister(folder / "live").entries()) == []


def mirror_instance(folder: Path) -> None:
    instance = InstanceFolder(folder)
    append_frames(folder)
    spool = (folder / "spool").read_bytes()
    (folder / "spool").unlink()
    mirror.apply_chunks(
        instance, [FileChunk("metrics/loss.points", 0, b"p" * 8), FileChunk("logs/" + "0" * 20 + ".log", 0, b"l")]
    )
    mirror.apply_chunks(instance, [FileChunk("spool", 0, spool)])
    mirror.sync_mirror(instance)


def has_mirror(folder: Path) -> None:
    has_frames(folder)
    assert (folder / "metrics" / "loss.points").read_bytes() == b"p" * 8
    assert (folder / "logs" / ("0" * 20 + ".log")).read_bytes() == b"l"


def archive(name: str) -> Callable[[Path], None]:
    def operate(folder: Path) -> None:
        with new_archive(folder / name) as writer:
            (folder / "source").write_bytes(b"content")
            with (folder / "source").open("rb") as source:
                writer.add("deep/file", source)
            writer.finish({})

    return operate


def has_archive(name: str) -> Callable[[Path], None]:
    def keeps(folder: Path) -> None:
        assert {each.name: each.body.read() for each in open_archive(folder / name).members()} == {
            "deep/file": b"content"
        }

    return keeps


def has_archive_or_none(name: str) -> Callable[[Path], None]:
    def allows(folder: Path) -> None:
        if (folder / name).exists():
            has_archive(name)(folder)

    return allows


def make_store(folder: Path) -> None:
    with_store(lambda store: store.create_bucket(BUCKET, region=REGION, now=NOON))(folder)


def with_store(work: Callable[[FilesystemObjects], object]) -> Callable[[Path], None]:
    def operate(folder: Path) -> None:
        store = FilesystemObjects(folder / "store")
        try:
            work(store)
        finally:
            store.close()

    return operate


def prepare_store(work: Callable[[FilesystemObjects], object]) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        make_store(folder)
        with_store(work)(folder)

    return prepare


def put_old(store: FilesystemObjects) -> None:
    put(store, location("key"), b"old")


def put_new(store: FilesystemObjects) -> None:
    put(store, location("key"), b"new")


def put_encrypted(store: FilesystemObjects) -> None:
    """Put an object whose key, and the master key, are created for it."""
    put(store, location("key"), b"new", attributes=Attributes({ALGORITHM: "aws:kms"}))


def put_many(store: FilesystemObjects) -> None:
    new = [NewObject(location(key), b"new", Attributes()) for key in ("key", "second", "third")]
    assert not any(isinstance(each, TrainyardError) for each in store.put_batch(new, now=NOON))


def copy(store: FilesystemObjects) -> None:
    store.copy(location("source"), location("key"), now=NOON)


def upload_parts(store: FilesystemObjects) -> None:
    upload = store.create_upload(location("key"), Attributes(), now=NOON)
    parts = [put_part(store, upload, number, body=body) for number, body in ((1, b"n" * PART), (2, b"ew"))]
    named = [CompletedPart(number, part.etag) for number, part in enumerate(parts, start=1)]
    store.complete_upload(upload.where, upload.id, named, now=NOON)


def has_object(body: bytes) -> Callable[[Path], None]:
    def keeps(folder: Path) -> None:
        def check(store: FilesystemObjects) -> None:
            assert body_of(store, location("key")) == body
            assert_whole(store)

        with_store(check)(folder)

    return keeps


def has_whole_store(folder: Path) -> None:
    with_store(assert_whole)(folder)


def has_readable_store(folder: Path) -> None:
    """Assert that the keys of everything in the index are there."""

    def check(store: FilesystemObjects) -> None:
        assert_whole(store)
        for summary in store.list_objects(BUCKET).objects:
            assert body_of(store, location(summary.key)) in (b"old", b"new")

    with_store(check)(folder)


def assert_whole(store: FilesystemObjects) -> None:
    """Assert that everything in the index can be read and has its digest.

    A file that is not or no longer in the index may be left. `trainyard doctor` reports it.
    """
    assert [problem for problem in store.verify(deep=True) if "only takes up space" not in problem] == []


PROMISES = [
    Promise(
        "replace a file",
        ["foundation/files.py replace_file"],
        replace,
        has_new_file,
        has_old_or_new_file,
        lambda folder: (folder / "file").write_bytes(b"old"),
    ),
    Promise(
        "name something",
        ["foundation/files.py sync_folder"],
        make_and_sync,
        lambda folder: assert_is_folder(folder / "name"),
        lambda folder: None,
    ),
    Promise(
        "make folders",
        ["foundation/files.py make_folder"],
        lambda folder: make_folder(folder / "outer" / "inner", parents=True),
        lambda folder: assert_is_folder(folder / "outer" / "inner"),
        lambda folder: None,
    ),
    Promise(
        "leave commands",
        ["link/mailbox.py Mailbox.put", "link/mailbox.py Mailbox._write_command"],
        put_commands,
        has_commands,
        lambda folder: Mailbox(folder / "mailbox").read(0),
    ),
    Promise("append frames", ["link/spool.py SpoolWriter"], append_frames, has_frames, frame_kinds),
    *(
        Promise(f"report {kind}", ["instance/agent/reports.py Reports"], report(kind), has_frame(kind), frame_kinds)
        for kind in (FrameKind.EXITED, FrameKind.ARTIFACT, FrameKind.ENDED)
    ),
    Promise(
        "enter in the ledger",
        ["link/ledger.py Ledger.add"],
        enter_in_ledger,
        has_ledger,
        lambda folder: Ledger(folder / "ledger").entries(),
    ),
    Promise(
        "write a log in segments",
        ["formats/logs/__init__.py", "formats/logs/writer.py LogWriter.sync"],
        append_lines,
        has_lines,
        lambda folder: texts(folder / "stream"),
    ),
    Promise(
        "go on with a log that a crash left",
        ["formats/logs/writer.py LogWriter.sync"],
        append_after_a_crash,
        has_lines,
        lambda folder: texts(folder / "stream"),
    ),
    Promise(
        "close the output of a program",
        ["instance/agent/watch/output.py ProgramOutput.close"],
        write_output,
        has_lines,
        lambda folder: texts(folder / "stream"),
    ),
    Promise("append points", ["formats/metrics.py PointsFile.append"], append_points, has_points, points_of),
    Promise(
        "append points to those that were not synced",
        ["formats/metrics.py PointsFile.append"],
        append_points_after_fleeting_ones,
        has_points,
        points_of,
    ),
    Promise(
        "append metrics of a run",
        ["formats/run_metrics.py RunMetrics", "formats/run_metrics.py RunMetrics.sync"],
        append_run_metrics,
        has_run_metrics,
        run_metrics_of,
    ),
    Promise(
        "keep an environment",
        ["link/environments.py EnvironmentBuild.commit", "foundation/file_system_sync.py sync_file_system"],
        keep_environment,
        has_environment,
        has_whole_environment_or_none,
    ),
    Promise(
        "register an attempt",
        ["engines/cluster/attempt_register.py AttemptRegister.add"],
        lambda folder: AttemptRegister(folder / "live").add(ENTRY),
        has_entry,
        lambda folder: list(AttemptRegister(folder / "live").entries()),
    ),
    Promise(
        "remove an attempt",
        [],
        lambda folder: AttemptRegister(folder / "live").remove(ATTEMPT),
        has_no_entry,
        lambda folder: list(AttemptRegister(folder / "live").entries()),
        lambda folder: AttemptRegister(folder / "live").add(ENTRY),
    ),
    Promise(
        "sync a mirror", ["engines/cluster/mirror.py sync_mirror"], mirror_instance, has_mirror, lambda folder: None
    ),
    *(
        Promise(f"write the archive {name}", [], archive(name), has_archive(name), has_archive_or_none(name))
        for name in ("backup", "backup.tar")
    ),
    Promise(
        "put the first object of a store",
        ["objects/contract.py ObjectWriter.commit"],
        prepare_store(put_new),
        has_object(b"new"),
        has_whole_store,
    ),
    Promise(
        "replace an object",
        [
            "objects/contract.py ObjectAccess",
            "objects/datafiles.py",
            "objects/datafiles.py IncomingFile.settle",
            "objects/datafiles.py IncomingFile.synchronise",
        ],
        with_store(put_new),
        has_object(b"new"),
        has_whole_store,
        prepare_store(put_old),
    ),
    Promise(
        "put objects together",
        ["objects/datafiles.py DataFiles.settle", "instance/agent/data/sync/batches.py upload_all"],
        with_store(put_many),
        has_object(b"new"),
        has_whole_store,
        prepare_store(put_old),
    ),
    Promise(
        "put the first encrypted object",
        ["objects/encryption/keyring.py", "objects/encryption/master_key.py ensure_master_key"],
        with_store(put_encrypted),
        has_object(b"new"),
        has_readable_store,
        prepare_store(put_old),
    ),
    Promise(
        "copy an object",
        [],
        with_store(copy),
        has_object(b"new"),
        has_whole_store,
        prepare_store(lambda store: put(store, location("source"), b"new")),
    ),
    Promise(
        "upload an object in parts",
        [],
        with_store(upload_parts),
        has_object(b"n" * PART + b"ew"),
        has_whole_store,
        prepare_store(put_old),
    ),
]

OF_SQLITE = {
    "objects/database.py Database",
    "objects/database.py Database.write",
    "objects/index.py Index",
    "objects/index_uploads.py UploadIndex",
    "server/records/contract.py Records",
    "server/records/contract.py Records.listen",
    "server/records/database.py RecordsDatabase.write",
}
ELSEWHERE = {
    "engines/local/code.py _create_copy": "engines/local/test_code.py",
    "engines/ray/code_bundle.py _pack": "engines/ray/test_code_bundle.py",
    "engines/ray/node_code.py _unpack": "engines/ray/test_node_code.py",
    "formats/profiles/hardware_segments.py": "formats/profiles/test_hardware.py",
    "server/services/logs/events.py _append": "server/services/logs/test_events.py",
}
NO_PROMISES = {
    "formats/tensors/recordings/trial_writer.py TrialWriter.flush": "of the death of the process only",
    "instance/warm/worker.py": "of what survives a fork",
    "link/lease.py Lease._write": "that it is not synced",
    "server/records/schema.py JsonText": "of what survives in JSON",
}


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_what_is_acknowledged_outlives_a_power_cut(promise: Promise, disk: Path, tmp_path: Path) -> None:
    promise.prepare(disk)
    recorder = DiskRecorder(disk)

    recorder.run(lambda: promise.operate(disk))

    left = recorder.cut_power(tmp_path / "left")
    try:
        promise.keeps(left)
    except (AssertionError, OSError, TrainyardError) as error:
        pytest.fail(f"A power cut takes what was acknowledged: {error!r}. In order: {recorder.order}")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name)
def test_a_power_cut_on_the_way_leaves_nothing_half_done(promise: Promise, disk: Path, tmp_path: Path) -> None:
    promise.prepare(disk)
    recorder = DiskRecorder(disk)

    recorder.run(lambda: promise.operate(disk))

    for call, left in power_cuts(recorder, tmp_path):
        try:
            promise.allows(left)
        except (AssertionError, OSError, TrainyardError) as error:
            pytest.fail(f"A power cut after {call} leaves what is not whole: {error!r}. In order: {recorder.order}")


def test_every_promise_of_durability_is_held_by_a_test() -> None:
    tested = {owner for promise in PROMISES for owner in promise.of}

    assert promises_in_docstrings() == tested | OF_SQLITE | ELSEWHERE.keys() | NO_PROMISES.keys()
    for test in ELSEWHERE.values():
        assert "power_cut" in Path(__file__).parent.joinpath(test).read_text(), test


def test_records_are_synced_at_each_commit(tmp_path: Path) -> None:
    database = SqliteDatabase(f"sqlite:///{tmp_path / 'records.sqlite'}")
    asked = [database.read, database.write, database.write_once]

    found = [ask(lambda connection: _syncing(connection.connection.driver_connection)) for ask in asked]

    database.close()
    assert found == [("wal", FULL)] * len(asked)


def test_a_new_file_of_records_has_its_name_on_the_disk(disk: Path) -> None:
    recorder = DiskRecorder(disk)

    recorder.run(lambda: SqliteDatabase(f"sqlite:///{disk / 'records.sqlite'}").close())

    assert "fsync disk" in recorder.order


def test_the_index_of_objects_is_synced_at_each_commit(tmp_path: Path) -> None:
    store = FilesystemObjects(tmp_path / "store")

    found = store._index._database.write(_syncing)

    store.close()
    assert found == ("wal", FULL)


def _syncing(connection: object) -> tuple[str, int]:
    assert isinstance(connection, sqlite3.Connection)
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    (level,) = connection.execute("PRAGMA synchronous").fetchone()
    return mode, level


_PROMISING = re.compile(r"durabl|power (cut|loss)|on (the )?disk (when|before)|surviv", re.IGNORECASE)
_OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def promises_in_docstrings() -> set[str]:
    """The modules, classes and functions whose docstrings speak of what outlives a power cut; not those for tests."""
    root = Path(os.fspath(trainyard.__path__[0]))
    found = set()
    for path in sorted(root.rglob("*.py")):
        name = str(path.relative_to(root))
        if not name.startswith("testing/"):
            found |= {f"{name} {owner}".rstrip() for owner in _promising(ast.parse(path.read_text()))}
    return found


def _promising(tree: ast.AST, owner: str = "") -> set[str]:
    found = set()
    if isinstance(tree, _OWNERS) and _PROMISING.search(ast.get_docstring(tree) or ""):
        found.add(owner)
    for inner in ast.iter_child_nodes(tree):
        if isinstance(inner, _OWNERS[1:]):
            found |= _promising(inner, f"{owner}.{inner.name}".removeprefix("."))
    return found
