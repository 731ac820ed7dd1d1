"""What the overview of a job tells: its sections as HTML, and the facts that the charts need."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.job_frame import JobFrame, load_training_job
from trainyard.server.dashboard.pages.job.job_filters import tag_filter
from trainyard.server.dashboard.pages.job.timeline import startup_bar, status_bar

# Each is rendered by a template of this name, into an element of this id.
SECTIONS = ("facts", "failure", "waiting", "timeline", "metrics", "rules", "notes", "about")
_TEMPLATES = {"facts": "job_facts.html"}

# Findings drawn into the charts, of all rules together.
_MAX_MARKS = 100


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of a job at one moment. `sections` is empty where a job has nothing of that kind."""

    job: JobFrame
    sections: Mapping[str, str]
    facts: Mapping[str, Any]


async def read_overview(visit: Visit, *, now: datetime) -> Overview:
    """Read the job that the address names. ApiFault if the user can see none."""
    job = await load_training_job(visit)
    tags = (await visit.api.call("sagemaker", "ListTags", {"ResourceArn": job.description["TrainingJobArn"]}))["Tags"]
    sections = await asyncio.to_thread(_render_sections, visit, job, tags, now)
    return Overview(job, sections, job_facts(job))


def _render_sections(visit: Visit, job: JobFrame, tags: list[dict[str, str]], now: datetime) -> dict[str, str]:
    details, description = job.details, job.description
    values = {
        "job": job,
        "details": details,
        "description": description,
        "card": details.get("FailureCard"),
        "tags": [(each, tag_filter(each["Key"], each["Value"])) for each in tags],
        "now": now,
        "statuses": status_bar(description["SecondaryStatusTransitions"], now=now),
        "startup": startup_bar(details["Waterfall"], now=now),
        "interruptions": [each for each in details["Attempts"] if "InterruptionReason" in each],
        "hyperparameters": _own_hyperparameters(description.get("HyperParameters", {})),
    }
    return {name: _render(visit, name, values) for name in SECTIONS}


def _render(visit: Visit, name: str, values: Mapping[str, Any]) -> str:
    template = visit.dashboard.templates.get_template(_TEMPLATES.get(name, f"job/sections/{name}.html"))
    return template.render(values).strip()


def job_facts(job: JobFrame) -> dict[str, Any]:
    """Return what the charts of a job need besides its points."""
    details = job.details
    return {
        "address": job.address,
        "name": job.name,
        "isRunning": job.is_running,
        "started": job.description.get("TrainingStartTime") or job.created_at,
        "definitions": [
            each["Name"] for each in job.description["AlgorithmSpecification"].get("MetricDefinitions", ())
        ],
        "summaries": {
            each["Name"]: {"last": each.get("Last"), "best": each.get("Best"), "count": each["Count"]}
            for each in details["Metrics"]
        },
        "interruptions": [
            {"at": each["EndTime"], "attempt": each["Number"], "text": each["InterruptionReason"]}
            for each in details["Attempts"]
            if "InterruptionReason" in each and "EndTime" in each
        ],
        "findings": [
            {"at": rule.get("LastModifiedTime"), "step": finding.get("Step"), "rule": rule["Name"]}
            | {"text": finding["Message"][:300]}
            for rule in details["Rules"]
            for finding in rule["Findings"]
        ][:_MAX_MARKS],
    }


def _own_hyperparameters(given: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the hyperparameters that the user set, without the quotes that SDKs put around text."""
    own = ((name, value) for name, value in sorted(given.items()) if not name.startswith(("sagemaker_", "_tuning_")))
    return [(name, value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value) for name, value in own]
