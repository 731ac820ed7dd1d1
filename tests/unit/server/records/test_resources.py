"""Ids are unique, and sort by time."""

import uuid
from datetime import timedelta

from trainyard.server.records.resources import new_id
from trainyard.testing.records.samples import NOON


def test_an_id_is_a_version_7_uuid_with_its_millisecond() -> None:
    made = uuid.UUID(new_id(NOON))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == int(NOON.timestamp() * 1000)


def test_ids_of_one_moment_differ() -> None:
    assert len({new_id(NOON) for _ in range(10_000)}) == 10_000


def test_ids_sort_by_their_microsecond() -> None:
    ids = [new_id(NOON + timedelta(microseconds=number)) for number in range(2_000)]
    assert ids == sorted(ids)
