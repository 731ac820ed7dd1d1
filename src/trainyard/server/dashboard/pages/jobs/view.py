"""What the list of jobs is asked for, from the address of the page, and its rows as the page's script reads them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from trainyard.server.dashboard.visit import BadRequest, Visit

PAGE_ROWS = 50
MAX_COLUMNS = 40

_AGGREGATES = ("last", "min", "max", "best", "count")
_PLAIN = ("status", "created", "duration", "type", "cost", "user", "tags")


@dataclass(frozen=True, slots=True)
class ListView:
    """One view of the list. `columns` are keys such as status, metric:loss.min, param:lr, spark:loss or tag:team.

    Empty columns mean those that suit the jobs of the page.
    """

    filter: str
    sort: str
    group: str
    after: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, visit: Visit) -> "ListView":
        given = visit.query.get("columns", "")
        columns = tuple(unquote(each) for each in given.split(",") if each)
        if len(columns) > MAX_COLUMNS:
            raise BadRequest(f"A table can have {MAX_COLUMNS} columns; the address names {len(columns)}.")
        return cls(
            visit.query.get("filter", ""),
            visit.query.get("sort", ""),
            visit.query.get("group", ""),
            visit.query.get("after", ""),
            columns,
        )

    def request(self, **more: Any) -> dict[str, Any]:
        """Return the request for a page of the list."""
        request: dict[str, Any] = {"Filter": self.filter, "MaxResults": PAGE_ROWS, **more}
        if self.sort:
            is_descending = self.sort.startswith("-")
            request |= {
                "SortBy": self.sort.removeprefix("-"),
                "SortOrder": "Descending" if is_descending else "Ascending",
            }
        if self.group:
            request["GroupBy"] = self.group
        if self.after:
            request["NextToken"] = self.after
        if self.columns:
            request["Metrics"] = self._names("metric:") or ["-"]
            if names := self._names("param:"):
                request["HyperParameters"] = names
            if sparklines := self._names("spark:"):
                request["SparklineMetric"] = sparklines[0]
        return request

    def with_columns_for(self, jobs: list[dict[str, Any]], *, shows_users: bool, shows_costs: bool) -> "ListView":
        """Return the view with the columns that suit these jobs."""
        counts = Counter(metric["Name"] for job in jobs for metric in job.get("Metrics", ()))
        metrics = [name for name, _ in counts.most_common(2)]
        hidden = {"user": not shows_users, "cost": not shows_costs}
        plain = [name for name in _PLAIN if not hidden.get(name)]
        at = plain.index("tags")
        shown = [f"metric:{name}" for name in metrics]
        sparkline = [f"spark:{metrics[0]}"] if metrics else []
        return replace(self, columns=(*plain[:at], *shown, *sparkline, *plain[at:]))

    def _names(self, prefix: str) -> list[str]:
        """Return the names of the columns with a prefix, each once and without what is shown of a metric."""
        found = dict.fromkeys(each.removeprefix(prefix) for each in self.columns if each.startswith(prefix))
        return list(dict.fromkeys(_without_aggregate(each) if prefix == "metric:" else each for each in found))


def compact_row(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of ListJobs with short names, because a page has fifty."""
    row = {short: job[member] for short, member in _MEMBERS.items() if member in job}
    if "InstanceTypes" in job:
        row["types"] = [[each["InstanceType"], each["Count"]] for each in job["InstanceTypes"]]
    if "Tags" in job:
        row["tags"] = [[each["Key"], each["Value"]] for each in job["Tags"]]
    if "Metrics" in job:
        row["metrics"] = {
            each["Name"]: {name: each[name.capitalize()] for name in _AGGREGATES if name.capitalize() in each}
            for each in job["Metrics"]
        }
    if "Trials" in job:
        row["trials"] = {name.lower(): count for name, count in job["Trials"].items()}
    return row


def compact_group(group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "value": group.get("Value"),
        "jobs": group["Jobs"],
        "states": {each["State"]: each["Jobs"] for each in group["States"]},
        "cost": group["Cost"],
        "costPerHour": group["CostPerHour"],
    }


def compact_page(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of ListJobs as the script of the page reads it."""
    return {
        "rows": [compact_row(job) for job in answer["Jobs"]],
        "next": answer.get("NextToken"),
        "total": answer.get("Total"),
        "groups": [compact_group(group) for group in answer["Groups"]] if "Groups" in answer else None,
    }


_MEMBERS = {
    "arn": "Arn",
    "kind": "Kind",
    "name": "Name",
    "revision": "Revision",
    "user": "UserName",
    "state": "State",
    "phase": "SecondaryStatus",
    "message": "StatusMessage",
    "failure": "FailureReason",
    "created": "CreationTime",
    "modified": "LastModifiedTime",
    "started": "StartTime",
    "ended": "EndTime",
    "spot": "Spot",
    "interruptions": "Interruptions",
    "engine": "Engine",
    "image": "Image",
    "price": "PricePerHour",
    "cost": "Cost",
    "tuning": "TuningJobName",
    "position": "QueuePosition",
    "wait": "WaitReason",
    "params": "HyperParameters",
    "spark": "Sparkline",
    "objective": "Objective",
    "best": "BestObjective",
    "bestJob": "BestJobName",
}


def _without_aggregate(name: str) -> str:
    stem, dot, end = name.rpartition(".")
    return stem if dot and stem and end in _AGGREGATES else name
