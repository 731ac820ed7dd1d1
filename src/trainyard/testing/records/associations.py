"""Associations are directed edges between ARNs, found from either end."""

from dataclasses import replace
from itertools import product

import pytest

from trainyard.foundation.errors import AlreadyExists, InvalidRequest
from trainyard.server.records.contract import Association, AssociationOrder, AssociationQuery, Records
from trainyard.testing.records.samples import ALICE, BOB, KIND, NOON, draft, in_threads, minutes, names


def edge(source: str, destination: str, *, minute: int = 0, kind: str = "ContributedTo") -> Association:
    return Association(ALICE, source, destination, kind, minutes(minute), f"type of {source}", f"type of {destination}")


def ends(found: list[Association]) -> list[str]:
    return [f"{each.source}{each.destination}" for each in found]


def pages(records: Records, query: AssociationQuery) -> list[Association]:
    found: list[Association] = []
    while True:
        page = records.find_associations(query)
        found += page.associations
        if page.next_after is None:
            return found
        query = replace(query, after=page.next_after)


class AssociationContract:
    def test_an_association_is_stored_once_in_each_direction(self, records: Records) -> None:
        records.associate(edge("a", "b"))
        records.associate(edge("b", "a"))
        records.associate(replace(edge("a", "b"), account=BOB))
        with pytest.raises(AlreadyExists):
            records.associate(edge("a", "b", kind="Produced"))
        assert ends(pages(records, AssociationQuery(ALICE))) == ["ab", "ba"]
        assert records.dissociate(ALICE, "a", "b")
        assert not records.dissociate(ALICE, "a", "b")
        assert ends(pages(records, AssociationQuery(ALICE))) == ["ba"]
        assert ends(pages(records, AssociationQuery(BOB))) == ["ab"]

    def test_of_concurrent_equal_associations_one_is_stored(self, records: Records) -> None:
        def add(_: int) -> bool:
            try:
                records.associate(edge("a", "b"))
            except AlreadyExists:
                return False
            return True

        assert sum(in_threads(4, add)) == 1

    def test_associations_are_filtered_ordered_and_paged(self, records: Records) -> None:
        for number, (source, destination) in enumerate([*product("abc", "d"), *product("a", "ef")]):
            kind = "Produced" if number > 2 else "DerivedFrom"
            records.associate(edge(source, destination, minute=number, kind=kind))
        every = AssociationQuery(ALICE, limit=2)
        assert ends(pages(records, every)) == ["ad", "bd", "cd", "ae", "af"]
        assert ends(pages(records, replace(every, descending=True, destination="d"))) == ["cd", "bd", "ad"]
        assert ends(pages(records, replace(every, source="a", kind="Produced"))) == ["ae", "af"]
        assert ends(pages(records, replace(every, source_type="type of b"))) == ["bd"]
        assert ends(pages(records, replace(every, destination_type="type of d", created_after=NOON))) == ["bd", "cd"]
        assert ends(pages(records, replace(every, created_before=minutes(1)))) == ["ad"]
        for order in AssociationOrder:
            found = pages(records, replace(every, sort_by=order, descending=True))
            assert found == sorted(found, key=lambda each: (getattr(each, order), each.source, each.destination))[::-1]

    def test_the_token_of_another_list_is_invalid(self, records: Records) -> None:
        for name in "abc":
            records.associate(edge(name, "z"))
        token = records.find_associations(AssociationQuery(ALICE, limit=1)).next_after or ""
        for query in (AssociationQuery(ALICE, source="a", after=token), AssociationQuery(ALICE, after="x" + token)):
            with pytest.raises(InvalidRequest):
                records.find_associations(query)

    def test_the_edges_of_several_arns_are_read_at_once(self, records: Records) -> None:
        for source, destination in (("a", "d"), ("b", "d"), ("b", "e"), ("x", "y")):
            records.associate(edge(source, destination))
        assert ends(list(records.edges_from(ALICE, ["b", "a"], limit=10))) == ["ad", "bd", "be"]
        assert ends(list(records.edges_into(ALICE, ["e", "d"], limit=10))) == ["ad", "bd", "be"]
        assert ends(list(records.edges_from(ALICE, ["a", "b"], limit=2))) == ["ad", "bd"]
        assert records.edges_from(BOB, ["a"], limit=10) == []
        assert records.edges_from(ALICE, [], limit=10) == []

    def test_resources_are_loaded_by_their_names(self, records: Records) -> None:
        for name in ("a", "b", "c"):
            records.create(draft(name), now=NOON)
        records.create(draft("a", account=BOB), now=NOON)
        assert sorted(names(records.load_named(ALICE, KIND, ["a", "c", "gone"]))) == ["a", "c"]
        assert records.load_named(ALICE, "other", ["a"]) == []
