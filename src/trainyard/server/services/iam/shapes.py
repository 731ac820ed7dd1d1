"""Members that IAM's requests and answers share: pages (Marker, MaxItems, IsTruncated) and tags."""

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Query, Records, Resource
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.iam.faults import validation_error
from trainyard.server.services.tag_rules import require_tags

T = TypeVar("T")

DEFAULT_PAGE = 100


def page_of(
    member: str, items: Iterable[T], request: Shape, *, key: Callable[[T], str], shape: Callable[[T], Any]
) -> Shape:
    """Return one page of `items`, sorted by `key`."""
    after = _parse_marker(request.get("Marker", ""))
    rest = sorted((item for item in items if key(item) > after), key=key)
    page = rest[: request.get("MaxItems", DEFAULT_PAGE)]
    marker = _format_marker(key(page[-1])) if len(page) < len(rest) else None
    return {member: [shape(item) for item in page]} | _truncation(marker)


def page_of_records(
    member: str,
    records: Records,
    query: Query,
    request: Shape,
    *,
    is_match: Callable[[Resource], bool],
    shape: Callable[[Resource], Shape],
) -> Shape:
    """Return one full page of the matching resources, in the order of the query."""
    size = request.get("MaxItems", DEFAULT_PAGE)
    after: str | None = request.get("Marker", "")
    matches: list[Resource] = []
    while after is not None and len(matches) < size:
        page = records.find(replace(query, limit=size - len(matches), after=after))
        matches += filter(is_match, page.resources)
        after = page.next_after
    return {member: [shape(resource) for resource in matches]} | _truncation(after)


def all_of(records: Records, query: Query) -> Iterable[Resource]:
    """Yield everything that a query finds, read page by page."""
    after: str | None = ""
    while after is not None:
        page = records.find(replace(query, limit=1000, after=after))
        yield from page.resources
        after = page.next_after


def tags_of(request: Shape, *, known: Mapping[str, str] | None = None, ignores_case: bool = True) -> dict[str, str]:
    """Return the tags of a request, checked together with the `known` ones of the resource.

    Tag keys of roles and users ignore case, those of policies and instance profiles do not.
    """
    given = request.get("Tags", ())
    keys = {tag["Key"].lower() if ignores_case else tag["Key"] for tag in given}
    if len(keys) < len(given):
        hint = " Please note that Tag keys are case insensitive." if ignores_case else ""
        raise InvalidRequest(f"Duplicate tag keys found.{hint}")
    tags = {tag["Key"]: tag["Value"] for tag in given}
    require_tags(tags, known=known)
    return tags


def add_tags(call: Call, account: str, *, arn: str, request: Shape, ignores_case: bool = True) -> None:
    records = call.yard.records
    tags = tags_of(request, known=records.tags(account, arn), ignores_case=ignores_case)
    records.set_tags(account, arn, tags)


def page_of_tags(tags: Mapping[str, str], request: Shape) -> Shape:
    return page_of("Tags", tag_shapes(tags), request, key=lambda tag: str(tag["Key"]), shape=dict)


def tag_shapes(tags: Mapping[str, str]) -> list[Shape]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _truncation(marker: str | None) -> Shape:
    return {"IsTruncated": False} if marker is None else {"IsTruncated": True, "Marker": marker}


def _format_marker(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def _parse_marker(marker: str) -> str:
    try:
        return base64.b64decode(marker, altchars=b"-_", validate=True).decode()
    except ValueError:
        raise validation_error("The Marker is invalid; send the Marker of the previous answer unchanged.") from None
