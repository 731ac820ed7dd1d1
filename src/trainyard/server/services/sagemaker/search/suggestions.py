"""GetSearchSuggestions: the properties that a search can test and whose names begin as given."""

from collections.abc import Iterator

from trainyard.server.records.contract import Query, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.search.resource_types import SearchableType, searchable_type

MAX_SUGGESTIONS = 10
# Names that users give are those of the newest jobs.
MAX_JOBS = 100

_NAMED_BY_USERS = ("HyperParameters", "Metrics", "Tags")


def get_search_suggestions(call: Call, shape: Shape) -> Shape:
    """Suggest up to ten properties of what Search finds, with the hyperparameters, metrics and tags of newest jobs."""
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
    newest = Query(searchable.kind, account=call.caller.scope, sort_by=SortBy.CREATED, descending=True, limit=MAX_JOBS)
    for resource in call.yard.records.find(newest).resources:
        candidate = searchable.candidate(call, resource)
        for group in _NAMED_BY_USERS:
            yield from (f"{group}.{name}" for name in candidate.get(group, ()))
