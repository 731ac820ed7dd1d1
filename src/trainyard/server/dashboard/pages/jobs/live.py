"""Sends what changes on the page for as long as it is open: rows, groups, and how much of the machine is in use."""

import asyncio
import time
from typing import Any

from trainyard.server.dashboard.api import ApiFault
from trainyard.server.dashboard.events import Events, ServerEvent
from trainyard.server.dashboard.pages.jobs.overview import read_capacity
from trainyard.server.dashboard.pages.jobs.view import ListView, compact_page
from trainyard.server.dashboard.visit import Visit

MIN_INTERVAL_S = 1.0
# A page may take one part in this of a core.
SHARE_OF_CORE = 150
# Queue positions and reasons to wait change without a change of the job.
FULL_EVERY_S = 15.0
CAPACITY_EVERY_S = 5.0


async def watch_list(visit: Visit, view: ListView, known: list[str]) -> Events:
    """Yield what differs from the revisions that the browser knows, and later from what it was sent."""
    parts, problem = (_ChangedCapacity(visit), _ChangedRows(visit, view, known)), ""
    while True:
        began = time.monotonic()
        for part in parts:
            try:
                event = await part.find()
            except ApiFault as fault:
                event = ServerEvent("problem", {"message": fault.message}) if fault.message != problem else None
                problem = fault.message
            if event is not None:
                yield event
        took = time.monotonic() - began
        await asyncio.sleep(max(MIN_INTERVAL_S, took * SHARE_OF_CORE))


class _ChangedRows:
    """The rows of a page of the list, and what of them the browser knows."""

    def __init__(self, visit: Visit, view: ListView, known: list[str]) -> None:
        self._visit, self._view, self._known = visit, view, known
        self._version, self._shown = "", tuple[Any, ...]()
        self._full_at = time.monotonic() + FULL_EVERY_S

    async def find(self) -> ServerEvent | None:
        """Return an event if rows, their order or their groups have changed."""
        is_full = time.monotonic() >= self._full_at
        if is_full:
            self._full_at = time.monotonic() + FULL_EVERY_S
        asked: dict[str, Any] = {} if is_full else {"KnownRevisions": self._known}
        if self._version and not is_full:
            asked["KnownVersion"] = self._version
        answer = await self._visit.api.call("trainyard", "ListJobs", self._view.request(**asked))
        if answer.get("IsUnchanged"):
            return None
        page = compact_page(answer)
        order = [row["arn"] for row in page["rows"]]
        # A row without a state is one that the browser knows.
        rows = [row for row in page["rows"] if "state" in row]
        shown = (answer["Version"], order, page["total"])
        is_same = shown == self._shown
        if is_same:
            rows = [row for row in rows if row["state"] == "waiting"]
        self._known = [row["revision"] for row in page["rows"]]
        self._version, self._shown = answer["Version"], shown
        return ServerEvent("rows", page | {"rows": rows, "order": order}) if rows or not is_same else None


class _ChangedCapacity:
    """How much of the machine is in use, and what of it the browser knows."""

    def __init__(self, visit: Visit) -> None:
        self._visit, self._sent = visit, dict[str, Any]()
        self._next_at = time.monotonic()

    async def find(self) -> ServerEvent | None:
        """Return an event if it is time to look and something has changed."""
        if time.monotonic() < self._next_at:
            return None
        self._next_at = time.monotonic() + CAPACITY_EVERY_S
        found = await read_capacity(self._visit)
        if found == self._sent:
            return None
        self._sent = found
        return ServerEvent("capacity", found)
