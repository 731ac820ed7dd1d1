"""GetSearchSuggestions: the properties that a search can test and whose names begin as given."""

from collections.abc import Iterator

from trainyard.server.records.contract import Query, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.search.resource_types import SearchableType, searchable_type

MAX_SUGGESTIONS = 10
# Names that users give are those of the newest resources.
MAX_RESOURCES = 100

_NAMED_BY_USERS = ("HyperParameters", "Parameters", "Metrics", "Tags")


def get_search_suggestions(call: Call, shape: Shape) -> Shape:
    """Suggest up to ten properties of what Search finds, with the names that users gave to those of the newest."""
    searchable = searchable_type(shape["Resource"])
    hint = shape.get("SuggestionQuery", {}).get("PropertyNameQuery", {}).get("PropertyNameHint", "")
    names = {name for name in searchable.properties if _begins(name, hint)}
    if len(names) < MAX_SUGGESTIONS:
        names.update(name for name in _user_names(call, searchable) if _begins(name, hint))
    return {"PropertyNameSuggestions": [{"PropertyName": name} for name in sorted(names)[:MAX_SUGGESTIONS]]}


OPERATIONS: Operations = {"GetSearchSuggestions": get_search_suggestions}


def _begins(name: str, hint: str) -> bool:
    return name.lower().startswith(hint.lower())


def _user_names(call: Call, searchable: SearchableType) -> Iterator[str]:
    newest = Query(
        searchable.kind, account=call.caller.scope, sort_by=SortBy.CREATED, descending=True, limit=MAX_RESOURCES
    )
    for resource in call.yard.records.find(newest).resources:
        shape = searchable.describe(call, resource)
        candidate = searchable.candidate(shape, call.yard.records.tags(resource.key.account, shape[searchable.arn]))
        for group in _NAMED_BY_USERS:
            yield from (f"{group}.{name}" for name in candidate.get(group, ()))
