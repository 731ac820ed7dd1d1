"""Asks the reading process about the traces of jobs, and copies those that it has not read yet to where it can."""

import contextlib
import logging
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, TypeVar

from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import InvalidRequest, NotFound, Unavailable
from trainyard.foundation.extras import YARD_PYTHON, missing_extra, missing_module
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.locations import parse_s3_uri
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.objects.contract import ObjectStore
from trainyard.server.control.profiling.trace_copies import copy_trace
from trainyard.server.control.worker_messages import BlobAnswer, Parcel, cut_blobs, receive_answer, send
from trainyard.server.control.worker_process import RecentFailures, ShortQueue, WorkerProcess, WorkerWasIdle
from trainyard.server.traces.contract import (
    PartAnswer,
    PartQuestion,
    SearchAnswer,
    SearchQuestion,
    SliceAnswer,
    SliceQuestion,
    SummaryQuestion,
    TraceFile,
    TraceSummary,
)

log = logging.getLogger(__name__)

# Includes the start of the process, and the first reading of a trace of gigabytes.
ANSWER_TIMEOUT = timedelta(seconds=150)
# Callers of the API wait for the process, each in a thread that others need too.
MAX_WAITING, MAX_WAIT_S = 6, 60.0
MAX_TRACE_BYTES = 4 * 1024**3
# Of the tables of all traces; those that were not asked for lately are removed.
MAX_TABLES_BYTES = 4 * 1024**3
# How long nobody asks about a trace that ended the process.
REST_S = 60.0

_PROGRAM = "trainyard.server.traces.trace_process"
_BUSY = "The yard reads other traces now; try again in a few seconds."
TABLES_SUFFIX = ".trace"

Question = SummaryQuestion | PartQuestion | SearchQuestion | SliceQuestion
Answer = TypeVar("Answer", TraceSummary, PartAnswer, SearchAnswer, SliceAnswer)


class TraceReader:
    """Reads the traces of jobs. Safe to share between threads.

    Every question raises InvalidRequest if the yard lacks a package or the trace is too large, NotFound for what the
    trace does not have, and Unavailable if the yard is too busy or the trace cannot be read.
    """

    def __init__(
        self,
        objects: ObjectStore,
        folder: Path,
        *,
        command: Sequence[str] = (sys.executable, "-m", _PROGRAM),
        limit: timedelta = ANSWER_TIMEOUT,
    ) -> None:
        self._objects, self._folder, self._limit = objects, folder, limit
        self._process = WorkerProcess((*command, str(folder)), role="reading of the trace")
        self._queue = ShortQueue(max_waiting=MAX_WAITING, max_wait_s=MAX_WAIT_S, busy=_BUSY)
        self._failures = RecentFailures(rest_s=REST_S)

    def summarize(self, job: TrainingJob, file: TraceFile, question: SummaryQuestion) -> BlobAnswer[TraceSummary]:
        return self._ask(job, file, question, TraceSummary)

    def read_part(self, job: TrainingJob, file: TraceFile, question: PartQuestion) -> BlobAnswer[PartAnswer]:
        return self._ask(job, file, question, PartAnswer)

    def search(self, job: TrainingJob, file: TraceFile, question: SearchQuestion) -> BlobAnswer[SearchAnswer]:
        return self._ask(job, file, question, SearchAnswer)

    def describe_slice(self, job: TrainingJob, file: TraceFile, question: SliceQuestion) -> BlobAnswer[SliceAnswer]:
        return self._ask(job, file, question, SliceAnswer)

    def close(self) -> None:
        # Also releases a thread that waits for an answer.
        self._process.retire()
        with self._queue.patient_turn():
            self._process.end()
            with contextlib.suppress(OSError):
                remove_tree(self._folder)

    def _ask(self, job: TrainingJob, file: TraceFile, question: Question, kind: type[Answer]) -> BlobAnswer[Answer]:
        module = missing_module("profiler")
        if module is not None:
            raise missing_extra("profiler", module, where=YARD_PYTHON)
        if file.size_bytes > MAX_TRACE_BYTES:
            raise InvalidRequest(f"{file.uri} has {file.size_bytes:,} bytes, more than the yard reads. Download it.")
        with self._queue.turn():
            self._refuse_failed(file.id)
            try:
                parcel = self._converse(job, file, question)
            except Unavailable as error:
                self._note_failure(file, error)
                raise
        _raise_error(parcel.message, file)
        answer = from_plain(kind, parcel.message["answer"])
        return BlobAnswer(answer, dict(cut_blobs(parcel)))

    def _converse(self, job: TrainingJob, file: TraceFile, question: Question) -> Parcel:
        parcel = self._exchange(file, "", question)
        if not parcel.message.get("is_unread"):
            return parcel
        copy = self._folder / f"{file.id}.json{'.gz' if file.uri.endswith('.gz') else ''}"
        try:
            copy_trace(self._objects, parse_s3_uri(file.uri, job.account), copy, size_bytes=file.size_bytes)
            return self._exchange(file, str(copy), question)
        finally:
            copy.unlink(missing_ok=True)
            self._remove_old_tables()

    def _exchange(self, file: TraceFile, path: str, question: Question) -> Parcel:
        asked = {"trace": file.id, "path": path, "ask": type(question).__name__, "question": to_plain(question)}

        def talk(questions: IO[bytes], answers: IO[bytes]) -> Parcel:
            send(questions, asked)
            return receive_answer(answers)

        self._process.begin()
        try:
            return self._process.converse(talk, self._limit)
        except WorkerWasIdle:
            self._process.begin()
            return self._process.converse(talk, self._limit)

    def _remove_old_tables(self) -> None:
        with contextlib.suppress(OSError):
            files = [path for path in self._folder.iterdir() if path.suffix == TABLES_SUFFIX]
            sizes = {path: path.stat() for path in files}
            left = sum(each.st_size for each in sizes.values())
            for path in sorted(files, key=lambda each: sizes[each].st_mtime)[:-1]:
                if left <= MAX_TABLES_BYTES:
                    break
                left -= sizes[path].st_size
                path.unlink()

    def _refuse_failed(self, trace_id: str) -> None:
        """Raise if reading a trace has just ended the process, which it would do again."""
        if self._failures.has(trace_id):
            raise Unavailable(
                "Reading this trace took more than a reading may use. The yard tries again in a minute; to look at the "
                "trace meanwhile, download it and open it in Perfetto."
            )

    def _note_failure(self, file: TraceFile, error: Unavailable) -> None:
        if self._process.is_retired:
            return
        log.warning("a trace cannot be read", extra={"trace": file.uri, "why": error.message})
        self._failures.add(file.id)


def _raise_error(message: Mapping[str, Any], file: TraceFile) -> None:
    """Raise the error that the process answered, if it did."""
    if "error" not in message:
        return
    text = str(message["error"])
    if message["kind"] == "NotFound":
        raise NotFound("slice", text)
    log.warning("a trace cannot be read", extra={"trace": file.uri, "why": text})
    raise InvalidRequest(f"{file.uri} cannot be read: {text}")
