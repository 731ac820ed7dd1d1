"""Copies the newest traces of a job from S3 into its folder, where the evaluation process can read them.

Copies are bounded in number and in size, and a trace that was copied before is not copied again.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.disk import require_space, reserve_of
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.files import make_folder
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.objects.contract import ObjectStore, ObjectSummary
from trainyard.server.control.profiling.contract import TracePlace

MAX_TRACES = 4
MAX_TRACE_BYTES = 1024**3
MAX_PAGES = 10  # of a listing, each with a thousand keys

# The hook, torch and users' own exports; the timelines of AWS's format are not traces of a framework.
_TRACE = re.compile(r"trace[^/]*\.json(\.gz)?$", re.IGNORECASE)
_CHUNK_BYTES = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class CopiedTraces:
    """The copies, the newest trace first. `notes` say which traces were left out, and why."""

    places: tuple[TracePlace, ...] = ()
    notes: tuple[str, ...] = ()


class TraceCopies:
    """Copies traces out of an object store. One thread at a time may fetch those of a job."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def fetch(self, job: TrainingJob, folder: Path) -> CopiedTraces:
        """Copy the newest traces of a job into a folder of the yard, and remove older copies from it."""
        notes: list[str] = []
        places = []
        wanted = self._newest(job, notes)
        for where, summary in wanted:
            if summary.size > MAX_TRACE_BYTES:
                notes.append(f"The trace {where} is left out: it has {summary.size} bytes.")
                continue
            path = folder / _copy_name(where, summary)
            try:
                self._copy(where, summary, path)
            except (TrainyardError, OSError) as error:
                notes.append(f"The trace {where} could not be read: {error}")
                continue
            places.append(TracePlace(str(where), str(path)))
        _remove_others(folder, {name for place in places for name in (Path(place.path).name, _mark(place).name)})
        return CopiedTraces(tuple(places), tuple(notes))

    def _newest(self, job: TrainingJob, notes: list[str]) -> Sequence[tuple[Location, ObjectSummary]]:
        try:
            found = find_traces(self._objects, job)
        except TrainyardError as error:
            notes.append(f"The traces of the job could not be listed: {error}")
            return ()
        if len(found) > MAX_TRACES:
            notes.append(f"The job has {len(found)} traces; the newest {MAX_TRACES} are read.")
        return found[:MAX_TRACES]

    def _copy(self, where: Location, summary: ObjectSummary, path: Path) -> None:
        if not path.exists():
            copy_trace(self._objects, where, path, size_bytes=summary.size)


def find_traces(objects: ObjectStore, job: TrainingJob) -> Sequence[tuple[Location, ObjectSummary]]:
    """Return where the traces of a job are stored, the newest first."""
    found = [
        (Location(prefix.bucket, each.key), each)
        for prefix in _prefixes(job)
        for each in _list(objects, prefix)
        if _TRACE.search(each.key)
    ]
    return sorted(found, key=lambda each: each[1].modified_at, reverse=True)


def copy_trace(objects: ObjectStore, where: Location, path: Path, *, size_bytes: int) -> None:
    """Copy a trace into a file of the yard, which appears when it is complete."""
    make_folder(path.parent, parents=True)
    require_space(reserve_of(path.parent), size_bytes)
    new = path.with_name(f".{path.name}.new")
    try:
        with objects.open(where) as reader, new.open("wb") as file:
            offset = 0
            while offset < reader.info.size and (data := reader.read(offset, _CHUNK_BYTES)):
                file.write(data)
                offset += len(data)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def read_mark(place: TracePlace) -> str | None:
    """Return why a copy cannot be read, empty if it can; None if nobody has tried."""
    try:
        return _mark(place).read_text()
    except FileNotFoundError:
        return None


def write_mark(place: TracePlace, fault: str) -> None:
    _mark(place).write_text(fault)


def _mark(place: TracePlace) -> Path:
    path = Path(place.path)
    return path.with_name(f"{path.name}.checked")


def _list(objects: ObjectStore, prefix: Location) -> Iterator[ObjectSummary]:
    after = ""
    for _ in range(MAX_PAGES):
        page = objects.list_objects(prefix.bucket, prefix=prefix.key, after=after)
        yield from page.objects
        if page.next_after is None:
            return
        after = page.next_after


def _prefixes(job: TrainingJob) -> Iterator[Location]:
    """The places of traces: what the hook and the agent stored, otherwise what the program wrote for TensorBoard."""
    plan = job.plan
    if plan.profiler is not None and plan.profiler.is_enabled:
        # The agent stores the traces for TensorBoard here too.
        yield parse_s3_uri(f"{plan.profiler.uri.rstrip('/')}/framework/", job.account)
    elif plan.tensorboard_uri:
        yield parse_s3_uri(f"{plan.tensorboard_uri.rstrip('/')}/", job.account)


def _copy_name(where: Location, summary: ObjectSummary) -> str:
    digest = hashlib.sha256(f"{where} {summary.etag}".encode()).hexdigest()[:32]
    return f"{digest}.json.gz" if where.key.endswith(".gz") else f"{digest}.json"


def _remove_others(folder: Path, names: set[str]) -> None:
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name not in names:
                path.unlink(missing_ok=True)
