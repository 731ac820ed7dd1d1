"""Indexed values filter and sort lists, and live as long as their resource."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import (
    Change,
    Draft,
    IndexedValue,
    Query,
    Records,
    Resource,
    SortBy,
    TagFilter,
    ValueFilter,
)
from trainyard.testing.records.samples import ALICE, BOB, KIND, LEASE, NOON, draft, minutes, names

# One page of 7 resources, with a number, a text, both, several texts, or nothing.
SAMPLE: list[Mapping[str, IndexedValue]] = [
    {},
    {"loss": 0.5, "model": ("cnn",)},
    {"loss": -1.5, "model": ("mlp",)},
    {"loss": 2.0},
    {"model": ("cnn", "mlp")},
    {"loss": 0.5, "model": ("",)},
    {"loss": ("diverged",)},
]


class ValueContract:
    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ([ValueFilter("loss")], "12356"),
            ([ValueFilter("loss", low=0.5)], "135"),
            ([ValueFilter("loss", high=0.5)], "125"),
            ([ValueFilter("loss", low=-2, high=0.4)], "2"),
            ([ValueFilter("loss", texts=("diverged",))], "6"),
            ([ValueFilter("model", texts=("cnn",))], "14"),
            ([ValueFilter("model", texts=("cnn", "mlp"))], "124"),
            ([ValueFilter("model", texts=("",))], "5"),
            ([ValueFilter("model", texts=("CNN",))], ""),
            ([ValueFilter("loss", texts=("diverged", "2.0"), low=2, high=2)], "36"),
            ([ValueFilter("loss", is_absent=True)], "04"),
            ([ValueFilter("loss", low=0.0), ValueFilter("model")], "15"),
            ([ValueFilter("loss", low=0.0), ValueFilter("model", is_absent=True)], "3"),
            ([ValueFilter("none")], ""),
        ],
        ids=str,
    )
    def test_a_list_can_be_filtered_by_values(self, records: Records, wanted: list[ValueFilter], expected: str) -> None:
        make_sample(records)
        for sort_by in (SortBy.NAME, SortBy.CREATED):
            query = Query(KIND, account=ALICE, values=tuple(wanted), sort_by=sort_by)
            for asked in (query, replace(query, limit=1)):
                assert all_names(records, asked) == list(expected)
                assert all_names(records, replace(asked, descending=True)) == list(expected)[::-1]
                assert all_revisions(records, asked) == len(expected)

    def test_a_list_can_be_ordered_by_a_number_and_has_only_resources_with_one(self, records: Records) -> None:
        make_sample(records)
        query = Query(KIND, account=ALICE, order_by_value="loss")
        for asked in (query, replace(query, limit=1), replace(query, limit=2)):
            assert all_names(records, asked) == ["2", "1", "5", "3"]
            assert all_names(records, replace(asked, descending=True)) == ["3", "5", "1", "2"]
        few = replace(query, values=(ValueFilter("model", texts=("cnn", "mlp")),), limit=1)
        assert all_names(records, few) == ["2", "1"]

    def test_the_accounts_of_a_list_in_the_order_of_a_number_are_merged(self, records: Records) -> None:
        for number, account in enumerate([ALICE, BOB, ALICE, BOB, ALICE]):
            records.create(valued(f"{number}", {"loss": float(number)}, account=account), now=NOON)
        every = Query(KIND, order_by_value="loss", descending=True, limit=2)
        assert all_names(records, every) == ["4", "3", "2", "1", "0"]
        assert all_names(records, replace(every, account=BOB)) == ["3", "1"]
        by_name = Query(KIND, values=(ValueFilter("loss", low=2),), sort_by=SortBy.NAME)
        assert all_names(records, by_name) == ["2", "3", "4"]

    def test_values_combine_with_other_filters(self, records: Records) -> None:
        for number in range(6):
            tags = {"even": str(number % 2 == 0)}
            one = valued(str(number), {"loss": float(-number)}, status="xy"[number % 2], arn=f"arn:{number}")
            records.create(replace(one, tags=tags), now=minutes(number))
        records.create(valued("other", {"loss": -9.0}, kind="model"), now=NOON)
        query = Query(KIND, account=ALICE, values=(ValueFilter("loss", high=-1),))
        for asked, expected in (
            (replace(query, status="x"), "24"),
            (replace(query, tags=(TagFilter("even", ("False",)),)), "135"),
            (replace(query, created_after=minutes(3)), "45"),
            (replace(query, name="3"), "3"),
        ):
            assert all_names(records, asked) == list(expected)
            assert all_names(records, replace(asked, order_by_value="loss")) == list(expected)[::-1]

    def test_a_change_replaces_the_values_that_it_names(self, records: Records) -> None:
        made = records.create(valued("a", {"x": 1.0, "y": ("old", "older"), "z": ("kept",)}), now=NOON)
        changed = records.apply(made, Change(values={"x": ("text",), "y": 2.0}), now=NOON)
        assert changed is not None
        assert has(records, ValueFilter("x", texts=("text",)), ValueFilter("y", low=2, high=2), ValueFilter("z"))
        assert not has(records, ValueFilter("x", low=0))
        assert not has(records, ValueFilter("y", texts=("old", "older")))
        claimable = records.apply(changed, Change(values={"x": (), "z": 3.5}, due_at=NOON), now=NOON)
        assert claimable is not None
        assert not has(records, ValueFilter("x"))
        assert has(records, ValueFilter("z", low=3.5), ValueFilter("y", low=2))
        claim = records.claim_next(KIND, worker="w", lease=LEASE, now=NOON)
        assert claim is not None
        assert records.apply_claimed(claim, Change(values={"z": ("again",)}), now=NOON)
        assert has(records, ValueFilter("z", texts=("again",)))

    def test_a_change_that_is_refused_changes_no_value(self, records: Records) -> None:
        made = records.create(valued("a", {"x": 1.0}), now=NOON)
        assert records.apply(made, Change(status="y"), now=NOON)
        assert records.apply(made, Change(values={"x": 2.0}), now=NOON) is None
        assert has(records, ValueFilter("x", high=1))

    def test_the_values_of_a_deleted_resource_are_gone(self, records: Records) -> None:
        made = records.create(valued("a", {"x": 1.0}), now=NOON)
        assert records.delete(made, now=NOON)
        records.create(valued("a", {}), now=NOON)
        assert not has(records, ValueFilter("x"))

    def test_a_backup_has_the_values(self, records: Records, other_records: Records) -> None:
        records.create(valued("a", {"x": 1.5, "y": ("one", "two")}), now=NOON)
        other_records.restore(records.export())
        assert has(other_records, ValueFilter("x", low=1.5, high=1.5), ValueFilter("y", texts=("two",)))

    def test_pages_of_common_values_are_complete(self, records: Records) -> None:
        """More resources than an index look-up takes have the value, so the list is read in order."""
        chance = random.Random(3)
        numbers = [chance.randrange(1000) for _ in range(1300)]
        for place, number in enumerate(numbers):
            values: dict[str, IndexedValue] = {"loss": float(number), "odd": float(number % 2)}
            records.create(valued(f"{place:04}", values), now=minutes(place))
        wanted = (ValueFilter("odd", low=0, high=1), ValueFilter("loss", low=100))
        query = Query(KIND, account=ALICE, values=wanted, limit=400)
        fitting = [place for place, number in enumerate(numbers) if number >= 100]
        assert all_names(records, query) == [f"{place:04}" for place in fitting]
        by_loss = sorted(fitting, key=lambda place: numbers[place])
        found = all_names(records, replace(query, order_by_value="loss"))
        assert [numbers[int(name)] for name in found] == [numbers[place] for place in by_loss]
        assert sorted(found) == [f"{place:04}" for place in fitting]

    def test_the_token_of_another_list_is_invalid(self, records: Records) -> None:
        make_sample(records)
        query = Query(KIND, order_by_value="loss", limit=1)
        token = records.find(query).next_after
        assert token is not None
        for asked in (replace(query, descending=True, after=token), replace(query, after="x")):
            with pytest.raises(InvalidRequest, match="token does not belong"):
                records.find(asked)


def make_sample(records: Records) -> None:
    for number, values in enumerate(SAMPLE):
        records.create(valued(str(number), values), now=minutes(number))
    records.create(valued("bob", {"loss": 0.5, "model": ("cnn",)}, account=BOB), now=NOON)
    records.create(valued("model", {"loss": 0.5, "model": ("cnn",)}, kind="model"), now=NOON)


def valued(
    name: str,
    values: Mapping[str, IndexedValue],
    *,
    account: str = ALICE,
    kind: str = KIND,
    status: str = "",
    arn: str = "",
) -> Draft:
    return replace(draft(name, account=account, kind=kind, status=status, arn=arn), values=values)


def has(records: Records, *wanted: ValueFilter) -> bool:
    return all_names(records, Query(KIND, values=wanted)) == ["a"]


def all_names(records: Records, query: Query) -> list[str]:
    found: list[Resource] = []
    while True:
        page = records.find(query)
        found += page.resources
        if page.next_after is None:
            return names(found)
        query = replace(query, after=page.next_after)


def all_revisions(records: Records, query: Query) -> int:
    count = 0
    while True:
        page = records.find_revisions(query)
        count += len(page.revisions)
        if page.next_after is None:
            return count
        query = replace(query, after=page.next_after)
