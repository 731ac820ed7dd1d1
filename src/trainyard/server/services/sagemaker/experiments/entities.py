"""What experiments, trials and trial components share: names, look-ups, creates, changes and pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.server.experiments.storage import COMPONENT, EXPERIMENT, TRIAL, entity_arn
from trainyard.server.records.contract import Change, Draft, Query, Resource, SortBy, ValueFilter
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault

# The default of AWS.
PAGE = 10

_WORDS: Mapping[str, str] = {EXPERIMENT: "Experiment", TRIAL: "Trial", COMPONENT: "TrialComponent"}
_ORDERS = {"Name": SortBy.NAME, "CreationTime": SortBy.CREATED}


def load_entity(call: Call, kind: str, name: str) -> Resource:
    """Load the experiment, trial or component that the caller means; a Fault in the words of AWS if there is none."""
    try:
        return load_visible(call, kind, name.lower())
    except NotFound as error:
        raise not_found(kind, name, region=call.region, account=call.account) from error


def not_found(kind: str, name: str, *, region: str, account: str) -> Fault:
    return Fault("ResourceNotFound", f"{_WORDS[kind]} '{entity_arn(region, account, kind, name)}' does not exist.")


def create_entity(call: Call, draft: Draft, *, name: str) -> Resource:
    """Store a new experiment, trial or component; a Fault in words that the SDKs look for if its name is in use."""
    try:
        return call.yard.records.create(draft, now=call.now)
    except AlreadyExists as error:
        word = _WORDS[draft.key.kind]
        raise Fault(
            "ValidationException",
            f"{word} names must be unique within an AWS account and region. {word} with name ({name}) already exists.",
        ) from error


def change_entity(call: Call, kind: str, name: str, change: Callable[[Resource], Change | None]) -> Resource:
    """Apply a change to what the resource is at that moment, and return it as it was before. None changes nothing."""
    while True:
        resource = load_entity(call, kind, name)
        wanted = change(resource)
        if wanted is None or call.yard.records.apply(resource, wanted, now=call.now) is not None:
            return resource


def touch(call: Call, resource: Resource) -> bool:
    """Add one to the revision of a resource, so that whoever deletes it looks again; False if it was deleted."""
    while True:
        try:
            current = call.yard.records.load_by_id(resource.id)
        except NotFound:
            return False
        if call.yard.records.apply(current, Change(is_quiet=True), now=call.now) is not None:
            return True


@dataclass(frozen=True, slots=True)
class ListedPage:
    """The resources of one page, and the token of the next."""

    resources: Sequence[Resource]
    token: str | None

    def answer(self, member: str, summary: Callable[[Resource], Shape]) -> Shape:
        shape: Shape = {member: [summary(resource) for resource in self.resources]}
        return shape | ({"NextToken": self.token} if self.token else {})


def list_page(call: Call, kind: str, shape: Shape, *, values: tuple[ValueFilter, ...] = ()) -> ListedPage:
    """Return the page that a List request asks for. A page may be short, or even empty, although it has a token."""
    query = Query(
        kind,
        account=call.caller.scope,
        created_after=shape.get("CreatedAfter"),
        created_before=shape.get("CreatedBefore"),
        values=values,
        sort_by=_ORDERS[shape.get("SortBy", "CreationTime")],
        descending=shape.get("SortOrder", "Descending") == "Descending",
        limit=shape.get("MaxResults", PAGE),
        after=shape.get("NextToken", ""),
    )
    while True:
        page = call.yard.records.find(query)
        if page.resources or page.next_after is None:
            return ListedPage(page.resources, page.next_after)
        query = replace(query, after=page.next_after)


def tags_of(shape: Shape) -> Mapping[str, str]:
    return {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}


def user_shape(name: str) -> Shape:
    return {"UserProfileName": name} if name else {}


def times_of(resource: Resource) -> Shape:
    return {"CreationTime": resource.created_at, "LastModifiedTime": resource.modified_at}
