"""Reads what is compared of jobs, over the API."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import parse_s3_uri
from trainyard.insight.comparison import (
    MAX_INPUT_OBJECTS,
    ComparedFact,
    DataObject,
    FactKey,
    JobFacts,
    code_location,
    compare_facts,
    facts_of_job,
    listed_locations,
)
from trainyard.server.dashboard.api import ApiFault, YardApi
from trainyard.server.dashboard.contract import Visit
from trainyard.server.dashboard.pages.compare.job_code import read_code
from trainyard.server.dashboard.rendering import format_bytes, format_number
from trainyard.server.services.contract import Shape

MAX_JOBS = 50

# Jobs that are read at the same time.
_AT_ONCE = 4
_MAX_VALUE = 600
_MAX_FACTS = 3000


@dataclass(frozen=True, slots=True)
class ReadJob:
    """A job as the comparison needs it: for the head of its column, and its facts."""

    head: Shape
    facts: JobFacts


async def read_jobs(visit: Visit, names: Sequence[str]) -> tuple[list[ReadJob], list[str]]:
    """Return the jobs that can be read, in the given order, and what was wrong with the others."""
    limit, shared = asyncio.Semaphore(_AT_ONCE), _Shared(visit.api)

    async def read_one(name: str) -> ReadJob | str:
        async with limit:
            try:
                return await _read_job(visit.api, shared, name)
            except ApiFault as fault:
                is_missing = fault.status == 404
                return f'There is no training job named "{name}".' if is_missing else f"{name}: {fault.message}"

    found = await asyncio.gather(*(read_one(name) for name in names))
    return [each for each in found if isinstance(each, ReadJob)], [each for each in found if isinstance(each, str)]


def comparison_of(jobs: Sequence[ReadJob]) -> list[Shape]:
    """Return the facts of jobs beside each other."""
    return [_fact_shape(fact) for fact in compare_facts([job.facts for job in jobs])[:_MAX_FACTS]]


class _Shared:
    """What several jobs of a comparison have in common, read once."""

    def __init__(self, api: YardApi) -> None:
        self._api = api
        self._listings: dict[tuple[str, str], asyncio.Task[list[DataObject] | None]] = {}

    async def listing(self, uri: str, owner: str) -> list[DataObject] | None:
        key = (owner, uri)
        if key not in self._listings:
            self._listings[key] = asyncio.ensure_future(_list_location(self._api, uri, owner=owner))
        return await self._listings[key]


async def _read_job(api: YardApi, shared: _Shared, name: str) -> ReadJob:
    named = {"TrainingJobName": name}
    description = await api.call("sagemaker", "DescribeTrainingJob", named)
    details = await api.call("trainyard", "DescribeJob", named)
    owner = description["TrainingJobArn"].split(":")[4]
    code = await read_code(api, code_location(description), owner=owner)
    listings = {uri: await shared.listing(uri, owner) for uri in listed_locations(description)}
    facts = facts_of_job(description, code, listings)
    head = {
        "name": description["TrainingJobName"],
        "status": description["TrainingJobStatus"],
        "user": details["UserName"],
        "created": description["CreationTime"],
        "started": description.get("TrainingStartTime", description["CreationTime"]),
        "metrics": [metric["MetricName"] for metric in description.get("FinalMetricDataList", ())],
    }
    return ReadJob(head, JobFacts(facts.name, _with_details(facts.values, details), facts.code))


def _with_details(values: Mapping[FactKey, str], details: Shape) -> dict[FactKey, str]:
    """Add what only the yard's own description tells to the facts, kind by kind."""
    return dict(values) | dict(_details(details))


def _details(details: Shape) -> Iterator[tuple[FactKey, str]]:
    if card := details.get("FailureCard"):
        yield ("job", "failure"), card.get("Summary") or card.get("Class", "")
    interruptions = sum("InterruptionReason" in attempt for attempt in details.get("Attempts", ()))
    yield ("job", "interruptions"), str(interruptions)
    if details.get("PriceIsSet"):
        yield ("job", "cost, USD"), f"{details['Cost']:.4g}"
    yield ("instances", "engine"), details.get("Engine", "")
    for share in details.get("Shares", ())[:1]:
        parts = [
            f"{format_number(share['Cpus'])} CPUs" if "Cpus" in share else "",
            format_bytes(share["MemoryBytes"]) if "MemoryBytes" in share else "",
            f"{len(share['Gpus'])} GPUs" if share.get("Gpus") else "",
        ]
        yield ("instances", "each instance"), ", ".join(part for part in parts if part)


async def _list_location(api: YardApi, uri: str, *, owner: str) -> list[DataObject] | None:
    """Return all objects below a location; None if it cannot be listed, or has too many."""
    found, more = list[DataObject](), dict[str, str]()
    try:
        place = parse_s3_uri(uri, account=owner)
        asked = {"Bucket": place.bucket.name, "Prefix": place.key, "ExpectedBucketOwner": owner}
        while True:
            page = await api.call("s3", "ListObjectsV2", asked | more)
            found += [DataObject(each["Key"], each["Size"], each["ETag"]) for each in page["Contents"]]
            if len(found) > MAX_INPUT_OBJECTS:
                return None
            if "NextContinuationToken" not in page:
                return found
            more = {"ContinuationToken": page["NextContinuationToken"]}
    except (ApiFault, InvalidRequest):
        return None


def _fact_shape(fact: ComparedFact) -> Shape:
    return {
        "kind": fact.kind,
        "name": fact.name[:_MAX_VALUE],
        "values": [
            value if value is None or len(value) <= _MAX_VALUE else f"{value[:_MAX_VALUE]}…" for value in fact.values
        ],
        "isSame": fact.is_same,
    }
