"""IAM's pages: Marker, MaxItems and IsTruncated."""

import base64
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from trainyard.server.records.contract import Query, Records, Resource
from trainyard.server.services.contract import Shape
from trainyard.wire.fault import Fault

T = TypeVar("T")

DEFAULT_PAGE = 100


def page_of(
    member: str, items: Iterable[T], request: Shape, *, key: Callable[[T], str], shape: Callable[[T], Any]
) -> Shape:
    """One page of things at hand, ordered by `key`."""
    after = _read_marker(request.get("Marker", ""))
    rest = sorted((item for item in items if key(item) > after), key=key)
    page = rest[: request.get("MaxItems", DEFAULT_PAGE)]
    marker = _write_marker(key(page[-1])) if len(page) < len(rest) else None
    return {member: [shape(item) for item in page]} | _truncation(marker)


def page_of_records(
    member: str,
    records: Records,
    query: Query,
    request: Shape,
    *,
    wanted: Callable[[Resource], bool],
    shape: Callable[[Resource], Shape],
) -> Shape:
    """One full page of the resources that are wanted, in the order of the query."""
    size = request.get("MaxItems", DEFAULT_PAGE)
    after: str | None = request.get("Marker", "")
    kept: list[Resource] = []
    while after is not None and len(kept) < size:
        page = records.find(replace(query, limit=size - len(kept), after=after))
        kept += filter(wanted, page.resources)
        after = page.next_after
    return {member: [shape(resource) for resource in kept]} | _truncation(after)


def all_of(records: Records, query: Query) -> Iterable[Resource]:
    after: str | None = ""
    while after is not None:
        page = records.find(replace(query, limit=1000, after=after))
        yield from page.resources
        after = page.next_after


def _truncation(marker: str | None) -> Shape:
    return {"IsTruncated": False} if marker is None else {"IsTruncated": True, "Marker": marker}


def _write_marker(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _read_marker(marker: str) -> str:
    try:
        return base64.b64decode(marker, altchars=b"-_", validate=True).decode()
    except ValueError:
        raise Fault("ValidationError", "The Marker is not one that a list of this kind gave.") from None
