"""Associations: the edges of the lineage, found from either end by an index."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, Select, delete, insert, literal, select, tuple_
from sqlalchemy.exc import IntegrityError

from trainyard.foundation.errors import AlreadyExists
from trainyard.server.records.contract import Association, AssociationPage, AssociationQuery
from trainyard.server.records.page_tokens import decode_columns, encode_position
from trainyard.server.records.schema import associations as table

_c = table.c
_COLUMNS = (_c.account, _c.source, _c.destination, _c.kind, _c.created_at, _c.source_type, _c.destination_type)
_ENDS = ("source", "destination")


def add(connection: Connection, association: Association) -> None:
    try:
        connection.execute(
            insert(table),
            {
                "account": association.account,
                "source": association.source,
                "destination": association.destination,
                "kind": association.kind,
                "created_at": association.created_at,
                "source_type": association.source_type,
                "destination_type": association.destination_type,
            },
        )
    except IntegrityError as error:
        raise AlreadyExists("association", f"{association.source} to {association.destination}") from error


def remove(connection: Connection, account: str, *, source: str, destination: str) -> bool:
    of_ends = (_c.account == account, _c.source == source, _c.destination == destination)
    return connection.execute(delete(table).where(*of_ends)).rowcount > 0


def find(connection: Connection, query: AssociationQuery) -> AssociationPage:
    """Return one page. It starts where the previous one ended in the order, so earlier pages cost nothing."""
    order = [_c[name] for name in _order(query)]
    statement: Select[Any] = select(*_COLUMNS).where(*_conditions(query), *_conditions_after(query, order))
    directed = [key.desc() if query.descending else key for key in order]
    rows = connection.execute(statement.order_by(*directed).limit(query.limit + 1)).all()
    token = _token_after(query, rows[query.limit - 1]) if len(rows) > query.limit else None
    return AssociationPage([Association(*row) for row in rows[: query.limit]], token)


def find_edges(
    connection: Connection, account: str, ends: Sequence[str], *, is_backward: bool, limit: int
) -> Sequence[Association]:
    """Return the edges that begin at the given ends or, backward, that end there. The caller limits their number."""
    near, far = (_c.destination, _c.source) if is_backward else (_c.source, _c.destination)
    statement = select(*_COLUMNS).where(_c.account == account, near.in_(ends)).order_by(near, far).limit(limit)
    return [Association(*row) for row in connection.execute(statement)]


def _order(query: AssociationQuery) -> tuple[str, ...]:
    return tuple(dict.fromkeys((query.sort_by.value, *_ENDS)))


def _conditions(query: AssociationQuery) -> Iterator[ColumnElement[bool]]:
    yield _c.account == query.account
    for name in ("source", "destination", "kind", "source_type", "destination_type"):
        if wanted := getattr(query, name):
            yield _c[name] == wanted
    if query.created_after is not None:
        yield _c.created_at > query.created_after
    if query.created_before is not None:
        yield _c.created_at < query.created_before


def _conditions_after(query: AssociationQuery, order: Sequence[Column[Any]]) -> list[ColumnElement[bool]]:
    if not query.after:
        return []
    last = tuple_(*(literal(value, key.type) for key, value in zip(order, decode_columns(query, order), strict=True)))
    return [tuple_(*order) < last if query.descending else tuple_(*order) > last]


def _token_after(query: AssociationQuery, row: Row[Any]) -> str:
    return encode_position(query, [getattr(row, name) for name in _order(query)])
