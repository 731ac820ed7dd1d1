"""The debugger of a training job, live while it runs."""

import asyncio
import base64
import json
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from trainyard.foundation.locations import parse_s3_uri
from trainyard.server.dashboard.contract import JobTab, Page, Visit, get
from trainyard.server.dashboard.events import ServerEvent
from trainyard.server.dashboard.job_frame import load_training_job, render_job_page
from trainyard.server.dashboard.pages.debugger.thresholds import list_thresholds

# How often the rules of a running job are looked at, and how many looks there are between two at its tensors.
LOOK_S = 2.0
TENSOR_LOOKS = 2

_MAX_TENSORS = 5000
_MAX_GROUPS, _MAX_STEPS = 2000, 200
_PIECE_BYTES = 4 << 20
_RUNNING = ("InProgress", "Stopping")
_CHOICE = {"pattern": "NamePattern", "kind": "Kind", "collection": "Collection"}
_TAR_BLOCK = tarfile.BLOCKSIZE


async def show_debugger(visit: Visit) -> Response:
    job = await load_training_job(visit)
    has_hook = "DebugHookConfig" in job.description
    data = {"job": job.name, "running": job.is_running, "hasHook": has_hook, **_rules(job.details["Rules"])}
    return render_job_page(visit, "debugger/debugger.html", job, tab="debugger", has_hook=has_hook, data=data)


async def list_tensors(visit: Visit) -> Response:
    """Return all tensors as compact rows, so that the page can filter while one types."""
    asked = {"TrainingJobName": visit.path["name"], "MaxResults": _MAX_TENSORS}
    found = await visit.api.call("trainyard", "ListTensors", asked)
    return visit.json(
        {
            "tensors": [
                [
                    each["Name"],
                    each["Kind"],
                    each["Shape"],
                    each["DataType"],
                    each["Collections"],
                    each.get("Module", ""),
                    each["Workers"],
                    each["Measures"],
                ]
                for each in found["Tensors"]
            ],
            "total": found["TotalCount"],
            "kinds": {each["Name"]: each["Count"] for each in found["Kinds"]},
            "collections": {each["Name"]: each["Count"] for each in found["Collections"]},
            "workers": found["Workers"],
            "modes": found["Modes"],
            "firstStep": found.get("FirstStep"),
            "lastStep": found.get("LastStep"),
            "steps": found["StepCount"],
            "notes": found["Notes"],
        }
    )


async def read_statistics(visit: Visit) -> Response:
    """Return layers x steps of a statistic, with arrays in base64."""
    asked: dict[str, Any] = {
        **_tensor_request(visit),
        **{member: visit.query[name] for name, member in _CHOICE.items() if visit.query.get(name)},
        "MaxSteps": visit.query_int("steps", 400, least=1, most=_MAX_GROUPS),
        "MaxResults": visit.query_int("most", 1000, least=1, most=_MAX_TENSORS),
    }
    if visit.query.get("statistic"):
        asked["Statistic"] = visit.query["statistic"]
    if visit.query.get("tensor"):
        asked["TensorNames"] = [visit.query["tensor"]]
    found = await visit.api.call("trainyard", "ReadTensorStatistics", asked)
    return visit.json(
        {
            "tensors": found["TensorNames"],
            "total": found["TotalCount"],
            "worker": found["Worker"],
            "firsts": found["FirstSteps"],
            "lasts": found["LastSteps"],
            **{name.lower(): _base64(found[name]) for name in ("Means", "Minima", "Maxima", "Contents")},
            "notes": found["Notes"],
        }
    )


async def read_histograms(visit: Visit) -> Response:
    asked = {
        **_tensor_request(visit),
        "TensorName": visit.query.get("tensor", ""),
        "MaxSteps": visit.query_int("steps", 60, least=1, most=_MAX_STEPS),
    }
    found = await visit.api.call("trainyard", "ReadTensorHistograms", asked)
    return visit.json(
        {
            "steps": found["Steps"],
            "bins": found["BinCount"],
            "edges": _base64(found["Edges"]),
            "counts": _base64(found["Counts"]),
            "isRecorded": found["IsRecorded"],
            "notes": found["Notes"],
        }
    )


async def read_values(visit: Visit) -> Response:
    asked = {
        "TrainingJobName": visit.path["name"],
        "TensorName": visit.query.get("tensor", ""),
        "Step": visit.query_int("step", 0),
        "FirstRow": visit.query_int("row", 0),
        "FirstColumn": visit.query_int("column", 0),
        "MaxRows": visit.query_int("rows", 12, least=1, most=100),
        "MaxColumns": visit.query_int("columns", 12, least=1, most=100),
    }
    if visit.query.get("worker"):
        asked["Worker"] = visit.query["worker"]
    found = await visit.api.call("trainyard", "ReadTensorValues", asked)
    return visit.json(
        {
            "shape": found["Shape"],
            "dtype": found["DataType"],
            "rows": found["RowCount"],
            "columns": found["ColumnCount"],
            "firstRow": found["FirstRow"],
            "firstColumn": found["FirstColumn"],
            "shownRows": found["ShownRows"],
            "shownColumns": found["ShownColumns"],
            "values": _base64(found["Values"]),
            "statistics": {each["Name"]: each.get("Value") for each in found["Statistics"]},
            "notes": found["Notes"],
        }
    )


async def list_rules(visit: Visit) -> Response:
    found = await visit.api.call("trainyard", "ListDebuggerRules")
    rules = [
        {
            "name": rule["Name"],
            "about": rule["About"],
            "parameters": [
                {"name": each["Name"], "standard": each["Default"], "advised": each["Advised"], "help": each["Help"]}
                for each in rule["Parameters"]
            ],
        }
        for rule in found["Rules"]
    ]
    return visit.json({"rules": rules})


async def list_records(visit: Visit) -> Response:
    found = await visit.api.call("trainyard", "ListRecordedSteps", {"TrainingJobName": visit.path["name"]})
    return visit.json(found)


async def download_record(visit: Visit) -> Response:
    """Answer with the files of a recorded step as a tar file."""
    name, step = visit.path["name"], visit.query_int("step", 0)
    found = await visit.api.call("trainyard", "ListRecordedSteps", {"TrainingJobName": name})
    worker = visit.query.get("worker", "")
    record = next((each for each in found["Steps"] if each["Step"] == step and each["Worker"] == worker), None)
    if record is None:
        return visit.error(f"{name} has no record of step {step} of {worker}.", status=404)
    return visit.download(_tar(visit, record), f"{name}-{worker}-step-{step}.tar")


async def follow_debugger(visit: Visit) -> Response:
    return visit.events(_changes(visit))


PAGE = Page(
    "debugger",
    routes=(
        get("/training/{name}/debugger", show_debugger),
        get("/training/{name}/debugger/tensors", list_tensors),
        get("/training/{name}/debugger/statistics", read_statistics),
        get("/training/{name}/debugger/histograms", read_histograms),
        get("/training/{name}/debugger/values", read_values),
        get("/training/{name}/debugger/rules", list_rules),
        get("/training/{name}/debugger/records", list_records),
        get("/training/{name}/debugger/record", download_record),
        get("/training/{name}/debugger/live", follow_debugger),
    ),
    tabs=(JobTab("debugger", "Debugger", order=50),),
)


async def _changes(visit: Visit) -> AsyncGenerator[ServerEvent, None]:
    """Yield the rules whenever they change, and the last step of the tensors, until the job has ended."""
    named = {"TrainingJobName": visit.path["name"]}
    told: dict[str, Any] = {}
    look = 0
    while True:
        details = await visit.api.call("trainyard", "DescribeJob", named)
        is_running = details["Status"] in _RUNNING
        rules = _rules(details["Rules"])
        if rules != told.get("rules"):
            told["rules"] = rules
            yield ServerEvent("rules", rules)
        # Only a job with a hook has tensors; the last ones arrive as it ends.
        if look % TENSOR_LOOKS == 0 or not is_running:
            found = await visit.api.call("trainyard", "ListTensors", {**named, "MaxResults": 1})
            steps = {"last": found.get("LastStep"), "steps": found["StepCount"], "tensors": found["TotalCount"]}
            if steps != told.get("steps"):
                told["steps"] = steps
                yield ServerEvent("steps", steps)
        if not is_running:
            yield ServerEvent("end", {})
            return
        look += 1
        await asyncio.sleep(LOOK_S)


def _tensor_request(visit: Visit) -> dict[str, Any]:
    asked: dict[str, Any] = {"TrainingJobName": visit.path["name"]}
    for name, member in (("worker", "Worker"), ("mode", "Mode")):
        if visit.query.get(name):
            asked[member] = visit.query[name]
    for name, member in (("from", "StartStep"), ("to", "EndStep")):
        if visit.query.get(name):
            asked[member] = visit.query_int(name, 0)
    return asked


def _rules(rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"rules": [_rule(each) for each in rules], "thresholds": list(list_thresholds(rules))}


def _rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": rule["Name"],
        "rule": rule["Rule"],
        "status": rule["Status"],
        "details": rule.get("Details", ""),
        "at": rule.get("LastModifiedTime"),
        "judged": rule["StepsJudged"],
        "dropped": rule["StepsDropped"],
        "parameters": [[each["Name"], each["Value"]] for each in rule.get("Parameters", ())],
        "findings": [_finding(each) for each in rule["Findings"]],
        "actions": [
            {
                "name": each["Name"],
                "endpoint": each.get("Endpoint", ""),
                "status": each["Status"],
                "tries": each["Tries"],
                "told": each.get("Told", ""),
                "at": each.get("LastTried"),
            }
            for each in rule["Actions"]
        ],
    }


def _finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    texts = ("Message", "Mode", "Worker", "Tensor", "Module", "Value", "Threshold", "Severity")
    return {
        "step": finding.get("Step"),
        **{name.lower(): finding.get(name, "") for name in texts},
        "evidence": _evidence(finding.get("Evidence", "")),
    }


def _evidence(text: str) -> list[dict[str, Any]]:
    """Return the series of a finding; a custom rule may have written anything."""
    try:
        given = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    series = given if isinstance(given, list) else []
    return [
        {"label": str(each.get("label", "")), "steps": each["steps"], "values": each["values"]}
        for each in series
        if isinstance(each, dict) and _is_series(each.get("steps")) and _is_series(each.get("values"))
    ]


def _is_series(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(each, int | float) for each in values)


def _base64(blob: bytes) -> str:
    return base64.b64encode(blob).decode()


async def _tar(visit: Visit, record: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """Yield a tar file with the files of a record, in pieces."""
    place = parse_s3_uri(record["Location"], account="")
    for file in record["Files"]:
        size = file["SizeInBytes"]
        header = tarfile.TarInfo(file["Name"])
        header.size = size
        if record.get("RecordedAt"):
            header.mtime = int(record["RecordedAt"].timestamp())
        yield header.tobuf(tarfile.PAX_FORMAT)
        for first in range(0, size, _PIECE_BYTES):
            wanted = min(_PIECE_BYTES, size - first)
            yield await visit.api.read_object(
                place.bucket.name, place.key + file["Name"], first=first, size_bytes=wanted
            )
        yield b"\0" * (-size % _TAR_BLOCK)
    yield b"\0" * (2 * _TAR_BLOCK)
