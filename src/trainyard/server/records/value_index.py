"""The indexed values of resources, written in the transaction that writes their resource."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import BindParameter, Connection, Double, bindparam, delete, insert, text

from trainyard.server.records.contract import IndexedValue, Resource
from trainyard.server.records.schema import Word
from trainyard.server.records.schema import resource_values as table

_PUT = text(
    "INSERT INTO resource_values (resource, name, text, number, account, kind) "
    "VALUES (:resource, :name, :text, :number, :account, :kind) "
    "ON CONFLICT (resource, name, text) DO UPDATE SET number = excluded.number"
).bindparams(
    *(bindparam(column, type_=Word) for column in ("resource", "name", "text", "account", "kind")),
    bindparam("number", type_=Double),
)
_OF_NAME: tuple[BindParameter[Any], BindParameter[Any]] = (bindparam("of_resource"), bindparam("of_name"))
_REMOVE = delete(table).where(table.c.resource == _OF_NAME[0], table.c.name == _OF_NAME[1])
# A number keeps its row, so that an update is one change of the index.
_REMOVE_TEXTS = _REMOVE.where(table.c.text != "")


def add(connection: Connection, resource: Resource, values: Mapping[str, IndexedValue]) -> None:
    """Store the values of a new resource."""
    rows = list(_rows(resource, values))
    if rows:
        connection.execute(insert(table), rows)


def put(connection: Connection, resource: Resource, values: Mapping[str, IndexedValue]) -> None:
    """Replace the values with these names."""
    for statement, is_number in ((_REMOVE, False), (_REMOVE_TEXTS, True)):
        names = [name for name, value in values.items() if isinstance(value, tuple) is not is_number]
        if names:
            connection.execute(statement, [{"of_resource": resource.id, "of_name": name} for name in names])
    rows = list(_rows(resource, values))
    if rows:
        connection.execute(_PUT, rows)


def _rows(resource: Resource, values: Mapping[str, IndexedValue]) -> Iterator[dict[str, Any]]:
    owner = {"resource": resource.id, "account": resource.key.account, "kind": resource.key.kind}
    for name, value in values.items():
        if isinstance(value, tuple):
            yield from ({**owner, "name": name, "text": each, "number": None} for each in dict.fromkeys(value))
        else:
            assert math.isfinite(value), "SQLite would store NaN as no value"
            yield {**owner, "name": name, "text": "", "number": float(value)}
