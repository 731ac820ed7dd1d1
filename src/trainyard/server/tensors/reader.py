"""Asks the reading process about the tensors of jobs, and gives it the files that it asks for."""

import contextlib
import logging
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, TypeVar

from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import InvalidRequest, NotFound, TrainyardError, Unavailable
from trainyard.foundation.extras import YARD_PYTHON, missing_extra, missing_module
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.foundation.sources import ByteSource
from trainyard.objects.contract import ObjectStore
from trainyard.objects.sources import ObjectSource
from trainyard.server.control.worker_messages import MAX_PART_BYTES, BlobAnswer, Parcel, cut_blobs, receive_answer, send
from trainyard.server.control.worker_process import RecentFailures, ShortQueue, WorkerProcess, WorkerWasIdle
from trainyard.server.tensors.contract import (
    GridAnswer,
    GridQuestion,
    HistogramsAnswer,
    HistogramsQuestion,
    KnownTensors,
    TensorsQuestion,
    ValuesAnswer,
    ValuesQuestion,
)

log = logging.getLogger(__name__)

# Includes the start of the process, and the first reading of a long run.
ANSWER_TIMEOUT = timedelta(seconds=90)
# Callers of the API wait for the process, each in a thread that others need too.
MAX_WAITING, MAX_WAIT_S = 6, 30.0
# How long nobody asks about a trial that ended the process.
REST_S = 60.0

_PROGRAM = "trainyard.server.tensors.trial_process"
_BUSY = "The yard reads the tensors of other jobs now; try again in a few seconds."

Question = TensorsQuestion | GridQuestion | HistogramsQuestion | ValuesQuestion
Answer = TypeVar("Answer", KnownTensors, GridAnswer, HistogramsAnswer, ValuesAnswer)


class TensorReader:
    """Reads the tensors of jobs. Safe to share between threads.

    Every question raises InvalidRequest if the job captures no tensors or the yard lacks a package, NotFound for what
    the trial does not have, and Unavailable if the yard is too busy or the trial cannot be read.
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
        self._process = WorkerProcess((*command, str(folder)), role="reading of the tensors")
        self._queue = ShortQueue(max_waiting=MAX_WAITING, max_wait_s=MAX_WAIT_S, busy=_BUSY)
        self._failures = RecentFailures(rest_s=REST_S)

    def list_tensors(self, job: TrainingJob, question: TensorsQuestion) -> BlobAnswer[KnownTensors]:
        return self._ask(job, question, KnownTensors)

    def read_grid(self, job: TrainingJob, question: GridQuestion) -> BlobAnswer[GridAnswer]:
        return self._ask(job, question, GridAnswer)

    def read_histograms(self, job: TrainingJob, question: HistogramsQuestion) -> BlobAnswer[HistogramsAnswer]:
        return self._ask(job, question, HistogramsAnswer)

    def read_values(self, job: TrainingJob, question: ValuesQuestion) -> BlobAnswer[ValuesAnswer]:
        return self._ask(job, question, ValuesAnswer)

    def close(self) -> None:
        # Also releases a thread that waits for an answer.
        self._process.retire()
        with self._queue.patient_turn():
            self._process.end()
            with contextlib.suppress(OSError):
                remove_tree(self._folder)

    def _ask(self, job: TrainingJob, question: Question, kind: type[Answer]) -> BlobAnswer[Answer]:
        module = missing_module("debugger")
        if module is not None:
            raise missing_extra("debugger", module, where=YARD_PYTHON)
        source = ObjectSource(self._objects, tensor_location(job))
        # Two accounts may each have a bucket of that name.
        place = f"{source.where.bucket.account} {source.place}"
        with self._queue.turn():
            self._refuse_failed(place)
            try:
                parcel = self._exchange(source, place, question)
            except WorkerWasIdle:
                parcel = self._exchange(source, place, question)
            except Unavailable as error:
                self._note_failure(place, error)
                raise
        _raise_error(parcel.message, job.name)
        answer = from_plain(kind, parcel.message["answer"])
        return BlobAnswer(answer, dict(cut_blobs(parcel)))

    def _exchange(self, source: ByteSource, place: str, question: Question) -> Parcel:
        self._process.begin()

        def talk(questions: IO[bytes], answers: IO[bytes]) -> Parcel:
            send(questions, {"place": place, "ask": type(question).__name__, "question": to_plain(question)})
            while True:
                told = receive_answer(answers)
                if "file" not in told.message:
                    return told
                _serve_file(questions, source, told.message)

        return self._process.converse(talk, self._limit)

    def _refuse_failed(self, place: str) -> None:
        """Raise if reading a trial has just ended the process, which it would do again."""
        if self._failures.has(place):
            raise Unavailable(
                "Reading the tensors of this job took more than a reading may use. The yard tries again in a minute."
            )

    def _note_failure(self, place: str, error: Unavailable) -> None:
        if self._process.is_retired:
            return
        log.warning("the tensors of a job cannot be read", extra={"trial": place, "why": error.message})
        self._failures.add(place)


def tensor_location(job: TrainingJob) -> Location:
    """Return where the tensors of a job are. InvalidRequest if it captures none."""
    if job.plan.debugger is None:
        raise InvalidRequest(
            f'Training job "{job.name}" captured no tensors: it was created without a DebugHookConfig. Set '
            "debugger_hook_config or rules on the estimator."
        )
    return parse_s3_uri(job.plan.debugger.uri.rstrip("/"), job.account)


def _serve_file(questions: IO[bytes], source: ByteSource, asked: Mapping[str, Any]) -> None:
    """Answer what the process asks about files. It may ask for anything below the location, and for nothing else."""
    name, message, body = str(asked["name"]), dict[str, Any](), b""
    try:
        if asked["file"] == "entries":
            found = source.entries(name, after=str(asked["after"]))
            message = {"entries": [[each.name, each.size] for each in found]}
        elif asked["file"] == "folders":
            message = {"folders": list(source.folders(name, after=str(asked["after"])))}
        elif asked["file"] == "size":
            message = {"size": source.size(name)}
        else:
            start, size = max(0, int(asked["start"])), min(MAX_PART_BYTES, int(asked["size"]))
            body = source.read(name, start=start, size=size)
    except NotFound:
        message = {"is_missing": True}
    except TrainyardError as error:
        message = {"error": error.message}
    send(questions, message, body)


def _raise_error(message: Mapping[str, Any], job: str) -> None:
    """Raise the error that the process answered, if it did."""
    if "error" not in message:
        return
    text = str(message["error"])
    if message["kind"] == "NotFound":
        raise TensorNotFound(text)
    if message["kind"] == "InvalidRequest":
        raise InvalidRequest(text)
    log.warning("the tensors of a job cannot be read", extra={"job": job, "why": text})
    raise TensorNotFound(text)


class TensorNotFound(NotFound):
    """The trial does not have what was asked for, or it cannot be read there."""

    def __init__(self, message: str) -> None:
        TrainyardError.__init__(self, message)
        self.kind, self.name = "tensor", ""
