from botocore.model import ServiceModel

from trainyard.wire.http import Headers, HttpRequest
from trainyard.wire.rest_table import RestTable


def _operation(name: str, method: str, uri: str, **more: object) -> dict[str, object]:
    return {"name": name, "http": {"method": method, "requestUri": uri}, **more}


def _table(*operations: dict[str, object]) -> RestTable:
    named = {operation["name"]: operation for operation in operations}
    return RestTable(ServiceModel({"metadata": {}, "operations": named, "shapes": {}}, "rooms"))


def _match(table: RestTable, method: str, uri: str) -> str | None:
    path, _, query = uri.partition("?")
    found = table.match(HttpRequest(method, path, query, Headers()), path)
    return found.operation.name if found else None


def test_a_literal_path_is_preferred_to_a_label() -> None:
    table = _table(_operation("Any", "GET", "/rooms/{Name}"), _operation("Best", "GET", "/rooms/best"))
    assert (_match(table, "GET", "/rooms/best"), _match(table, "GET", "/rooms/other")) == ("Best", "Any")


def test_a_label_is_one_segment_and_a_greedy_one_is_the_rest() -> None:
    table = _table(_operation("One", "GET", "/one/{Name}/end"), _operation("Rest", "GET", "/rest/{Name+}"))
    assert _match(table, "GET", "/one/a/end") == "One"
    assert _match(table, "GET", "/one/a/b/end") is None
    assert _match(table, "GET", "/rest/a/b//c") == "Rest"
    assert _match(table, "GET", "/rest/") is None


def test_the_current_operation_is_preferred_to_its_retired_twin() -> None:
    retired = _operation("Old", "GET", "/{Name}?door", deprecated=True)
    for operations in (
        [retired, _operation("New", "GET", "/{Name}?door")],
        [_operation("New", "GET", "/{Name}?door"), retired],
    ):
        assert _match(_table(*operations), "GET", "/a?door") == "New"


def test_a_sub_resource_of_one_method_is_not_ignored_by_another() -> None:
    table = _table(_operation("Get", "GET", "/{Name}"), _operation("PutDoor", "PUT", "/{Name}?door"))
    assert (_match(table, "GET", "/a"), _match(table, "GET", "/a?window"), _match(table, "GET", "/a?door")) == (
        "Get",
        "Get",
        None,
    )


def test_a_literal_that_only_identifies_the_operation_is_no_sub_resource() -> None:
    table = _table(_operation("Get", "GET", "/{Name}?x-id=Get"))
    assert (_match(table, "GET", "/a"), _match(table, "GET", "/a?x-id=Other")) == ("Get", "Get")
