"""The log of a training or processing job."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.responses import Response

from trainyard.server.dashboard.contract import JobTab, Page, Visit, get
from trainyard.server.dashboard.events import Events, ServerEvent
from trainyard.server.dashboard.job_frame import JobFrame, load_processing_job, load_training_job, render_job_page
from trainyard.server.services.contract import Shape

# How often a growing log is looked at: soon again after something came, and ever less while nothing does.
_MIN_WAIT_S, _MAX_WAIT_S = 0.4, 1.0
# New lines that come with the news of them. Nobody reads more at once, and the page asks for those that it shows.
_SENT_LINES = 50
_DOWNLOADED_LINES = 5000
# A traceback is at most this long before the line with its exception.
_TRACEBACK_LINES = 500
_MAX_PARTS = 1000


async def show_log(visit: Visit) -> Response:
    job = await _load_job(visit)
    log = await visit.api.call("trainyard", "ReadLog", _log_request(visit) | {"LineCount": 0})
    return render_job_page(visit, "logs/logs.html", job, tab="logs", log=_extent(log), log_facts=_facts(job))


async def read_lines(visit: Visit) -> Response:
    asked = _log_request(visit) | {
        "FromLine": visit.query_int("from", 1, least=-(2**53), most=2**53) or 1,
        "LineCount": visit.query_int("count", 200, most=5000),
    }
    if "bytes" in visit.query:
        asked["MaxLineBytes"] = visit.query_int("bytes", 8192, least=16, most=1 << 20)
    pattern = _pattern(visit)
    if pattern:
        asked["Highlight"] = pattern
    answer = await visit.api.call("trainyard", "ReadLog", asked)
    return visit.json(_extent(answer) | {"lines": [_line(each) for each in answer["Lines"]]})


async def search_log(visit: Visit) -> Response:
    asked = _log_request(visit) | {
        "Pattern": _pattern(visit),
        "MaxMatches": visit.query_int("max", 100, least=1, most=1000),
    }
    if "from" in visit.query:
        asked["FromLine"] = visit.query_int("from", 1, least=-(2**53), most=2**53) or 1
    if visit.query.get("back") == "1":
        asked["Backward"] = True
    if visit.query.get("next"):
        asked["NextToken"] = visit.query["next"]
    answer = await visit.api.call("trainyard", "SearchLog", asked)
    found = {"searched": answer["SearchedBytes"], "bytes": answer["TotalBytes"], "next": answer.get("NextToken", "")}
    return visit.json(found | {"places": [each["Place"] for each in answer["Matches"]]})


async def find_cause(visit: Visit) -> Response:
    """Find the lines of the failure card: where the traceback begins that ended the job."""
    job = await _load_job(visit)
    card: Mapping[str, Any] = job.details.get("FailureCard", {})
    asked = _job_named(visit)
    if card.get("Instance"):
        asked["Instance"] = card["Instance"]
    for text in _texts_of(card):
        found = await _find(visit, asked | {"Pattern": {"Text": text, "MatchCase": True}, "Backward": True})
        if found is not None:
            begin = await _traceback_before(visit, asked, found)
            return visit.json({"instance": found["Instance"], "first": begin, "last": found["Line"]})
    return visit.json({})


async def follow_log(visit: Visit) -> Response:
    return visit.events(_follow(visit, _log_request(visit)))


async def download_log(visit: Visit) -> Response:
    asked, name = _log_request(visit), visit.path["name"]
    if "Instance" not in asked:
        # An answer that has begun could no longer say that there is no such log.
        await visit.api.call("trainyard", "ReadLog", asked | {"LineCount": 0})
        return visit.download(_merged_text(visit, asked), f"{name}.log")
    asked.pop("Rank", None)
    answer = await visit.api.call("trainyard", "DownloadLog", asked)
    return visit.download(answer["Log"], f"{name}.{asked['Instance']}.log")


PAGE = Page(
    "logs",
    routes=tuple(
        get(f"/{kind}/{{name}}/logs{path}", handler)
        for kind in ("training", "processing")
        for path, handler in {
            "": show_log,
            "/lines": read_lines,
            "/search": search_log,
            "/cause": find_cause,
            "/events": follow_log,
            "/download": download_log,
        }.items()
    ),
    tabs=(JobTab("logs", "Logs", order=20), JobTab("logs", "Logs", order=20, kind="processing")),
)


def _log_part(visit: Visit) -> Shape:
    """Return which part of the log the address names."""
    chosen: Shape = {}
    if visit.query.get("attempt"):
        chosen["Attempt"] = visit.query_int("attempt", 1, least=1, most=10**6)
    if visit.query.get("instance"):
        chosen["Instance"] = visit.query["instance"]
    if visit.query.get("rank"):
        chosen["Rank"] = visit.query_int("rank", 0, most=10**6)
    return chosen


def _log_request(visit: Visit) -> Shape:
    return _job_named(visit) | _log_part(visit)


def _job_named(visit: Visit) -> Shape:
    return {"TrainingJobName": visit.path["name"], "Kind": _kind_in(visit)}


def _kind_in(visit: Visit) -> str:
    """Return the kind of job that the address names: it begins with /-/training or /-/processing."""
    return visit.request.url.path.split("/")[2]


async def _load_job(visit: Visit) -> JobFrame:
    load = load_training_job if _kind_in(visit) == "training" else load_processing_job
    return await load(visit)


def _pattern(visit: Visit) -> Shape:
    if visit.query.get("errors") == "1":
        return {"Errors": True}
    kind = "Regex" if visit.query.get("regex") == "1" else "Text"
    text = visit.query.get("find", "")
    return {kind: text, "MatchCase": visit.query.get("case") == "1"} if text else {}


def _extent(answer: Shape) -> dict[str, Any]:
    return {
        "attempt": answer["Attempt"],
        "instances": answer["Instances"],
        "ranks": answer["Ranks"],
        "total": answer["TotalLines"],
        "bytes": answer["TotalBytes"],
        "counted": answer["CountedBytes"],
        "growing": answer["Growing"],
        "gaps": [{"instance": gap["Instance"], "line": gap["Line"], "bytes": gap["Bytes"]} for gap in answer["Gaps"]],
    }


def _line(line: Shape) -> dict[str, Any]:
    shown = {
        "place": line["Place"],
        "instance": line["Instance"],
        "line": line["Line"],
        "at": int(line["Time"].timestamp() * 1000),
        "text": line["Text"],
    }
    if line.get("End"):
        shown |= {"end": line["End"], "size": line["Size"]}
    if line["Open"]:
        shown["open"] = True
    if line.get("Spans"):
        shown["spans"] = line["Spans"]
    return shown


def _facts(job: JobFrame) -> dict[str, Any]:
    details = job.details
    removed = next((note for note in details.get("Notes", ()) if note.startswith("Its log and other files")), "")
    return {
        "name": job.name,
        "address": f"{job.address}/logs",
        "attempts": [{"number": each["Number"], "end": _end_of(each)} for each in details["Attempts"]],
        "status": job.secondary_status,
        "running": job.is_running,
        "removed": removed,
        "cause": details.get("FailureCard", {}).get("Summary", ""),
    }


def _end_of(attempt: Mapping[str, Any]) -> str:
    """Return how an attempt ended before the job did, or ""."""
    if attempt.get("InterruptionReason"):
        return f"was interrupted: {attempt['InterruptionReason']}"
    return f"failed: {attempt['FailureReason']}" if attempt.get("FailureReason") else ""


def _texts_of(card: Mapping[str, Any]) -> list[str]:
    """Return what the line that ended the job may be, most telling first."""
    exception = card.get("Exception", {})
    message = exception.get("Message", "").split("\n")[0]
    named = [f"{exception['Type']}: {message}" if message else exception["Type"]] if exception.get("Type") else []
    last = [line.strip() for line in reversed(card.get("LastLines", ())) if line.strip()]
    return [text[:1000] for text in [*named, *last[:3]]]


async def _find(visit: Visit, asked: Shape) -> Shape | None:
    """Return the first match of a search, however many parts it takes."""
    for _ in range(_MAX_PARTS):
        answer = await visit.api.call("trainyard", "SearchLog", asked | {"MaxMatches": 1})
        if answer["Matches"]:
            return Shape(answer["Matches"][0])
        if not answer.get("NextToken"):
            return None
        asked = asked | {"NextToken": answer["NextToken"]}
    return None


async def _traceback_before(visit: Visit, asked: Shape, line: Shape) -> int:
    begin = "Traceback (most recent call last)"
    found = await visit.api.call(
        "trainyard",
        "SearchLog",
        asked | {"Pattern": {"Text": begin}, "Backward": True, "FromLine": line["Place"], "MaxMatches": 1},
    )
    near = [each["Line"] for each in found["Matches"] if line["Line"] - each["Line"] < _TRACEBACK_LINES]
    return near[0] if near else int(line["Line"])


async def _follow(visit: Visit, asked: Shape) -> Events:
    """Say how long the log is whenever that changes, with a few new lines, until it cannot grow any more."""
    known: dict[str, Any] | None = None
    wait = _MIN_WAIT_S
    while True:
        # The last known line may have had no end.
        new = {"FromLine": max(1, known["total"]), "LineCount": _SENT_LINES} if known else {"LineCount": 0}
        answer = await visit.api.call("trainyard", "ReadLog", asked | new)
        extent = _extent(answer)
        is_other = known is None or extent["attempt"] != known["attempt"]
        if known is None or is_other or extent["growing"] != known["growing"]:
            yield ServerEvent("facts", _facts(await _load_job(visit)))
        if extent != known:
            yield ServerEvent("extent", extent | ({} if is_other else _new_lines(answer, extent)))
            known, wait = extent, _MIN_WAIT_S
        elif extent["counted"] == extent["bytes"]:
            wait = min(_MAX_WAIT_S, wait * 1.3)
        if not extent["growing"] and extent["counted"] == extent["bytes"]:
            yield ServerEvent("end", {})
            return
        await asyncio.sleep(wait)


def _new_lines(answer: Shape, extent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new lines, if they are few and of one instance: of several, late lines come before known ones."""
    lines = answer["Lines"]
    is_all = bool(lines) and lines[-1]["Place"] == extent["total"] and len(extent["instances"]) == 1
    return {"lines": [_line(each) for each in lines]} if is_all else {}


async def _merged_text(visit: Visit, asked: Shape) -> AsyncGenerator[bytes, None]:
    """Yield the lines of all instances, each with its instance, as they are read."""
    first = 1
    while True:
        answer = await visit.api.call(
            "trainyard",
            "ReadLog",
            asked | {"FromLine": first, "LineCount": _DOWNLOADED_LINES, "MaxLineBytes": 1 << 20},
        )
        if not answer["Lines"] and answer["CountedBytes"] == answer["TotalBytes"]:
            return
        yield "".join(f"[{each['Instance']}] {each['Text']}{each.get('End', '')}\n" for each in answer["Lines"]).encode(
            "utf-8", "replace"
        )
        first += len(answer["Lines"])
