"""The traces of a job: which there are, what they say in figures, and any part of their timelines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.foundation.clock import from_micros
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.visibility import load_visible
from trainyard.server.traces.contract import PartQuestion, SearchQuestion, SliceQuestion, SummaryQuestion, TraceFile
from trainyard.server.traces.files import list_trace_files, load_trace_file
from trainyard.server.traces.reader import TraceReader

_TRACES, _ROWS, _SLICES, _FOUND = 100, 100, 50_000, 100
# About one for each pixel of a wide screen.
_RESOLUTIONS = 1000


def list_traces(call: Call, shape: Shape) -> Shape:
    """List the traces that a job has stored, the newest first."""
    job = job_of(load_visible(call, KIND, shape["TrainingJobName"]))
    files = list_trace_files(call.yard.objects, job)
    return {"Traces": [_file(each) for each in files[: shape.get("MaxResults", _TRACES)]], "TotalCount": len(files)}


def describe_trace(call: Call, shape: Shape) -> Shape:
    """Return what a trace says in figures."""
    chosen = _choose(call, shape)
    found = chosen.reader.summarize(chosen.job, chosen.file, SummaryQuestion(shape.get("MaxResults", _ROWS)))
    told = found.answer
    return {
        "TraceId": chosen.file.id,
        "Location": chosen.file.uri,
        "StartTime": from_micros(told.started_us) if told.started_us is not None else None,
        "Duration": told.duration_ns,
        "Producer": told.producer,
        "Host": told.host,
        "EventCount": told.events,
        "SliceCount": told.slices,
        "Lanes": told.lanes,
        "Steps": told.steps,
        "Roles": told.roles,
        "Operators": told.operators,
        "OperatorCount": told.operator_count,
        "OperatorShapes": told.shapes,
        "OperatorShapeCount": told.shape_count,
        "Kernels": told.kernels,
        "KernelCount": told.kernel_count,
        "PythonFunctions": told.python,
        "PythonFunctionCount": told.python_count,
        "Memory": [_memory(each, number, found.blobs) for number, each in enumerate(told.memory)],
        "Collectives": told.collectives,
        "ExposedCommunication": told.exposed_communication,
        "Gpus": told.gpus,
        "Rank": told.rank,
        "WorldSize": told.world_size,
        "IsComplete": told.is_complete,
        "Notes": list(told.notes),
    }


def read_trace_slices(call: Call, shape: Shape) -> Shape:
    """Return what is seen of a stretch of a trace at a resolution."""
    chosen = _choose(call, shape)
    first_ns, last_ns = shape.get("Start", 0), shape.get("End")
    if last_ns is None:
        last_ns = chosen.reader.summarize(chosen.job, chosen.file, SummaryQuestion(1)).answer.duration_ns + 1
    resolution_ns = shape.get("Resolution") or max(1, (last_ns - first_ns) // _RESOLUTIONS)
    question = PartQuestion(first_ns, last_ns, resolution_ns, shape.get("MaxSlices", _SLICES))
    found = chosen.reader.read_part(chosen.job, chosen.file, question)
    return {
        "Resolution": found.answer.resolution_ns,
        "Texts": list(found.answer.texts),
        "LaneNumbers": found.blobs["lanes"],
        "Depths": found.blobs["depths"],
        "Starts": found.blobs["starts"],
        "Durations": found.blobs["durations"],
        "NameNumbers": found.blobs["names"],
        "RoleNumbers": found.blobs["roles"],
        "Counts": found.blobs["counts"],
        "SliceNumbers": found.blobs["numbers"],
    }


def search_trace_slices(call: Call, shape: Shape) -> Shape:
    """Find the slices of a trace whose names contain a text."""
    chosen = _choose(call, shape)
    token = shape.get("NextToken", "0")
    if not token.isdecimal():
        raise InvalidRequest("NextToken must be that of an earlier answer.")
    after = int(token)
    question = SearchQuestion(shape["Text"], after, shape.get("MaxResults", _FOUND))
    found = chosen.reader.search(chosen.job, chosen.file, question).answer
    reached = after + len(found.slices)
    return {
        "Slices": found.slices,
        "TotalCount": found.total,
        "TotalDuration": found.total_ns,
        "NextToken": str(reached) if found.slices and reached < found.total else None,
    }


def describe_trace_slice(call: Call, shape: Shape) -> Shape:
    """Return everything that a trace says about one slice."""
    chosen = _choose(call, shape)
    question = SliceQuestion(shape["SliceNumber"])
    return dict(chosen.reader.describe_slice(chosen.job, chosen.file, question).answer.details)


OPERATIONS: Operations = {
    "ListTraces": list_traces,
    "DescribeTrace": describe_trace,
    "ReadTraceSlices": read_trace_slices,
    "SearchTraceSlices": search_trace_slices,
    "DescribeTraceSlice": describe_trace_slice,
}


@dataclass(frozen=True, slots=True)
class _ChosenTrace:
    reader: TraceReader
    job: TrainingJob
    file: TraceFile


def _choose(call: Call, shape: Shape) -> _ChosenTrace:
    if call.yard.traces is None:
        raise Unavailable("This yard does not read traces.")
    job = job_of(load_visible(call, KIND, shape["TrainingJobName"]))
    return _ChosenTrace(call.yard.traces, job, load_trace_file(call.yard.objects, job, shape["TraceId"]))


def _file(file: TraceFile) -> Shape:
    return {
        "TraceId": file.id,
        "Location": file.uri,
        "SizeInBytes": file.size_bytes,
        "ModifiedAt": file.modified_at,
        "IsOfProgram": file.is_of_program,
        "Instance": file.instance or None,
        "Worker": file.worker or None,
        "Step": file.step,
    }


def _memory(memory: Mapping[str, Any], number: int, blobs: Mapping[str, bytes]) -> Shape:
    curves = {name: blobs.get(f"{number}.{name.lower()}", b"") for name in ("Times", "Allocated", "Reserved")}
    return {**memory, **curves}
