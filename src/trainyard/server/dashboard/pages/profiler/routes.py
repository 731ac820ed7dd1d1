"""The profiler of a training job: where its time goes and what to change, live while it runs."""

import asyncio
import base64
import math
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from starlette.responses import HTMLResponse, Response

from trainyard.foundation.clock import to_micros
from trainyard.foundation.locations import Location, parse_s3_uri
from trainyard.server.dashboard.api import read_body
from trainyard.server.dashboard.contract import JobTab, Page, Visit, get, post
from trainyard.server.dashboard.events import ServerEvent
from trainyard.server.dashboard.job_frame import load_training_job, render_job_page
from trainyard.server.dashboard.visit import BadRequest

# How often a running job is looked at. The yard concludes anew only as often as that costs little.
LOOK_S = 2.0
TRACE_LOOKS = 2
# Until there is a verdict, and afterwards.
FIRST_VERDICT_LOOKS, VERDICT_LOOKS = 4, 15

_RUNNING = ("InProgress", "Stopping")
# Bars of a chart of steps, and points of a series of the hardware.
_GROUPS, _POINTS, _MOST_POINTS = 240, 400, 2000
_RECENT_STEPS = 60
_TRACES, _ROWS = 200, 200
_MAX_STEPS = 1000
_MAX_FILES = 1000
# What profiles are besides traces, by a part of their names.
_OTHER_PROFILES = {
    "/cProfile/": "functions of Python, for pstats",
    "/pyinstrument/": "call tree of Python",
    "_pythontimeline.json": "events of data loaders",
    "_horovod_timeline.json": "events of collectives",
}
_MAX_REPORT_BYTES = 64 << 20
_HEATMAP = ("cpu_percent", "io_wait_percent", "gpu_percent", "gpu_memory_percent")
_SLICE_ARRAYS = {
    "lanes": "LaneNumbers",
    "depths": "Depths",
    "starts": "Starts",
    "durations": "Durations",
    "names": "NameNumbers",
    "roles": "RoleNumbers",
    "counts": "Counts",
    "numbers": "SliceNumbers",
}


async def show_profiler(visit: Visit) -> Response:
    job = await load_training_job(visit)
    is_enabled = job.description.get("ProfilingStatus") == "Enabled"
    has_started = bool(job.details.get("Attempts"))
    data = {
        "job": job.name,
        "running": job.is_running,
        "enabled": is_enabled,
        "training": job.secondary_status == "Training",
        "started": has_started,
    }
    return render_job_page(
        visit, "profiler/profiler.html", job, tab="profiler", data=data, is_enabled=is_enabled, has_started=has_started
    )


async def read_verdict(visit: Visit) -> Response:
    return visit.json(await _verdict(visit))


async def read_measured_gains(visit: Visit) -> Response:
    """Return what trials of the advice have measured."""
    return visit.json(await visit.api.call("trainyard", "ListAdviceTrials", _job_name(visit)))


async def read_steps(visit: Visit) -> Response:
    """Return all steps of each worker in groups, and what is known about its program."""
    asked = {**_job_name(visit), "MaxGroups": visit.query_int("groups", _GROUPS, least=10, most=2000)}
    return visit.json(await _steps(visit, asked))


async def read_recent_steps(visit: Visit) -> Response:
    return visit.json(await _steps(visit, {**_job_name(visit), "MaxRows": _RECENT_STEPS}))


async def read_hardware(visit: Visit) -> Response:
    """Return the series of the hardware as periods: means, minima and maxima."""
    asked = {**_job_name(visit), "MaxPoints": visit.query_int("points", _POINTS, least=2, most=_MOST_POINTS)}
    if visit.query.get("view") == "heatmap":
        asked["Metrics"] = list(_HEATMAP)
    series = [line async for line in visit.api.lines("trainyard", "ReadHardware", asked) if line]
    if visit.query.get("view") == "summary":
        return visit.json({"summary": [_summary(line) for line in series]})
    return visit.json({"series": series})


async def list_traces(visit: Visit) -> Response:
    return visit.json(await _traces(visit))


async def read_trace(visit: Visit) -> Response:
    found = await visit.api.call("trainyard", "DescribeTrace", {**_trace(visit), "MaxResults": _ROWS})
    memory = [
        {**each, **{name: _base64(each[name]) for name in ("Times", "Allocated", "Reserved")}}
        for each in found["Memory"]
    ]
    started = {"StartMicros": to_micros(found["StartTime"])} if "StartTime" in found else {}
    return visit.json({**found, **started, "Memory": memory})


async def read_slices(visit: Visit) -> Response:
    asked = {
        **_trace(visit),
        "Start": visit.query_int("from", 0, most=2**62),
        "End": visit.query_int("to", 2**62, most=2**62),
        "Resolution": visit.query_int("resolution", 1, least=1, most=2**62),
        "MaxSlices": visit.query_int("most", 40_000, least=100, most=100_000),
    }
    found = await visit.api.call("trainyard", "ReadTraceSlices", asked)
    arrays = {name: _base64(found[member]) for name, member in _SLICE_ARRAYS.items()}
    return visit.json({"resolution": found["Resolution"], "texts": found["Texts"], **arrays})


async def search_slices(visit: Visit) -> Response:
    text = visit.query.get("text", "").strip()
    if not text:
        raise BadRequest("The text to search for is empty.")
    asked = {**_trace(visit), "Text": text[:1000], "MaxResults": visit.query_int("most", 1000, least=1, most=1000)}
    return visit.json(await visit.api.call("trainyard", "SearchTraceSlices", asked))


async def read_slice(visit: Visit) -> Response:
    asked = {**_trace(visit), "SliceNumber": visit.query_int("slice", 0)}
    return visit.json(await visit.api.call("trainyard", "DescribeTraceSlice", asked))


async def download_trace(visit: Visit) -> Response:
    """Answer with the file of a trace, for Perfetto and other viewers."""
    listed = await visit.api.call("trainyard", "ListTraces", {**_job_name(visit), "MaxResults": 1000})
    trace_id = visit.query.get("trace", "")
    found = next((each for each in listed["Traces"] if each["TraceId"] == trace_id), None)
    if found is None:
        return visit.error("The job has no such trace any more.", status=404)
    bucket, _, key = found["Location"].removeprefix("s3://").partition("/")
    answer = await visit.api.call("s3", "GetObject", {"Bucket": bucket, "Key": key})
    return visit.download(answer["Body"], key.rpartition("/")[2], size_bytes=found["SizeInBytes"])


async def list_other_profiles(visit: Visit) -> Response:
    """List what else was recorded: profiles of Python functions, and events of data loaders and collectives."""
    place = await _profiler_output(visit)
    if place is None:
        return visit.json({"files": []})
    asked = {"Bucket": place.bucket.name, "Prefix": f"{place.key}/framework/", "MaxKeys": _MAX_FILES}
    found = await visit.api.call("s3", "ListObjectsV2", asked)
    files = [
        {
            "name": each["Key"].removeprefix(asked["Prefix"]),
            "kind": kind,
            "size": each["Size"],
            "at": each["LastModified"],
        }
        for each in found.get("Contents", ())
        if (kind := next((kind for part, kind in _OTHER_PROFILES.items() if part in each["Key"]), ""))
    ]
    return visit.json({"files": files})


async def download_other_profile(visit: Visit) -> Response:
    place, name = await _profiler_output(visit), visit.query.get("file", "")
    if place is None or not any(part in f"/{name}" for part in _OTHER_PROFILES):
        return visit.error("The job has no such profile.", status=404)
    asked = {"Bucket": place.bucket.name, "Key": f"{place.key}/framework/{name}"}
    answer = await visit.api.call("s3", "GetObject", asked)
    return visit.download(answer["Body"], name.replace("/", "-"), size_bytes=answer["ContentLength"])


async def profile_steps(visit: Visit) -> Response:
    """Ask the running program for a trace of its next steps."""
    steps = (await visit.read_json()).get("steps")
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= _MAX_STEPS:
        raise BadRequest(f"The number of steps must be a whole number from 1 to {_MAX_STEPS}.")
    asked = {**_job_name(visit), "Steps": steps, "ClientToken": secrets.token_hex(8)}
    answer = await visit.api.call("trainyard", "ProfileJob", asked)
    return visit.json({"output": answer["ProfilerOutput"]})


async def show_report(visit: Visit) -> Response:
    """Show the report, written now. It is a page of its own, which can do nothing in the name of the user."""
    return HTMLResponse(await _report(visit))


async def download_report(visit: Visit) -> Response:
    page = await _report(visit)
    return visit.download(page, f"{visit.path['name']}-profiler-report.html", size_bytes=len(page))


async def follow_profiler(visit: Visit) -> Response:
    return visit.events(_changes(visit))


PAGE = Page(
    "profiler",
    routes=(
        get("/training/{name}/profiler", show_profiler),
        get("/training/{name}/profiler/verdict", read_verdict),
        get("/training/{name}/profiler/gains", read_measured_gains),
        get("/training/{name}/profiler/steps", read_steps),
        get("/training/{name}/profiler/recent", read_recent_steps),
        get("/training/{name}/profiler/hardware", read_hardware),
        get("/training/{name}/profiler/traces", list_traces),
        get("/training/{name}/profiler/trace", read_trace),
        get("/training/{name}/profiler/slices", read_slices),
        get("/training/{name}/profiler/search", search_slices),
        get("/training/{name}/profiler/slice", read_slice),
        get("/training/{name}/profiler/trace-file", download_trace),
        get("/training/{name}/profiler/files", list_other_profiles),
        get("/training/{name}/profiler/file", download_other_profile),
        post("/training/{name}/profiler/profile", profile_steps),
        get("/training/{name}/profiler/report", show_report, is_document=True),
        get("/training/{name}/profiler/report-file", download_report),
        get("/training/{name}/profiler/live", follow_profiler),
    ),
    tabs=(JobTab("profiler", "Profiler", order=60),),
)


async def _changes(visit: Visit) -> AsyncGenerator[ServerEvent, None]:
    """Yield the newest steps, the traces and the verdict whenever they change, until the job has ended."""
    told: dict[str, Any] = {}
    look = 0
    while True:
        description = await visit.api.call("sagemaker", "DescribeTrainingJob", _job_name(visit))
        is_running = description["TrainingJobStatus"] in _RUNNING
        state = {"training": description["SecondaryStatus"] == "Training"}
        found: dict[str, Any] = {"state": state, "steps": await _steps(visit, _recent(visit))}
        if look % TRACE_LOOKS == 0 or not is_running:
            found["traces"] = await _traces(visit)
        if look % (VERDICT_LOOKS if told.get("verdict") else FIRST_VERDICT_LOOKS) == 0:
            verdict = await _verdict(visit)
            found["verdict"] = verdict if verdict.get("Verdict", {}).get("bottleneck") else None
        for name, value in found.items():
            if value is not None and value != told.get(name):
                told[name] = value
                yield ServerEvent(name, value)
        if not is_running:
            yield ServerEvent("end", {})
            return
        look += 1
        await asyncio.sleep(LOOK_S)


async def _verdict(visit: Visit) -> dict[str, Any]:
    return dict(await visit.api.call("trainyard", "DescribeProfile", _job_name(visit)))


async def _traces(visit: Visit) -> dict[str, Any]:
    return dict(await visit.api.call("trainyard", "ListTraces", {**_job_name(visit), "MaxResults": _TRACES}))


async def _profiler_output(visit: Visit) -> Location | None:
    """Return where the profiles of the job are stored; None if they are not."""
    description = await visit.api.call("sagemaker", "DescribeTrainingJob", _job_name(visit))
    stored = description.get("ProfilerConfig", {}).get("S3OutputPath")
    if not stored:
        return None
    return parse_s3_uri(f"{stored.rstrip('/')}/{description['TrainingJobName']}/profiler-output", account="")


async def _report(visit: Visit) -> bytes:
    answer = await visit.api.call("trainyard", "ReadProfilerReport", _job_name(visit))
    return await read_body(answer["Page"], _MAX_REPORT_BYTES)


async def _steps(visit: Visit, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows and the facts of each worker, one for each attempt and instance."""
    workers: dict[tuple[str, int, str], dict[str, Any]] = {}
    async for line in visit.api.lines("trainyard", "ReadSteps", dict(asked)):
        if not line:
            continue
        place = (line.pop("instance"), line.pop("attempt"), line.pop("worker"))
        worker = workers.setdefault(place, {"instance": place[0], "attempt": place[1], "worker": place[2]})
        if "facts" in line:
            worker["facts"] = line["facts"]
        elif "rows" not in worker:
            worker["rows"] = line
        else:
            _extend(worker["rows"], line)
    return {"workers": list(workers.values())}


def _extend(rows: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, values in more.items():
        if isinstance(values, Mapping):
            _extend(rows[name], values)
        else:
            rows[name] += values


def _summary(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the range and the percentiles of a series. Percentiles are of the means of its periods."""
    values = sorted(value for value in line["values"] if isinstance(value, int | float) and math.isfinite(value))
    labels = {name: line[name] for name in ("instance", "attempt", "metric", "device")}
    if not values:
        return {**labels, "count": 0}
    return {
        **labels,
        "count": len(values),
        "min": min(_finite(line["minima"]), default=values[0]),
        "max": max(_finite(line["maxima"]), default=values[-1]),
        "mean": sum(values) / len(values),
        **{f"p{share}": values[min(len(values) - 1, len(values) * share // 100)] for share in (50, 90, 99)},
    }


def _finite(values: Sequence[Any]) -> list[float]:
    return [value for value in values if isinstance(value, int | float) and math.isfinite(value)]


def _job_name(visit: Visit) -> dict[str, Any]:
    return {"TrainingJobName": visit.path["name"]}


def _recent(visit: Visit) -> dict[str, Any]:
    return {**_job_name(visit), "MaxRows": _RECENT_STEPS}


def _trace(visit: Visit) -> dict[str, Any]:
    return {**_job_name(visit), "TraceId": visit.query.get("trace", "")}


def _base64(blob: bytes) -> str:
    return base64.b64encode(blob).decode()
