"""The answer to a search. Its dialog is `static/search.js`."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from trainyard.server.dashboard.api import ApiFault
from trainyard.server.dashboard.contract import Page, Visit, get
from trainyard.server.dashboard.pages.admin.section import SECTIONS
from trainyard.server.services.contract import Shape

# What one answer has of each group.
_JOBS, _OTHERS = 8, 5
# Names are shorter, and each word costs.
_MAX_TEXT, _MAX_WORDS = 300, 8
# IAM sends at most that many.
_USERS = 1000

Found = list[dict[str, Any]]


async def search(visit: Visit) -> Response:
    """Find what contains all words. Without words, the newest jobs and all pages."""
    words = visit.query.get("q", "")[:_MAX_TEXT].lower().split()[:_MAX_WORDS]
    searches = [_find_jobs(visit, words), _find_pages(visit, words)]
    if visit.user.is_admin and words:
        searches += [_find_users(visit, words), _find_settings(visit, words)]
    titles = ("Jobs", "Pages", "Users", "Settings")
    groups = [
        {"title": title, "items": items}
        for title, items in zip(titles, await asyncio.gather(*searches), strict=False)
        if items
    ]
    return visit.json({"groups": groups})


PAGE = Page("search", routes=(get("/search", search),))


async def _find_jobs(visit: Visit, words: Sequence[str]) -> Found:
    """Find jobs by their names, newest first, but one with exactly this name before all others."""
    wanted = " ".join(f'"{_escape(word)}"' for word in words)
    asked = {"Filter": wanted, "MaxResults": _JOBS, "Metrics": ["-"], "CountTotal": False}
    named, answer = await asyncio.gather(_job_named(visit, words), visit.api.call("trainyard", "ListJobs", asked))
    found = [_job(each["Kind"], each["Name"], each["State"], each["CreationTime"]) for each in answer["Jobs"]]
    if named:
        found = [named, *(each for each in found if each["href"] != named["href"])][:_JOBS]
    if answer.get("NextToken") and words:
        found.append({"title": "All jobs with these words", "href": f"/-/jobs?{urlencode({'filter': wanted})}"})
    return found


async def _job_named(visit: Visit, words: Sequence[str]) -> dict[str, Any] | None:
    """Find the training job with this name, however many newer ones contain it."""
    if len(words) != 1:
        return None
    name = visit.query["q"].strip()
    try:
        job = await visit.api.call("sagemaker", "DescribeTrainingJob", {"TrainingJobName": name})
    except ApiFault:
        return None
    state = {"InProgress": "running"}.get(job["TrainingJobStatus"], job["TrainingJobStatus"].lower())
    return _job("training", name, state, job["CreationTime"])


async def _find_pages(visit: Visit, words: Sequence[str]) -> Found:
    pages = [{"title": each.title, "href": each.path} for each in visit.dashboard.navigation_of(visit.user)]
    if visit.user.is_admin and words:
        pages += [{"title": f"Admin: {each.title}", "href": each.address} for each in SECTIONS]
    return [page for page in pages if _has(words, page["title"])]


async def _find_users(visit: Visit, words: Sequence[str]) -> Found:
    answer = await visit.api.call("iam", "ListUsers", {"MaxItems": _USERS})
    names = (each["UserName"] for each in answer["Users"] if _has(words, each["UserName"]))
    return [
        {"title": name, "note": "jobs of this user", "href": f"/-/jobs?{urlencode({'filter': f'user:{name}'})}"}
        for name in _first(names)
    ]


async def _find_settings(visit: Visit, words: Sequence[str]) -> Found:
    answer = await visit.api.call("trainyard", "ListSettings")
    matches: list[Shape] = [each for each in answer["Settings"] if _has(words, f"{each['Name']} {each['Help']}")]
    # Those with the words in their name first.
    matches.sort(key=lambda each: not _has(words, each["Name"]))
    return [
        {"title": each["Name"], "note": each["Help"], "href": f"/-/admin/settings?{urlencode({'q': each['Name']})}"}
        for each in matches[:_OTHERS]
    ]


def _job(kind: str, name: str, state: str, created_at: Any) -> dict[str, Any]:
    return {"title": name, "note": kind, "state": state, "at": created_at, "href": f"/-/{kind}/{name}"}


def _escape(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"')


def _has(words: Sequence[str], text: str) -> bool:
    return all(word in text.lower() for word in words)


def _first(names: Iterable[str]) -> Sequence[str]:
    return sorted(names, key=len)[:_OTHERS]
