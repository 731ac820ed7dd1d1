"""The profile of a job, and what it means, at any time: its description, report, samples and steps, and more of it."""

import asyncio
import json
import os
import re
import stat
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.formats.profiles.hardware_segments import hardware_segments
from trainyard.formats.profiles.hardware_summary import SummaryPeriods, summarize, time_range
from trainyard.formats.profiles.step_times import (
    FACTS_SUFFIX,
    HEADER,
    MAX_BYTES,
    MAX_FACTS_BYTES,
    ROW_BYTES,
    SUFFIX,
    TRAIN,
    StepRow,
    decode_rows,
)
from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.rules import profiler_rule_states
from trainyard.foundation.locations import parse_s3_uri
from trainyard.link.contract import CommandKind
from trainyard.link.folders import AttemptRef, InstanceFolder, InstanceRef
from trainyard.link.mailbox import Mailbox
from trainyard.server.control.profiling.contract import ProfileConclusion, RuleConclusion
from trainyard.server.control.profiling.report_storage import report_page
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.visibility import load_visible

_NDJSON, _HTML = "application/x-ndjson", "text/html; charset=utf-8"
_BATCH = 4096  # samples or rows in a line
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOREVER_US = 2**62
_WORKER = re.compile(r"worker_[0-9]{1,7}(-[0-9]{1,10})?")
_FINDING_TEXTS = ("host", "worker", "device", "severity")
_FINDING_NUMBERS = ("value", "threshold")


def describe_profile(call: Call, shape: Shape) -> Shape:
    """Return what the profile of a job means now."""
    resource = load_visible(call, KIND, shape["TrainingJobName"])
    job = job_of(resource)
    if call.yard.conclusions is None:
        raise Unavailable("This yard does not evaluate profiles.")
    conclusion = call.yard.conclusions.read(resource, job)
    return {
        "TrainingJobName": job.name,
        "Verdict": dict(conclusion.verdict),
        "Rules": _rules(job, conclusion),
        "Phases": [_phases(each) for each in conclusion.phases],
        "Hardware": [_series(each) for each in conclusion.hardware],
        "Report": _report(call, job),
        "ProfilerOutput": _profiler_output(job),
        "Notes": list(conclusion.notes),
        "EvaluatedAt": from_micros(conclusion.evaluated_us),
    }


async def read_profiler_report(call: Call, shape: Shape) -> Shape:
    """Return the page of the report, written now."""
    if call.yard.conclusions is None:
        raise Unavailable("This yard does not evaluate profiles.")
    resource = await asyncio.to_thread(load_visible, call, KIND, shape["TrainingJobName"])
    page = await asyncio.to_thread(call.yard.conclusions.read_page, resource, job_of(resource))
    return {"ContentType": _HTML, "Page": _whole(page)}


async def read_hardware(call: Call, shape: Shape) -> Shape:
    """Stream the samples of the hardware, attempt by attempt and instance by instance."""
    resource = await asyncio.to_thread(load_visible, call, KIND, shape["TrainingJobName"])
    selection = _SampleSelection.of(shape)
    instances = list(_instances(call, resource, job_of(resource)))
    return {"ContentType": _NDJSON, "Samples": _stream(_hardware_lines(instances, selection))}


async def read_steps(call: Call, shape: Shape) -> Shape:
    """Stream the step times of each worker, and what is known about its program."""
    resource = await asyncio.to_thread(load_visible, call, KIND, shape["TrainingJobName"])
    instances = list(_instances(call, resource, job_of(resource)))
    return {"ContentType": _NDJSON, "Steps": _stream(_step_lines(instances, shape))}


def profile_job(call: Call, shape: Shape) -> Shape:
    """Ask the running program for a detailed profile of its next steps."""
    resource = load_visible(call, KIND, shape["TrainingJobName"])
    job = job_of(resource)
    attempt = job.attempt
    if job.status is not Status.IN_PROGRESS or job.secondary is not SecondaryStatus.TRAINING or attempt is None:
        raise Conflict(
            "training job", job.name, f"is {job.secondary}; only the steps of a job in Training can be profiled"
        )
    if job.plan.profiler is None or not job.plan.profiler.is_enabled:
        raise Conflict(
            "training job", job.name, "has its profiler disabled; enable it with UpdateTrainingJob, then profile steps"
        )
    engine = call.yard.compute.engines[job.plan.engine]
    payload = {"steps": shape["Steps"], "token": shape.get("ClientToken", "")}
    for instance in attempt.instances:
        ref = InstanceRef(AttemptRef(resource.id, attempt.number), instance.name)
        if not instance.has_ended and not _was_asked(ref.folder(call.yard.compute.jobs), payload["token"]):
            engine.command(ref, CommandKind.PROFILE, payload)
    return {"ProfilerOutput": _profiler_output(job)}


OPERATIONS: Operations = {
    "DescribeProfile": describe_profile,
    "ReadProfilerReport": read_profiler_report,
    "ReadHardware": read_hardware,
    "ReadSteps": read_steps,
    "ProfileJob": profile_job,
}


@dataclass(frozen=True, slots=True)
class WorkerSteps:
    """The training steps of one worker, and what is known about its program."""

    name: str
    rows: Sequence[StepRow]
    facts: Mapping[str, object]


def read_training_steps(call: Call, resource: Resource, job: TrainingJob) -> Iterator[WorkerSteps]:
    """Yield the training steps of each worker of the last attempt of a job."""
    last = max((attempt.number for attempt in job.attempts), default=0)
    for each in _instances(call, resource, job):
        for file in _step_files(each.folder.steps) if each.attempt == last else ():
            rows = [row for batch in _row_batches(file, last=None, spread=None) for row in batch if row.mode == TRAIN]
            yield WorkerSteps(file.stem, rows, _read_facts(file.with_suffix(FACTS_SUFFIX)))


def _was_asked(folder: InstanceFolder, token: str) -> bool:
    """Whether an instance has the request with this token already, because the caller repeats it."""
    return bool(token) and any(command.payload.get("token") == token for command in Mailbox(folder.mailbox).read(0))


@dataclass(frozen=True, slots=True)
class _ProfiledInstance:
    """The files of one instance in one attempt."""

    name: str
    attempt: int
    folder: InstanceFolder

    @property
    def labels(self) -> dict[str, object]:
        return {"instance": self.name, "attempt": self.attempt}


@dataclass(frozen=True, slots=True)
class _SampleSelection:
    """Which samples are asked for."""

    start_us: int
    end_us: int
    metrics: frozenset[str] | None
    max_points: int | None

    @classmethod
    def of(cls, shape: Shape) -> "_SampleSelection":
        known = {str(metric) for metric in HardwareMetric}
        metrics = shape.get("Metrics")
        for metric in metrics or ():
            if metric not in known:
                raise InvalidRequest(
                    f'"{metric}" is not a metric of the hardware; there are {", ".join(sorted(known))}.'
                )
        return cls(
            _micros(shape.get("StartTime"), 0),
            _micros(shape.get("EndTime"), _FOREVER_US),
            frozenset(metrics) if metrics else None,
            shape.get("MaxPoints"),
        )


def _micros(at: datetime | None, otherwise: int) -> int:
    return to_micros(at) if at is not None else otherwise


def _instances(call: Call, resource: Resource, job: TrainingJob) -> Iterator[_ProfiledInstance]:
    for attempt in job.attempts:
        for instance in attempt.instances:
            folder = InstanceRef(AttemptRef(resource.id, attempt.number), instance.name).folder(call.yard.compute.jobs)
            yield _ProfiledInstance(instance.name, attempt.number, folder)


async def _whole(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


async def _stream(lines: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield lines that are made in a thread, because making one reads files. An empty object is the last."""
    while line := await asyncio.to_thread(next, lines, b""):
        yield line
    yield b"{}\n"


def _hardware_lines(instances: Sequence[_ProfiledInstance], selection: _SampleSelection) -> Iterator[bytes]:
    for each in instances:
        yield from _summary_lines(each, selection) if selection.max_points else _sample_lines(each, selection)


def _sample_lines(instance: _ProfiledInstance, selection: _SampleSelection) -> Iterator[bytes]:
    for segment in hardware_segments(instance.folder.hardware):
        first, stop = segment.number_at(selection.start_us), segment.number_at(selection.end_us)
        for number in range(first, stop, _BATCH):
            columns = segment.columns(number, min(number + _BATCH, stop))
            for series, values in columns.values.items():
                if selection.metrics is not None and series.metric not in selection.metrics:
                    continue
                # A sample without a value has NaN, which is not equal to itself.
                known = [row for row, value in enumerate(values) if value == value]
                if known:
                    yield _line(
                        instance.labels
                        | {"metric": series.metric, "device": series.device}
                        | {"at_us": [columns.times_us[row] for row in known], "values": [values[row] for row in known]}
                    )


def _summary_lines(instance: _ProfiledInstance, selection: _SampleSelection) -> Iterator[bytes]:
    assert selection.max_points is not None, "otherwise all samples are sent"
    times = time_range(instance.folder.hardware)
    if times is None:
        return
    start_us, end_us = max(times[0], selection.start_us), min(times[1] + 1, selection.end_us)
    if start_us >= end_us:
        return
    periods = SummaryPeriods.between(start_us, end_us, count=selection.max_points)
    for series, summary in summarize(instance.folder.hardware, periods, metrics=selection.metrics).items():
        yield _line(
            instance.labels
            | {"metric": series.metric, "device": series.device, "at_us": summary.starts_us, "values": summary.means}
            | {"minima": summary.minima, "maxima": summary.maxima}
        )


def _step_lines(instances: Sequence[_ProfiledInstance], shape: Shape) -> Iterator[bytes]:
    for each in instances:
        for file in _step_files(each.folder.steps):
            labels = each.labels | {"worker": file.stem}
            batches = _row_batches(file, last=shape.get("MaxRows"), spread=shape.get("SpreadRows"))
            if most_groups := shape.get("MaxGroups"):
                groups = _group_rows((row for rows in batches for row in rows), most_groups)
                yield _line(labels | _grouped_columns(groups))
            else:
                yield from (_line(labels | _columns(rows)) for rows in batches)
            yield _line(labels | {"facts": _read_facts(file.with_suffix(FACTS_SUFFIX))})


def _step_files(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - only the names count
    except OSError:
        return []
    return [folder / name for name in names if name.endswith(SUFFIX) and _WORKER.fullmatch(name.removesuffix(SUFFIX))]


def _row_batches(file: Path, *, last: int | None, spread: int | None) -> Iterator[list[StepRow]]:
    """Yield the complete rows of a file in batches: all, only so many `last` ones, or so many evenly `spread` ones."""
    try:
        descriptor = os.open(file, _READ)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or os.pread(descriptor, len(HEADER), 0) != HEADER:
            return
        count = (min(status.st_size, MAX_BYTES) - len(HEADER)) // ROW_BYTES
        first = 0 if last is None else max(0, count - last)
        if spread is not None and count - first > spread:
            numbers = (first + (count - 1 - first) * place // (spread - 1) for place in range(spread))
            yield [row for number in numbers for row in _read_rows(descriptor, number, 1)]
            return
        for number in range(first, count, _BATCH):
            if rows := _read_rows(descriptor, number, min(count - number, _BATCH)):
                yield rows
    finally:
        os.close(descriptor)


def _read_rows(descriptor: int, first: int, count: int) -> list[StepRow]:
    return list(decode_rows(HEADER + os.pread(descriptor, count * ROW_BYTES, len(HEADER) + first * ROW_BYTES)))


@dataclass(slots=True)
class _StepGroup:
    """Rows of one mode in a row, added up."""

    number: int
    mode: str
    started_us: int
    ended_us: int = 0
    steps: int = 0
    slowest_us: float = 0.0
    phases_ns: list[int] = field(default_factory=lambda: [0] * len(StepPhase))

    def add(self, row: StepRow) -> None:
        self.ended_us = max(self.ended_us, row.ended_us)
        self.steps += row.steps
        self.slowest_us = max(self.slowest_us, (row.ended_us - row.started_us) / row.steps)
        for phase, nanoseconds in enumerate(row.phases_ns):
            self.phases_ns[phase] += nanoseconds

    def join(self, other: "_StepGroup") -> None:
        self.ended_us = max(self.ended_us, other.ended_us)
        self.steps += other.steps
        self.slowest_us = max(self.slowest_us, other.slowest_us)
        self.phases_ns = [one + another for one, another in zip(self.phases_ns, other.phases_ns, strict=True)]


def _group_rows(rows: Iterable[StepRow], most: int) -> Sequence[_StepGroup]:
    """Add up neighbours of the same mode, into at most so many groups. Only groups are in memory."""
    groups: list[_StepGroup] = []
    # How many rows a group gets, and the open group of each mode with how many it has.
    size = 1
    last: dict[str, tuple[_StepGroup, int]] = {}
    for row in rows:
        group, count = last.get(row.mode, (None, 0))
        if group is None or count >= size:
            group, count = _StepGroup(row.number, row.mode, row.started_us), 0
            groups.append(group)
        group.add(row)
        last[row.mode] = (group, count + 1)
        if len(groups) > 2 * most:
            groups, size, last = _join_pairs(groups), 2 * size, {}
    while len(groups) > max(most, len(last)):
        groups = _join_pairs(groups)
    return groups


def _join_pairs(groups: Sequence[_StepGroup]) -> list[_StepGroup]:
    joined: list[_StepGroup] = []
    open_groups: dict[str, _StepGroup] = {}
    for group in groups:
        before = open_groups.pop(group.mode, None)
        if before is None:
            joined.append(group)
            open_groups[group.mode] = group
        else:
            before.join(group)
    return joined


def _grouped_columns(groups: Sequence[_StepGroup]) -> dict[str, object]:
    return {
        "numbers": [group.number for group in groups],
        "counts": [group.steps for group in groups],
        "modes": [group.mode for group in groups],
        "started_us": [group.started_us for group in groups],
        "ended_us": [group.ended_us for group in groups],
        "slowest_us": [group.slowest_us for group in groups],
        "phases_ns": {phase.name.lower(): [group.phases_ns[phase] for group in groups] for phase in StepPhase},
    }


def _columns(rows: Sequence[StepRow]) -> dict[str, object]:
    return {
        "numbers": [row.number for row in rows],
        "counts": [row.steps for row in rows],
        "modes": [row.mode for row in rows],
        "started_us": [row.started_us for row in rows],
        "ended_us": [row.ended_us for row in rows],
        "phases_ns": {phase.name.lower(): [row.phases_ns[phase] for row in rows] for phase in StepPhase},
    }


def _read_facts(file: Path) -> Mapping[str, object]:
    """Return what the program wrote about itself; nothing if that is no JSON object of a reasonable size."""
    try:
        descriptor = os.open(file, _READ)
    except OSError:
        return {}
    with os.fdopen(descriptor, "rb") as opened:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        data = opened.read(MAX_FACTS_BYTES + 1) if is_file else b""
    try:
        facts = json.loads(data, parse_constant=lambda _: None) if len(data) <= MAX_FACTS_BYTES else None
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _line(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _rules(job: TrainingJob, conclusion: ProfileConclusion) -> list[Shape]:
    concluded = {each.name: each for each in conclusion.rules}
    rules = job.plan.profiler.rules if job.plan.profiler else ()
    return [
        {
            "Name": state.name,
            "Rule": rule.rule,
            "Status": state.status,
            "Details": state.details or None,
            "LastModifiedTime": state.at,
            **_rule_conclusion(
                concluded.get(state.name, RuleConclusion(state.name, rule.rule, parameters=rule.parameters))
            ),
        }
        for rule, state in zip(rules, profiler_rule_states(job), strict=True)
    ]


def _rule_conclusion(rule: RuleConclusion) -> Shape:
    return {
        "Findings": [_finding(each) for each in rule.findings],
        "Datapoints": rule.datapoints,
        "Violations": rule.violations,
        "Undecided": rule.undecided or rule.error or None,
        "Parameters": {name: _text(value) for name, value in rule.parameters.items()},
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _finding(finding: Mapping[str, Any]) -> Shape:
    texts = {name.capitalize(): finding.get(name) or None for name in _FINDING_TEXTS}
    numbers = {name.capitalize(): finding.get(name) for name in _FINDING_NUMBERS}
    return {"Message": str(finding.get("message", "")), **texts, **numbers}


def _phases(phases: Mapping[str, Any]) -> Shape:
    return {
        "Worker": phases["worker"],
        "Instance": phases["instance"],
        "Steps": phases["steps"],
        "StepSeconds": phases["step_s"],
        "PhaseSeconds": dict(phases["phases_s"]),
    }


def _series(series: Mapping[str, Any]) -> Shape:
    return {
        "Instance": series["instance"],
        "Metric": series["metric"],
        "Device": series["device"],
        "At": from_micros(series["at_us"]),
        "Value": series["value"],
        "Mean": series["mean"],
    }


def _report(call: Call, job: TrainingJob) -> str:
    """Return where the report is; empty if there is none yet."""
    uri = report_page(job)
    if not uri:
        return ""
    try:
        call.yard.objects.info(parse_s3_uri(uri, job.account))
    except NotFound:
        return ""
    return uri


def _profiler_output(job: TrainingJob) -> str:
    return job.plan.profiler.uri if job.plan.profiler else ""
