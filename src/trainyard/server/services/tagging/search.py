"""Which resources have which tags, in the order of their ARNs."""

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
MAX_LOOKED_AT = 10_000  # for one answer, which may then be short and have a token
WORDS_PER_PAGE = 1000  # of keys or values
MAX_TYPES = 100

_BATCH = 1000


def get_resources(call: Call, shape: Shape) -> Shape:
    _require_request(shape)
    if "ResourceARNList" in shape:
        return _answer(list(_named(call, shape["ResourceARNList"])), None)
    page = _ResourcePage.asked_for(shape)
    last = _parse_place(shape)
    for number, tagged in enumerate(_tagged(call, _prefixes(shape), last)):
        is_match = _matches(tagged, shape)
        if number == MAX_LOOKED_AT or (is_match and not page.has_room(tagged)):
            return _answer(page.found, last)
        if is_match:
            page.found.append(tagged)
        last = tagged.arn, tagged.account
    return _answer(page.found, None)


def get_tag_keys(call: Call, shape: Shape) -> Shape:
    keys = {key for tagged in _tagged(call, (), ("", "")) for key in tagged.tags}
    page, token = _words(keys, shape)
    return {"TagKeys": page, "PaginationToken": token}


def get_tag_values(call: Call, shape: Shape) -> Shape:
    key = shape["Key"]
    values = {tagged.tags[key] for tagged in _tagged(call, (), ("", "")) if key in tagged.tags}
    page, token = _words(values, shape)
    return {"TagValues": page, "PaginationToken": token}


OPERATIONS: Operations = {"GetResources": get_resources, "GetTagKeys": get_tag_keys, "GetTagValues": get_tag_values}

Place = tuple[str, str]  # the ARN and the account of the last resource that was looked at


@dataclass(slots=True)
class _ResourcePage:
    """What fits into one answer; a resource is never parted from its tags."""

    max_resources: int
    max_tags: int | None
    found: list[TaggedArn] = field(default_factory=list)

    @classmethod
    def asked_for(cls, shape: Shape) -> "_ResourcePage":
        default = MAX_TAGS if "TagsPerPage" in shape else DEFAULT_RESOURCES
        return cls(shape.get("ResourcesPerPage", default), shape.get("TagsPerPage"))

    def has_room(self, tagged: TaggedArn) -> bool:
        if self.max_tags is not None and sum(len(each.tags) for each in [*self.found, tagged]) > self.max_tags:
            return False
        return len(self.found) < self.max_resources


def _require_request(shape: Shape) -> None:
    narrowing = {"ResourceTypeFilters", "TagFilters", "ResourcesPerPage", "TagsPerPage", "PaginationToken"}
    given = sorted(member for member in narrowing if shape.get(member))
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
        raise InvalidRequest("Compliance with tag policies is not served; ask without it.")


def _named(call: Call, arns: Iterable[str]) -> Iterator[TaggedArn]:
    """Those of the ARNs that name a tagged resource the caller sees."""
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


def _tagged(call: Call, prefixes: Sequence[str], after: Place) -> Iterator[TaggedArn]:
    """What has tags and begins with one of the prefixes, or with anything, behind a place."""
    in_buckets = (
        bucket
        for bucket in buckets_with_tags(call)
        if (bucket.arn, bucket.account) > after and (not prefixes or bucket.arn.startswith(tuple(prefixes)))
    )
    return heapq.merge(_recorded(call, prefixes, after[0]), in_buckets, key=lambda tagged: (tagged.arn, tagged.account))


def _recorded(call: Call, prefixes: Sequence[str], after: str) -> Iterator[TaggedArn]:
    while batch := call.yard.records.tagged(call.caller.scope, arn_prefixes=prefixes, after=after, limit=_BATCH):
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


def _answer(found: Sequence[TaggedArn], last: Place | None) -> Shape:
    resources = [
        {"ResourceARN": tagged.arn, "Tags": [{"Key": key, "Value": value} for key, value in tagged.tags.items()]}
        for tagged in found
    ]
    return {"ResourceTagMappingList": resources, "PaginationToken": "" if last is None else _token(list(last))}


def _words(words: Iterable[str], shape: Shape) -> tuple[list[str], str]:
    """One page of words in order, and the token of the next."""
    if token := shape.get("PaginationToken"):
        last = _parse_token(token, length=1)[0]
        words = (word for word in words if word > last)
    ordered = sorted(words)
    page = ordered[:WORDS_PER_PAGE]
    return page, _token([page[-1]]) if len(ordered) > WORDS_PER_PAGE else ""


def _parse_place(shape: Shape) -> Place:
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
            raise ValueError("the token of something else")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The PaginationToken is invalid.") from error
    return texts
