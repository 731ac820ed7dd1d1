"""The captured tensors of a job: which there are, their statistics, distributions and values; and recorded steps."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from trainyard.foundation.errors import InvalidRequest, NotFound, Unavailable
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.locations import Location
from trainyard.objects.contract import Listing, ObjectStore
from trainyard.objects.sources import ObjectSource, list_pages
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.visibility import load_visible
from trainyard.server.tensors.contract import (
    GridQuestion,
    HistogramsQuestion,
    KnownTensor,
    StepChoice,
    TensorChoice,
    TensorsQuestion,
    ValuesQuestion,
)
from trainyard.server.tensors.reader import TensorReader, tensor_location

_TENSORS, _ROWS, _GROUPS, _STEPS, _SIDE = 100, 200, 400, 60, 20
_RECORDS, _RECORD = "records", "record.json"
_MAX_RECORDED_STEPS = 100
# Of a description of a recorded step, and of a text in it.
_MAX_RECORD_BYTES, _MAX_TEXT = 1 << 20, 1000


def list_tensors(call: Call, shape: Shape) -> Shape:
    """List the captured tensors of a job, and what is known about its steps and workers."""
    job = _load(call, shape)
    after = _position(shape)
    found = _reader(call).list_tensors(job, TensorsQuestion(_choice(shape), after, shape.get("MaxResults", _TENSORS)))
    known = found.answer
    return {
        "Tensors": [_tensor(each) for each in known.tensors],
        "NextToken": _token(after + len(known.tensors), known.total),
        "TotalCount": known.total,
        "Collections": [{"Name": name, "Count": count} for name, count in known.collections.items()],
        "Kinds": [{"Name": name, "Count": count} for name, count in known.kinds.items()],
        "Workers": list(known.workers),
        "Modes": list(known.modes),
        "FirstStep": known.first_step if known.steps else None,
        "LastStep": known.last_step if known.steps else None,
        "StepCount": known.steps,
        "SavedSteps": list(known.saved_steps),
        "SavedStepCount": known.saved_total,
        "HasEnded": known.has_ended,
        "Notes": list(known.notes),
    }


def read_tensor_statistics(call: Call, shape: Shape) -> Shape:
    """Return a statistic of some tensors, in groups of consecutive steps."""
    job = _load(call, shape)
    after = _position(shape)
    question = GridQuestion(
        _choice(shape),
        shape.get("Statistic", "l2"),
        _steps(shape),
        shape.get("Worker", ""),
        shape.get("MaxSteps", _GROUPS),
        after,
        shape.get("MaxResults", _ROWS),
    )
    found = _reader(call).read_grid(job, question)
    grid = found.answer
    return {
        "TensorNames": list(grid.tensors),
        "NextToken": _token(after + len(grid.tensors), grid.total),
        "TotalCount": grid.total,
        "Worker": grid.worker,
        "FirstSteps": list(grid.first_steps),
        "LastSteps": list(grid.last_steps),
        "Means": found.blobs.get("means", b""),
        "Minima": found.blobs.get("minima", b""),
        "Maxima": found.blobs.get("maxima", b""),
        "Contents": found.blobs.get("contents", b""),
        "Notes": list(grid.notes),
    }


def read_tensor_histograms(call: Call, shape: Shape) -> Shape:
    """Return the distribution of a tensor over the steps."""
    job = _load(call, shape)
    question = HistogramsQuestion(
        shape["TensorName"], _steps(shape), shape.get("Worker", ""), shape.get("MaxSteps", _STEPS)
    )
    found = _reader(call).read_histograms(job, question)
    return {
        "Steps": list(found.answer.steps),
        "BinCount": found.answer.bins,
        "Edges": found.blobs.get("edges", b""),
        "Counts": found.blobs.get("counts", b""),
        "IsRecorded": found.answer.is_recorded,
        "Notes": list(found.answer.notes),
    }


def read_tensor_values(call: Call, shape: Shape) -> Shape:
    """Return some elements of a tensor in a step, and the statistics of all of them."""
    job = _load(call, shape)
    question = ValuesQuestion(
        tensor=shape["TensorName"],
        step=shape["Step"],
        worker=shape.get("Worker", ""),
        first_row=shape.get("FirstRow", 0),
        first_column=shape.get("FirstColumn", 0),
        rows=shape.get("MaxRows", _SIDE),
        columns=shape.get("MaxColumns", _SIDE),
    )
    found = _reader(call).read_values(job, question)
    told = found.answer
    return {
        "Shape": list(told.shape),
        "DataType": told.dtype,
        "RowCount": told.rows,
        "ColumnCount": told.columns,
        "FirstRow": told.first_row,
        "FirstColumn": told.first_column,
        "ShownRows": told.shown_rows,
        "ShownColumns": told.shown_columns,
        "Values": found.blobs.get("values", b""),
        "Statistics": [{"Name": name, "Value": value} for name, value in told.statistics.items()],
        "Notes": list(told.notes),
    }


def list_recorded_steps(call: Call, shape: Shape) -> Shape:
    """List the steps that the flight recorder of a job has saved, with their files."""
    job = _load(call, shape)
    where = tensor_location(job)
    steps = list(_recorded_steps(call.yard.objects, where))
    return {"Location": f"{where}/{_RECORDS}/", "Steps": steps}


OPERATIONS: Operations = {
    "ListTensors": list_tensors,
    "ReadTensorStatistics": read_tensor_statistics,
    "ReadTensorHistograms": read_tensor_histograms,
    "ReadTensorValues": read_tensor_values,
    "ListRecordedSteps": list_recorded_steps,
}


def _load(call: Call, shape: Shape) -> TrainingJob:
    return job_of(load_visible(call, KIND, shape["TrainingJobName"]))


def _reader(call: Call) -> TensorReader:
    if call.yard.tensors is None:
        raise Unavailable("This yard does not read tensors.")
    return call.yard.tensors


def _choice(shape: Shape) -> TensorChoice:
    return TensorChoice(
        tuple(shape.get("TensorNames", ())),
        shape.get("NamePattern", ""),
        shape.get("Collection", ""),
        shape.get("Kind", ""),
    )


def _steps(shape: Shape) -> StepChoice:
    return StepChoice(shape.get("Mode", "GLOBAL"), shape.get("StartStep"), shape.get("EndStep"))


def _tensor(tensor: KnownTensor) -> Shape:
    return {
        "Name": tensor.name,
        "Kind": tensor.kind,
        "Shape": list(tensor.shape),
        "DataType": tensor.dtype,
        "Collections": list(tensor.collections),
        "Module": tensor.module or None,
        "WholeShape": list(tensor.whole_shape) or None,
        "Workers": list(tensor.workers),
        "Measures": list(tensor.measures),
    }


def _position(shape: Shape) -> int:
    token = shape.get("NextToken", "0")
    if not token.isdecimal():
        raise InvalidRequest("NextToken must be that of an earlier answer.")
    return int(token)


def _token(position: int, total: int) -> str | None:
    return str(position) if position < total else None


def _recorded_steps(objects: ObjectStore, where: Location) -> Iterator[Mapping[str, Any]]:
    source = ObjectSource(objects, where)
    found = [
        (int(step), worker, step)
        for worker in source.folders(_RECORDS)
        for step in source.folders(f"{_RECORDS}/{worker}")
        if step.isdecimal()
    ]
    for step, worker, step_name in sorted(found)[:_MAX_RECORDED_STEPS]:
        prefix = f"{where.key}/{_RECORDS}/{worker}/{step_name}/"
        pages = list_pages(partial(_list_page, objects, Location(where.bucket, prefix)))
        listed = [each for page in pages for each in page.objects]
        about = _read_about(source, f"{_RECORDS}/{worker}/{step_name}/{_RECORD}")
        yield {
            "Step": step,
            "Worker": worker,
            "Location": f"s3://{where.bucket.name}/{prefix}",
            "SizeInBytes": sum(each.size for each in listed),
            "RecordedAt": max((each.modified_at for each in listed), default=None),
            # The program writes this file last.
            "IsComplete": about is not None,
            "FirstStep": _number(about, "first", step),
            "Reason": str((about or {}).get("why", ""))[:_MAX_TEXT] or None,
            "Files": [{"Name": each.key.removeprefix(prefix), "SizeInBytes": each.size} for each in listed],
        }


def _list_page(objects: ObjectStore, where: Location, after: str) -> Listing:
    return objects.list_objects(where.bucket, prefix=where.key, after=after)


def _read_about(source: ObjectSource, name: str) -> Mapping[str, Any] | None:
    """Return what a program wrote about a recorded step; None if it has not, or wrote something else."""
    try:
        about = json.loads(source.read(name, size=_MAX_RECORD_BYTES))
    except (NotFound, ValueError, RecursionError):
        return None
    return about if isinstance(about, dict) else None


def _number(about: Mapping[str, Any] | None, name: str, default: int) -> int:
    value = (about or {}).get(name)
    return value if isinstance(value, int) and 0 <= value <= default else default
