"""GetResources, GetTagKeys and GetTagValues: search resources by their tags, sorted by ARN."""

import base64
import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server.records.contract import TaggedArn
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.tagging.owners import buckets_with_tags, owner_of, parse_arn

MAX_RESOURCES = 100
DEFAULT_RESOURCES = 50
MIN_TAGS, MAX_TAGS = 100, 500
# Resources read for one answer, which may then be short and have a token.
MAX_SCANNED = 10_000
# Tag keys or values on one page.
WORDS_PER_PAGE = 1000
MAX_TYPES = 100

_BATCH = 1000


def get_resources(call: Call, shape: Shape) -> Shape:
    _require_request(shape)
    if "ResourceARNList" in shape:
        return _answer(list(_tagged_by_arn(call, shape["ResourceARNList"])), None)
    page = _ResourcePage.of_request(shape)
    last = _parse_position(shape)
    for number, tagged in enumerate(_search_tagged(call, _prefixes(shape), last)):
        is_match = _matches(tagged, shape)
        if number == MAX_SCANNED or (is_match and not page.has_room(tagged)):
            return _answer(page.found, last)
        if is_match:
            page.found.append(tagged)
        last = tagged.arn, tagged.account
    return _answer(page.found, None)


def get_tag_keys(call: Call, shape: Shape) -> Shape:
    keys = {key for tagged in _search_tagged(call, (), ("", "")) for key in tagged.tags}
    page, token = _page_of_words(keys, shape)
    return {"TagKeys": page, "PaginationToken": token}


def get_tag_values(call: Call, shape: Shape) -> Shape:
    key = shape["Key"]
    values = {tagged.tags[key] for tagged in _search_tagged(call, (), ("", "")) if key in tagged.tags}
    page, token = _page_of_words(values, shape)
    return {"TagValues": page, "PaginationToken": token}


OPERATIONS: Operations = {"GetResources": get_resources, "GetTagKeys": get_tag_keys, "GetTagValues": get_tag_values}

# The ARN and the account of the last resource that was read.
Position = tuple[str, str]


@dataclass(slots=True)
class _ResourcePage:
    """Collects what fits into one answer. A resource comes with all its tags."""

    max_resources: int
    max_tags: int | None
    found: list[TaggedArn] = field(default_factory=list)

    @classmethod
    def of_request(cls, shape: Shape) -> "_ResourcePage":
        default = MAX_TAGS if "TagsPerPage" in shape else DEFAULT_RESOURCES
        return cls(shape.get("ResourcesPerPage", default), shape.get("TagsPerPage"))

    def has_room(self, tagged: TaggedArn) -> bool:
        if self.max_tags is not None and sum(len(each.tags) for each in [*self.found, tagged]) > self.max_tags:
            return False
        return len(self.found) < self.max_resources


def _require_request(shape: Shape) -> None:
    filters = {"ResourceTypeFilters", "TagFilters", "ResourcesPerPage", "TagsPerPage", "PaginationToken"}
    given = sorted(member for member in filters if shape.get(member))
    if "ResourceARNList" in shape and given:
        raise InvalidRequest(f"ResourceARNList cannot be combined with {', '.join(given)}.")
    if not 1 <= shape.get("ResourcesPerPage", 1) <= MAX_RESOURCES:
        raise InvalidRequest(f"ResourcesPerPage must be 1 to {MAX_RESOURCES}.")
    if not MIN_TAGS <= shape.get("TagsPerPage", MIN_TAGS) <= MAX_TAGS:
        raise InvalidRequest(f"TagsPerPage must be {MIN_TAGS} to {MAX_TAGS}.")
    if len(shape.get("ResourceTypeFilters", ())) > MAX_TYPES:
        raise InvalidRequest(f"ResourceTypeFilters must have at most {MAX_TYPES} members.")
    if any("Key" not in each for each in shape.get("TagFilters", ())):
        raise InvalidRequest("Every member of TagFilters needs a Key.")
    if shape.get("IncludeComplianceDetails") or shape.get("ExcludeCompliantResources"):
        raise InvalidRequest(
            "Trainyard has no tag policies; leave IncludeComplianceDetails and ExcludeCompliantResources out."
        )


def _tagged_by_arn(call: Call, arns: Iterable[str]) -> Iterator[TaggedArn]:
    """Yield the tagged resources among the ARNs that the caller can see."""
    for arn in sorted(set(arns)):
        try:
            tags = owner_of(call, arn).tags()
        except (NotFound, InvalidRequest):
            continue
        if tags:
            yield TaggedArn(call.account, arn, tags)


def _prefixes(shape: Shape) -> Sequence[str]:
    services = {kind.partition(":")[0] for kind in shape.get("ResourceTypeFilters", ())}
    return sorted(f"arn:aws:{service}:" for service in services)


def _search_tagged(call: Call, prefixes: Sequence[str], after: Position) -> Iterator[TaggedArn]:
    """Yield the tagged resources after a position, restricted to ARN prefixes if any are given."""
    in_buckets = (
        bucket
        for bucket in buckets_with_tags(call)
        if (bucket.arn, bucket.account) > after and (not prefixes or bucket.arn.startswith(tuple(prefixes)))
    )
    return heapq.merge(
        _search_records(call, prefixes, after[0]), in_buckets, key=lambda tagged: (tagged.arn, tagged.account)
    )


def _search_records(call: Call, prefixes: Sequence[str], after: str) -> Iterator[TaggedArn]:
    while batch := call.yard.records.tagged_arns(call.caller.scope, arn_prefixes=prefixes, after=after, limit=_BATCH):
        yield from batch
        after = batch[-1].arn


def _matches(tagged: TaggedArn, shape: Shape) -> bool:
    kinds = shape.get("ResourceTypeFilters")
    if kinds:
        parts = parse_arn(tagged.arn)
        if parts.service not in kinds and f"{parts.service}:{parts.type}" not in kinds:
            return False
    return all(_has(tagged.tags, wanted) for wanted in shape.get("TagFilters", ()))


def _has(tags: Mapping[str, str], wanted: Shape) -> bool:
    key, values = wanted["Key"], wanted.get("Values")
    return key in tags and (not values or tags[key] in values)


def _answer(found: Sequence[TaggedArn], last: Position | None) -> Shape:
    resources = [
        {"ResourceARN": tagged.arn, "Tags": [{"Key": key, "Value": value} for key, value in tagged.tags.items()]}
        for tagged in found
    ]
    return {"ResourceTagMappingList": resources, "PaginationToken": "" if last is None else _token(list(last))}


def _page_of_words(words: Iterable[str], shape: Shape) -> tuple[list[str], str]:
    """Return one sorted page of words, and the token of the next."""
    if token := shape.get("PaginationToken"):
        last = _parse_token(token, length=1)[0]
        words = (word for word in words if word > last)
    ordered = sorted(words)
    page = ordered[:WORDS_PER_PAGE]
    return page, _token([page[-1]]) if len(ordered) > WORDS_PER_PAGE else ""


def _parse_position(shape: Shape) -> Position:
    token = shape.get("PaginationToken")
    if not token:
        return "", ""
    arn, account = _parse_token(token, length=2)
    return arn, account


def _token(texts: Sequence[str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(texts).encode()).decode()


def _parse_token(token: str, *, length: int) -> list[str]:
    try:
        texts = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
        if not isinstance(texts, list) or len(texts) != length or not all(isinstance(text, str) for text in texts):
            raise ValueError("not a token of this operation")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The PaginationToken is invalid.") from error
    return texts
