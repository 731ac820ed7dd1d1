"""Draws the conclusions about the profiles of jobs: asks the evaluation process, one question at a time.

The conclusion about a job that has ended is kept in the job's folder. That about a running job is remembered as long as
a new one would cost too much.
"""

import contextlib
import json
import logging
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from trainyard.engines.catalog import Catalog, InstanceType
from trainyard.formats.profiles.step_times import HEADER, SUFFIX
from trainyard.foundation.clock import Clock, to_micros
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import Corrupt, InvalidRequest, TrainyardError, Unavailable
from trainyard.foundation.extras import YARD_PYTHON, missing_extra, missing_module
from trainyard.foundation.files import make_folder, replace_file
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.rules import profiler_rule_states
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.objects.contract import ObjectStore
from trainyard.server.control.profiling.contract import (
    REPORT_RULE,
    EvaluationQuestion,
    OfferedType,
    ProfileConclusion,
    RuleQuestion,
    RunQuestion,
    SourcePlace,
    TracePlace,
    TraceQuestion,
)
from trainyard.server.control.profiling.report_storage import PAGE
from trainyard.server.control.profiling.trace_copies import CopiedTraces, TraceCopies, read_mark, write_mark
from trainyard.server.control.worker_process import Message, ShortQueue, WorkerProcess, WorkerWasIdle
from trainyard.server.jobs.profiled_runs import find_earlier_runs, store_run
from trainyard.server.records.contract import Records, Resource, ResourceId

log = logging.getLogger(__name__)

# Includes the start of the process. A machine that is busy with jobs leaves it little time.
ANSWER_TIMEOUT = timedelta(minutes=5)
# Callers of the API wait for the process, each in a thread that others need too.
MAX_WAITING, MAX_WAIT_S = 4, 30.0
# How long a conclusion about a running job is remembered, at least, and in proportion to what a new one costs.
FRESH_S, FRESH_PER_CPU_S = 5.0, 20.0
MAX_REMEMBERED = 32

_PROGRAM = "trainyard.server.control.profiling.evaluation_process"
_FOLDER, _CONCLUSION, _REPORT, _CACHE, _TRACES = "profile", "conclusion.json", "report", "cache", "traces"
_PAGE = "page"
_MAX_CONCLUSION_BYTES = 64 * 1024**2
_GIB = 1024**3
_CURRENCY = "USD"
_BUSY = "The yard evaluates other profiles now; try again in a few seconds."


class EvaluationFailed(TrainyardError):
    """A profile could not be evaluated, and another try would fail as well."""


class EvaluationProcess(WorkerProcess):
    """The evaluation process of a yard."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", _PROGRAM)) -> None:
        super().__init__(command, role="evaluation of the profile")


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A conclusion, and the folder with its files: one folder for each rule, named after its position."""

    conclusion: ProfileConclusion
    folder: Path


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The last evaluation of a job: when it was (by the monotonic clock), its cost, and its conclusion or failure."""

    at: float
    cost_s: float
    conclusion: ProfileConclusion | None
    failure: str


@dataclass(frozen=True, slots=True)
class _CheckedTraces:
    """The traces that can be read, and how many seconds it took to find out."""

    traces: CopiedTraces
    cost_s: float


class ProfileConclusions:
    """The conclusions of a yard. Safe to share between threads."""

    def __init__(
        self,
        records: Records,
        objects: ObjectStore,
        catalog: Catalog,
        jobs: Path,
        clock: Clock,
        *,
        process: WorkerProcess | None = None,
        limit: timedelta = ANSWER_TIMEOUT,
    ) -> None:
        self._records, self._catalog, self._jobs, self._clock = records, catalog, jobs, clock
        self._traces = TraceCopies(objects)
        self._process = process or EvaluationProcess()
        self._limit = limit
        # Who evaluates removes files as well, and nobody may remove them from under an evaluation.
        self._queue = ShortQueue(max_waiting=MAX_WAITING, max_wait_s=MAX_WAIT_S, busy=_BUSY)
        self._remembered: OrderedDict[ResourceId, _Remembered] = OrderedDict()

    def read(self, resource: Resource, job: TrainingJob) -> ProfileConclusion:
        """Return what is known about a job now, from a few seconds ago at most if that costs little.

        Raises Unavailable if the yard is too busy, and InvalidRequest if it lacks a package.
        """
        known = self._load(resource.id)
        if known is not None and known.is_final:
            return known
        if not job.attempts:
            return ProfileConclusion({"summary": "The job has not run yet."}, to_micros(self._clock()))
        try:
            if (fresh := self._fresh(resource.id, job)) is not None:
                return fresh
            with self._queue.turn():
                # Another caller may have asked for the same job meanwhile.
                return self._fresh(resource.id, job) or self._conclude(resource, job, report="")
        except (EvaluationFailed, Unavailable) as error:
            if known is None:
                raise Unavailable(error.message) from error
            return replace(known, notes=(*known.notes, f"This is an earlier conclusion: {error.message}"))

    def write_report(self, resource: Resource, job: TrainingJob) -> WrittenReport:
        """Evaluate a job and write its report. One thread at a time may call this, and use what it returns."""
        folder = self._folder(resource.id) / _REPORT
        with self._queue.patient_turn():
            self._require_files(resource.id)
            _remove(folder)
            make_folder(folder, parents=True)
            return WrittenReport(self._conclude(resource, job, report=str(folder)), folder)

    def summarize_run(self, resource: Resource, job: TrainingJob) -> None:
        """Store the summary of a job that has ended, for later runs. Reads no traces, and starts nothing in vain.

        One thread at a time may call this.
        """
        known = self._load(resource.id)
        sources = tuple(self._sources(resource.id, job))
        if (known is not None and known.is_final) or not any(_has_steps(Path(each.steps)) for each in sources):
            return
        ended_at = job.ended_at
        assert ended_at is not None, "the job has ended"
        question = RunQuestion(job.name, to_micros(_started_at(job)), to_micros(ended_at), sources)
        with self._queue.patient_turn():
            answer = self._exchange({"run": to_plain(question)})
        _raise_error(answer, job.name)
        if answer["run"] is not None:
            store_run(self._records, job, resource.id, answer["run"], now=self._clock())

    def read_page(self, resource: Resource, job: TrainingJob) -> bytes:
        """Return the page of the report as of now. A job needs no rule for it, and nothing of it is kept.

        Raises Unavailable if the yard is too busy or the page cannot be written, and InvalidRequest if there is nothing
        to write or a package is missing.
        """
        if not job.attempts:
            raise InvalidRequest(f'Training job "{job.name}" has not run yet, so there is nothing to report.')
        folder = self._folder(resource.id) / _PAGE
        with self._queue.turn():
            try:
                self._require_files(resource.id)
                _remove(folder)
                make_folder(folder, parents=True)
                rule = RuleQuestion(REPORT_RULE, REPORT_RULE)
                conclusion = self._evaluate(resource, job, report=str(folder), rules=(rule,))
                return (folder / "0" / PAGE).read_bytes()
            except FileNotFoundError as error:
                raise Unavailable(f"The report could not be written. {' '.join(conclusion.notes)}") from error
            except EvaluationFailed as error:
                raise Unavailable(error.message) from error
            finally:
                _remove(folder)
                if job.is_final:
                    self.discard_files(resource.id, is_final=True)

    def discard_files(self, job_id: ResourceId, *, is_final: bool) -> None:
        """Remove the report, which is stored elsewhere now; after the last evaluation also the copies of traces."""
        with self._queue.patient_turn():
            for name in (_REPORT, *((_CACHE, _TRACES) if is_final else ())):
                _remove(self._folder(job_id) / name)

    def close(self) -> None:
        # Also releases a thread that waits for an answer.
        self._process.retire()
        with self._queue.patient_turn():
            self._process.end()

    def _fresh(self, job_id: ResourceId, job: TrainingJob) -> ProfileConclusion | None:
        """Return what was concluded a moment ago, and raise the error of what failed then."""
        known = self._remembered.get(job_id)
        if known is None or time.monotonic() - known.at > max(FRESH_S, FRESH_PER_CPU_S * known.cost_s):
            return None
        if known.failure:
            raise EvaluationFailed(known.failure)
        # A job that has ended since is worth another look.
        return known.conclusion if known.conclusion is not None and not job.is_final else None

    def _conclude(self, resource: Resource, job: TrainingJob, *, report: str) -> ProfileConclusion:
        started = time.monotonic()
        try:
            conclusion = self._evaluate(resource, job, report=report, rules=_rules_of(job))
        except (EvaluationFailed, Unavailable) as error:
            self._remember(resource.id, cost_s=time.monotonic() - started, failure=error.message)
            raise
        self._remember(resource.id, cost_s=conclusion.cpu_s, conclusion=conclusion)
        self._store(resource.id, conclusion)
        if conclusion.is_final and conclusion.run is not None:
            store_run(self._records, job, resource.id, conclusion.run, now=self._clock())
        if conclusion.is_final and not report:
            self.discard_files(resource.id, is_final=True)
        return conclusion

    def _remember(
        self, job_id: ResourceId, *, cost_s: float, conclusion: ProfileConclusion | None = None, failure: str = ""
    ) -> None:
        self._remembered[job_id] = _Remembered(time.monotonic(), cost_s, conclusion, failure)
        self._remembered.move_to_end(job_id)
        while len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)

    def _require_files(self, job_id: ResourceId) -> None:
        if not (self._jobs / job_id).is_dir():
            raise EvaluationFailed("The files of the job are not here: they were removed, or another yard ran the job.")

    def _evaluate(
        self, resource: Resource, job: TrainingJob, *, report: str, rules: Sequence[RuleQuestion]
    ) -> ProfileConclusion:
        module = missing_module("profiler")
        if module is not None:
            raise missing_extra("profiler", module, where=YARD_PYTHON)
        self._require_files(resource.id)
        make_folder(self._folder(resource.id))
        traces = self._traces.fetch(job, self._folder(resource.id) / _TRACES)
        checked = self._check_traces(traces, cache=self._folder(resource.id) / _CACHE)
        conclusion = self._ask(self._question(resource, job, checked.traces, report=report, rules=rules))
        return replace(conclusion, cpu_s=conclusion.cpu_s + checked.cost_s)

    def _check_traces(self, traces: CopiedTraces, *, cache: Path) -> "_CheckedTraces":
        """Read each new trace alone: one that is too much for the process shall not cost the others."""
        places, notes, cost_s = [], list(traces.notes), 0.0
        for place in traces.places:
            fault = read_mark(place)
            if fault is None:
                started = time.monotonic()
                fault = self._try_trace(place, cache)
                write_mark(place, fault)
                cost_s += time.monotonic() - started
            if fault:
                notes.append(f"The trace {place.uri} is left out: {fault}")
            else:
                places.append(place)
        return _CheckedTraces(CopiedTraces(tuple(places), tuple(notes)), cost_s)

    def _try_trace(self, place: TracePlace, cache: Path) -> str:
        """Return why a trace cannot be read; empty if it can."""
        try:
            answer = self._exchange({"trace": to_plain(TraceQuestion(place.path, str(cache)))})
        except Unavailable as error:
            if self._process.is_retired:
                raise
            log.warning("a trace cannot be read", extra={"trace": place.uri, "why": error.message})
            return f"reading it takes more than an evaluation may use. {error.message}"
        return _last_line(str(answer.get("error", "")))

    def _question(
        self,
        resource: Resource,
        job: TrainingJob,
        traces: CopiedTraces,
        *,
        report: str,
        rules: Sequence[RuleQuestion],
    ) -> EvaluationQuestion:
        folder = self._folder(resource.id)
        return EvaluationQuestion(
            job=job.name,
            job_arn=job.arn,
            region=job.region,
            now_us=to_micros(self._clock()),
            started_us=to_micros(_started_at(job)),
            ended_us=to_micros(job.ended_at) if job.ended_at else None,
            sources=tuple(self._sources(resource.id, job)),
            rules=tuple(rules),
            traces=traces.places,
            earlier=tuple(find_earlier_runs(self._records, job, resource.id)),
            instance_types=tuple(self._instance_types(job)),
            notes=traces.notes,
            report=report,
            cache=str(folder / _CACHE),
        )

    def _sources(self, job_id: ResourceId, job: TrainingJob) -> Iterator[SourcePlace]:
        types = dict(zip(job.plan.hosts, job.plan.instance_types, strict=True))
        for attempt in job.attempts:
            for instance in attempt.instances:
                folder = InstanceRef(AttemptRef(job_id, attempt.number), instance.name).folder(self._jobs)
                kind = self._catalog[types[instance.name]]
                share = instance.share
                yield SourcePlace(
                    host=instance.name,
                    hardware=str(folder.hardware),
                    steps=str(folder.steps),
                    instance_type=kind.name,
                    cores=share.cpus if share.cpus is not None else kind.cpus,
                    memory_bytes=share.memory_bytes if share.memory_bytes is not None else _memory_bytes(kind),
                    gpus=_gpus(kind, len(share.gpus)),
                    price_per_hour=kind.price_usd(is_spot=job.plan.is_spot) or None,
                    currency=_CURRENCY,
                )

    def _instance_types(self, job: TrainingJob) -> Iterator[OfferedType]:
        """Yield the types whose prices somebody has set: nobody saves money by prices that are guessed."""
        for kind in self._catalog:
            if kind.has_set_price:
                yield OfferedType(
                    kind.name,
                    kind.price_usd(is_spot=job.plan.is_spot),
                    _CURRENCY,
                    cores=kind.cpus,
                    memory_bytes=_memory_bytes(kind),
                    gpus=_gpus(kind, kind.gpus or 0),
                )

    def _ask(self, question: EvaluationQuestion) -> ProfileConclusion:
        """Ask the process; if it dies, once more without the traces, which are the likeliest reason."""
        try:
            answer = self._exchange({"profile": to_plain(question)})
        except Unavailable as error:
            if not question.traces or self._process.is_retired:
                raise
            log.warning("a profile is evaluated without its traces", extra={"job": question.job, "why": error.message})
            note = f"{len(question.traces)} traces were left out: {error.message}"
            without = replace(question, traces=(), notes=(*question.notes, note))
            answer = self._exchange({"profile": to_plain(without)})
        _raise_error(answer, question.job)
        return from_plain(ProfileConclusion, answer)

    def _exchange(self, question: Message) -> Message:
        self._process.begin()
        try:
            return self._process.ask(question, self._limit)
        except WorkerWasIdle:
            self._process.begin()
            return self._process.ask(question, self._limit)

    def _folder(self, job_id: ResourceId) -> Path:
        return self._jobs / job_id / _FOLDER

    def _load(self, job_id: ResourceId) -> ProfileConclusion | None:
        try:
            with (self._folder(job_id) / _CONCLUSION).open("rb") as file:
                return from_plain(ProfileConclusion, json.loads(file.read(_MAX_CONCLUSION_BYTES)))
        except (OSError, ValueError, Corrupt):
            # Another version may have written it.
            return None

    def _store(self, job_id: ResourceId, conclusion: ProfileConclusion) -> None:
        with contextlib.suppress(OSError):
            replace_file(self._folder(job_id) / _CONCLUSION, json.dumps(to_plain(conclusion)).encode())


def _raise_error(answer: Message, job: str) -> None:
    """Raise the error that the process answered, if it did."""
    if answer.get("is_missing"):
        raise InvalidRequest(str(answer["error"]))
    if "error" in answer:
        log.warning("a profile could not be evaluated", extra={"job": job, "why": answer["error"]})
        raise EvaluationFailed(f"The profile could not be evaluated: {_last_line(str(answer['error']))}")


def _has_steps(folder: Path) -> bool:
    """Whether a rank has recorded any step."""
    try:
        with os.scandir(folder) as entries:
            return any(
                entry.name.endswith(SUFFIX) and entry.stat(follow_symlinks=False).st_size > len(HEADER)
                for entry in entries
            )
    except OSError:
        return False


def _remove(folder: Path) -> None:
    # What is left is removed with the job.
    with contextlib.suppress(OSError):
        remove_tree(folder)


def _memory_bytes(kind: InstanceType) -> int | None:
    return int(kind.memory_gib * _GIB) if kind.memory_gib is not None else None


def _gpus(kind: InstanceType, count: int) -> tuple[str, ...]:
    """Return names for the GPUs of a type: those of one family are alike."""
    return (f"GPU of {kind.name.rpartition('.')[0]}",) * count


def _rules_of(job: TrainingJob) -> Sequence[RuleQuestion]:
    rules = job.plan.profiler.rules if job.plan.profiler else ()
    return [
        RuleQuestion(rule.name, rule.rule, rule.parameters, state.status)
        for rule, state in zip(rules, profiler_rule_states(job), strict=True)
    ]


def _started_at(job: TrainingJob) -> datetime:
    return job.started_at or job.created_at


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""
