"""Sends what changes in a tuning job for as long as its page is open: its trials, their curves, and its state."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

from trainyard.server.dashboard.api import ApiFault
from trainyard.server.dashboard.events import Events, ServerEvent
from trainyard.server.dashboard.visit import Visit

MIN_INTERVAL_S = 1.0
# The state of the tuning job is read when trials change, and this often.
STATE_EVERY_S = 10.0
RETRY_S = 5.0
# A page may take one part in this of a core.
SHARE_OF_CORE = 120
# Of all curves together. The more trials, the fewer points has each.
MAX_POINTS, MIN_POINTS_EACH, MAX_POINTS_EACH = 30_000, 12, 120

_FINAL = frozenset({"Completed", "Failed", "Stopped"})


async def watch_tuning_job(visit: Visit, name: str) -> Events:
    """Yield the trials and curves that the browser does not know yet, and later what changes, until the job ends."""
    trials_after, _, curves_after = visit.last_event_id.partition("_")
    state: dict[str, Any] = {}
    state_at = 0.0
    while True:
        began, cpu = time.monotonic(), time.thread_time()
        try:
            has_changed = False
            async for page in _changed_trials(visit, name, trials_after):
                has_changed = has_changed or bool(page["Trials"])
                trials_after = page["Cursor"]
                if page["Trials"] or not state:
                    value = {"trials": [compact_trial(each) for each in page["Trials"]], "hasMore": page["HasMore"]}
                    yield ServerEvent("trials", value, f"{trials_after}_{curves_after}")
            count = max(1, page["TrialCount"])
            asked: dict[str, Any] = {
                "HyperParameterTuningJobName": name,
                "MaxPoints": max(MIN_POINTS_EACH, min(MAX_POINTS_EACH, MAX_POINTS // count)),
            } | ({"Cursor": curves_after} if curves_after else {})
            curves = await visit.api.call("trainyard", "ReadTrialCurves", asked)
            curves_after = curves["Cursor"]
            if curves["Curves"]:
                value = {"curves": [compact_curve(each) for each in curves["Curves"]], "rungs": curves.get("Rungs", [])}
                yield ServerEvent("curves", value, f"{trials_after}_{curves_after}")
            if has_changed or began - state_at >= STATE_EVERY_S:
                before, state, state_at = state, await read_state(visit, name), began
                if {**state, "runtime": 0} != {**before, "runtime": 0}:
                    yield ServerEvent("state", state)
        except ApiFault as fault:
            if fault.status == HTTPStatus.NOT_FOUND:
                yield ServerEvent("problem", {"message": fault.message})
                yield ServerEvent("end", {})
                return
            # What is unavailable now may answer later; the browser has what it was sent.
            await asyncio.sleep(RETRY_S)
            continue
        if state["status"] in _FINAL:
            if has_changed:
                continue
            yield ServerEvent("end", {})
            return
        took = max(time.monotonic() - began, time.thread_time() - cpu)
        await asyncio.sleep(max(MIN_INTERVAL_S, took * SHARE_OF_CORE))


async def read_state(visit: Visit, name: str) -> dict[str, Any]:
    """Return the state of a tuning job against its limits, and why it is as it is."""
    named = {"HyperParameterTuningJobName": name}
    description, details = await asyncio.gather(
        visit.api.call("sagemaker", "DescribeHyperParameterTuningJob", named),
        visit.api.call("trainyard", "DescribeTuningJob", named),
    )
    return state_of(description, details)


def state_of(description: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, Any]:
    best = description.get("BestTrainingJob")
    counters = description["TrainingJobStatusCounters"]
    completion = description.get("TuningJobCompletionDetails", {})
    return {
        "status": description["HyperParameterTuningJobStatus"],
        "planned": details["PlannedJobs"],
        "measured": details["MeasuredJobs"],
        "running": counters["InProgress"],
        "completed": counters["Completed"],
        "stopped": counters["Stopped"],
        "failed": counters["NonRetryableError"],
        "runtime": description["ConsumedResources"]["RuntimeInSeconds"],
        "notImproving": completion.get("NumberOfTrainingJobsObjectiveNotImproving", 0),
        "convergedAt": completion.get("ConvergenceDetectedTime"),
        "best": best["TrainingJobName"] if best else None,
        "bestValue": best["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] if best else None,
        "stopReason": details.get("StopReason"),
        "failure": details.get("FailureReason"),
        "notes": details["Notes"],
    }


def compact_trial(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial with short names, because a page has a thousand."""
    return {short: trial[member] for short, member in _MEMBERS.items() if trial.get(member) is not None}


def compact_curve(curve: Mapping[str, Any]) -> list[Any]:
    return [curve["TrialNumber"], curve["ReportCount"], curve["Reports"], curve["Values"]]


_MEMBERS = {
    "number": "TrialNumber",
    "job": "TrainingJobName",
    "definition": "DefinitionName",
    "values": "HyperParameters",
    "status": "Status",
    "objective": "Objective",
    "isMeasured": "IsMeasured",
    "cause": "StopCause",
    "reason": "Reason",
    "bracket": "Bracket",
    "created": "CreationTime",
    "started": "TrainingStartTime",
    "ended": "TrainingEndTime",
}


async def _changed_trials(visit: Visit, name: str, after: str) -> AsyncIterator[Mapping[str, Any]]:
    """Yield the pages of trials that changed since a cursor; at least one page, which may be empty."""
    while True:
        cursor = {"Cursor": after} if after else {}
        page = await visit.api.call("trainyard", "ListTrials", {"HyperParameterTuningJobName": name, **cursor})
        yield page
        if not page["HasMore"]:
            return
        after = page["Cursor"]
