"""Lists are filtered, ordered, and cut into stable pages."""

from dataclasses import replace
from datetime import timedelta

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Change, Page, Query, Records, Resource, SortBy, TagFilter
from trainyard.testing.records.samples import ALICE, BOB, KIND, NOON, draft, key, minutes, names

ALL_ORDERS = [(sort_by, descending) for sort_by in SortBy for descending in (False, True)]


class ResourceListContract:
    def test_a_list_has_complete_resources(self, records: Records) -> None:
        made = records.create(draft("a", status="x", body={"y": 1}), now=NOON)
        assert records.find(Query(KIND)) == Page([made], None)

    def test_revisions_are_listed_in_the_same_pages_as_resources(self, records: Records) -> None:
        for number in range(5):
            made = records.create(
                draft(f"job-{number}", arn=f"arn:{number}", tags={"k": "v"} if number % 2 else {}), now=minutes(number)
            )
            if number == 3:
                records.apply(made, Change(status="x"), now=minutes(9))
        for sort_by, descending in ALL_ORDERS:
            for tags in ((), (TagFilter("k"),)):
                query = Query(KIND, tags=tags, sort_by=sort_by, descending=descending, limit=2)
                full, brief = records.find(query), records.find_revisions(query)
                assert [(each.id, each.revision) for each in full.resources] == [
                    (each.id, each.revision) for each in brief.revisions
                ]
                assert brief.next_after == full.next_after

    def test_resources_are_loaded_by_their_ids(self, records: Records) -> None:
        made = [records.create(draft(str(number)), now=NOON) for number in range(3)]
        gone = records.create(draft("gone"), now=NOON)
        assert records.delete(gone, now=NOON)
        found = records.load_many([made[0].id, gone.id, made[2].id])
        assert sorted(found, key=lambda each: each.key.name) == [made[0], made[2]]
        assert records.load_many([]) == []

    def test_words_of_names_are_found_in_any_order_and_case(self, records: Records) -> None:
        for name in ("Mnist-Large", "mnist-small", "large"):
            records.create(draft(name), now=NOON)
        assert list_names(records, Query(KIND, name_words=("large", "mnist"))) == ["Mnist-Large"]
        assert sorted(list_names(records, Query(KIND, name_words=("mnist",)))) == ["Mnist-Large", "mnist-small"]
        assert list_names(records, Query(KIND, name_words=("nist_",))) == []

    def test_a_list_of_nothing_is_empty(self, records: Records) -> None:
        assert records.find(Query(KIND)) == Page([], None)

    def test_a_list_has_resources_of_one_kind(self, records: Records) -> None:
        records.create(draft("a"), now=NOON)
        records.create(draft("b", kind="model"), now=NOON)
        assert list_names(records, Query(KIND)) == ["a"]

    def test_a_list_covers_one_account_or_all(self, records: Records) -> None:
        records.create(draft("a"), now=NOON)
        records.create(draft("b", account=BOB), now=minutes(1))
        assert list_names(records, Query(KIND, account=ALICE)) == ["a"]
        assert list_names(records, Query(KIND, account=BOB)) == ["b"]
        assert list_names(records, Query(KIND)) == ["a", "b"]

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ([TagFilter("team", ("a",))], ["1", "2"]),
            ([TagFilter("team", ("a", "b"))], ["1", "2", "3"]),
            ([TagFilter("team")], ["1", "2", "3"]),
            ([TagFilter("team", ("a",)), TagFilter("big", ("yes",))], ["2"]),
            ([TagFilter("team", ("A",))], []),
            ([TagFilter("team", ("",))], []),
            ([TagFilter("none")], []),
        ],
        ids=str,
    )
    def test_a_list_can_be_filtered_by_tags(
        self, records: Records, wanted: list[TagFilter], expected: list[str]
    ) -> None:
        given: list[dict[str, str]] = [{}, {"team": "a"}, {"team": "a", "big": "yes"}, {"team": "b", "big": "yes"}]
        for number, tags in enumerate(given):
            records.create(draft(str(number), arn=f"arn:{number}", tags=tags), now=minutes(number))
        records.create(draft("other", kind="model", arn="arn:model", tags={"team": "a", "big": "yes"}), now=NOON)
        records.create(draft("1", account=BOB, arn="arn:bob", tags={"team": "a", "big": "yes"}), now=NOON)
        for sort_by, descending in ALL_ORDERS:
            query = Query(KIND, account=ALICE, tags=tuple(wanted), sort_by=sort_by, descending=descending)
            assert list_names(records, query) == (expected[::-1] if descending else expected)
            assert names(read_all(records, replace(query, limit=1))) == (expected[::-1] if descending else expected)

    def test_tags_combine_with_other_filters_and_with_all_accounts(self, records: Records) -> None:
        for number, account in enumerate([ALICE, BOB, ALICE]):
            tagged = draft(f"job-{number}", account=account, status="x", arn=f"arn:{number}", tags={"k": "v"})
            records.create(tagged, now=minutes(number))
        every = Query(KIND, tags=(TagFilter("k", ("v",)),))
        assert list_names(records, every) == ["job-0", "job-1", "job-2"]
        assert list_names(records, replace(every, account=ALICE, created_after=NOON)) == ["job-2"]
        assert list_names(records, replace(every, name="job-1")) == ["job-1"]
        assert list_names(records, replace(every, status="y")) == []

    def test_the_tags_of_another_account_on_the_same_arn_do_not_count(self, records: Records) -> None:
        records.create(draft("a", arn="arn:a"), now=NOON)
        records.set_tags(BOB, "arn:a", {"k": "v"})
        assert list_names(records, Query(KIND, tags=(TagFilter("k"),))) == []
        assert list_names(records, Query(KIND, account=ALICE, tags=(TagFilter("k"),))) == []

    def test_a_list_by_tags_follows_their_changes(self, records: Records) -> None:
        records.create(draft("a", arn="arn:a", tags={"k": "v"}), now=NOON)
        query = Query(KIND, account=ALICE, tags=(TagFilter("k", ("w",)),))
        assert list_names(records, query) == []
        records.set_tags(ALICE, "arn:a", {"k": "w"})
        assert list_names(records, query) == ["a"]
        records.remove_tags(ALICE, "arn:a", ["k"])
        assert list_names(records, query) == []

    def test_a_count_covers_everything_that_a_list_would_show(self, records: Records) -> None:
        for number in range(5):
            status = "x" if number % 2 else "y"
            records.create(draft(str(number), status=status, account=ALICE if number else BOB), now=minutes(number))
        assert records.count(Query(KIND)) == 5
        assert records.count(Query(KIND, account=ALICE, limit=1)) == 4
        assert records.count(Query(KIND, status="x")) == 2
        assert records.count(Query(KIND, status="y", created_before=minutes(4))) == 2
        assert records.count(Query("model")) == 0

    def test_a_list_of_children_has_those_of_one_parent(self, records: Records) -> None:
        parents = [records.create(draft(name, kind="group"), now=NOON) for name in ("x", "y")]
        for minute, parent in enumerate(parents):
            records.create(draft(f"of-{parent.key.name}", parent=parent), now=minutes(minute))
        assert list_names(records, Query(KIND, parent=parents[0].id)) == ["of-x"]
        assert list_names(records, Query(KIND, account=ALICE, parent=parents[1].id)) == ["of-y"]

    def test_children_of_a_parent_in_another_account_are_hidden(self, records: Records) -> None:
        parent = records.create(draft("x", kind="group"), now=NOON)
        records.create(draft("a", parent=parent), now=NOON)
        assert list_names(records, Query(KIND, account=BOB, parent=parent.id)) == []

    def test_a_name_is_matched_completely_and_in_every_requested_account(self, records: Records) -> None:
        for minute, (name, account) in enumerate([("a", ALICE), ("ab", ALICE), ("A", ALICE), ("a", BOB)]):
            records.create(draft(name, account=account), now=minutes(minute))
        assert list_names(records, Query(KIND, account=ALICE, name="a")) == ["a"]
        assert list_names(records, Query(KIND, name="a")) == ["a", "a"]

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("job", ["job", "job-1", "job%2", "job_3", "job\U0010ffff", "job\U0010ffffx", "job\ud7ff"]),
            ("job%", ["job%2"]),
            ("job_", ["job_3"]),
            ("job\U0010ffff", ["job\U0010ffff", "job\U0010ffffx"]),
            ("job\ud7ff", ["job\ud7ff"]),
            ("JOB", ["JOB"]),
            ("none", []),
        ],
        ids=ascii,
    )
    def test_a_prefix_is_literal_and_case_sensitive(self, records: Records, prefix: str, expected: list[str]) -> None:
        everything = ["jo", "job", "job-1", "job%2", "job_3", "job\U0010ffff", "job\U0010ffffx", "job\ud7ff", "joc"]
        for minute, name in enumerate([*everything, "JOB"]):
            records.create(draft(name), now=minutes(minute))
        for sort_by, descending in ALL_ORDERS:
            query = Query(KIND, account=ALICE, name_prefix=prefix, sort_by=sort_by, descending=descending)
            assert sorted(list_names(records, query)) == sorted(expected)
            assert sorted(names(read_all(records, replace(query, limit=1)))) == sorted(expected)

    @pytest.mark.parametrize(
        ("part", "expected"),
        [("b", ["abc"]), ("B", ["aBc"]), ("%", ["a%c"]), ("_", ["a_c"]), ("", ["abc", "aBc", "a%c", "a_c"]), ("x", [])],
    )
    def test_a_part_of_a_name_is_literal_and_case_sensitive(
        self, records: Records, part: str, expected: list[str]
    ) -> None:
        for minute, name in enumerate(["abc", "aBc", "a%c", "a_c"]):
            records.create(draft(name), now=minutes(minute))
        assert list_names(records, Query(KIND, name_contains=part)) == expected

    def test_a_list_by_part_of_a_name_is_paged(self, records: Records) -> None:
        for number in range(20):
            records.create(draft(f"{'even' if number % 2 == 0 else 'odd'}-{number:02}"), now=minutes(number))
        found = read_all(records, Query(KIND, name_contains="even", limit=3))
        assert names(found) == [f"even-{number:02}" for number in range(0, 20, 2)]

    def test_a_list_can_be_filtered_by_status(self, records: Records) -> None:
        for minute, status in enumerate(["InProgress", "Failed", "InProgress"]):
            records.create(draft(f"{status}-{minute}", status=status), now=minutes(minute))
        assert list_names(records, Query(KIND, status="InProgress")) == ["InProgress-0", "InProgress-2"]

    def test_times_of_creation_are_exclusive(self, records: Records) -> None:
        for minute in range(5):
            records.create(draft(str(minute)), now=minutes(minute))
        assert list_names(records, Query(KIND, created_after=minutes(1), created_before=minutes(4))) == ["2", "3"]

    def test_times_of_modification_are_exclusive(self, records: Records) -> None:
        for minute in range(5):
            made = records.create(draft(str(minute)), now=NOON)
            records.apply(made, Change(status="x"), now=minutes(minute))
        query = Query(KIND, modified_after=minutes(1), modified_before=minutes(4), sort_by=SortBy.NAME)
        assert list_names(records, query) == ["2", "3"]

    def test_filters_can_be_combined(self, records: Records) -> None:
        for number in range(30):
            status = ("InProgress", "Failed", "Stopped")[number % 3]
            records.create(draft(f"{'ab'[number % 2]}-{number:02}", status=status), now=minutes(number))
        query = Query(KIND, account=ALICE, name_prefix="a-", status="Failed", created_after=minutes(4))
        for sort_by, descending in ALL_ORDERS:
            found = read_all(records, replace(query, sort_by=sort_by, descending=descending, limit=2))
            assert names(found) == (
                ["a-28", "a-22", "a-16", "a-10"] if descending else ["a-10", "a-16", "a-22", "a-28"]
            )

    @pytest.mark.parametrize(
        ("sort_by", "expected"),
        [
            (SortBy.NAME, ["a", "b", "c"]),
            (SortBy.CREATED, ["c", "a", "b"]),
            (SortBy.MODIFIED, ["b", "c", "a"]),
            (SortBy.STATUS, ["a", "c", "b"]),
        ],
    )
    def test_each_order_can_be_reversed(self, records: Records, sort_by: SortBy, expected: list[str]) -> None:
        rows = {"c": (0, 6, "2"), "a": (1, 7, "1"), "b": (2, 5, "3")}
        for name, (created, modified, status) in rows.items():
            made = records.create(draft(name), now=minutes(created))
            records.apply(made, Change(status=status), now=minutes(modified))
        assert list_names(records, Query(KIND, sort_by=sort_by)) == expected
        assert list_names(records, Query(KIND, sort_by=sort_by, descending=True)) == expected[::-1]

    def test_names_are_ordered_by_their_bytes(self, records: Records) -> None:
        ordered = ["A", "B", "a", "a b", "a-b", "ab", "é", "\uffff", "🚂"]
        for name in reversed(ordered):
            records.create(draft(name), now=NOON)
        assert list_names(records, Query(KIND, sort_by=SortBy.NAME)) == ordered
        assert list_names(records, Query(KIND, account=ALICE, sort_by=SortBy.NAME)) == ordered

    @pytest.mark.parametrize(("sort_by", "descending"), ALL_ORDERS)
    @pytest.mark.parametrize("limit", [1, 3, 12, 13])
    def test_pages_put_together_are_the_whole_list(
        self, records: Records, sort_by: SortBy, descending: bool, limit: int
    ) -> None:
        fill_with_ties(records)
        query = Query(KIND, sort_by=sort_by, descending=descending)
        whole = records.find(query)
        assert whole.next_after is None
        assert len(whole.resources) == 12
        assert read_all(records, replace(query, limit=limit)) == list(whole.resources)

    def test_the_last_full_page_says_that_it_is_the_last(self, records: Records) -> None:
        for minute in range(4):
            records.create(draft(str(minute)), now=minutes(minute))
        first = records.find(Query(KIND, limit=2))
        assert first.next_after is not None
        assert records.find(Query(KIND, limit=2, after=first.next_after)).next_after is None

    @pytest.mark.parametrize(("sort_by", "descending"), ALL_ORDERS)
    def test_pages_are_stable_while_resources_are_added(
        self, records: Records, sort_by: SortBy, descending: bool
    ) -> None:
        before = [resource.id for resource in fill_with_ties(records)]
        query = Query(KIND, sort_by=sort_by, descending=descending, limit=2)
        seen: list[Resource] = []
        for number in range(100):
            page = records.find(query)
            seen += page.resources
            if page.next_after is None:
                break
            query = replace(query, after=page.next_after)
            if number < 10:
                for status in ("", "m", "z"):
                    moment = NOON + timedelta(seconds=number - 5)
                    records.create(draft(f"new-{status}-{number}", status=status), now=moment)
        ids = [resource.id for resource in seen]
        assert len(set(ids)) == len(ids)
        assert set(before) <= set(ids)

    def test_the_next_page_continues_after_the_last_resource_was_deleted(self, records: Records) -> None:
        for minute in range(4):
            records.create(draft(str(minute)), now=minutes(minute))
        page = records.find(Query(KIND, limit=2))
        records.delete(page.resources[-1], now=NOON)
        assert page.next_after is not None
        assert list_names(records, Query(KIND, after=page.next_after)) == ["2", "3"]

    def test_the_page_size_can_change_between_pages(self, records: Records) -> None:
        for minute in range(6):
            records.create(draft(str(minute)), now=minutes(minute))
        page = records.find(Query(KIND, limit=1))
        assert page.next_after is not None
        assert list_names(records, Query(KIND, limit=3, after=page.next_after)) == ["1", "2", "3"]

    def test_a_token_of_another_list_is_refused(self, records: Records) -> None:
        for minute in range(3):
            records.create(draft(str(minute)), now=minutes(minute))
        token = records.find(Query(KIND, account=ALICE, limit=1)).next_after
        assert token is not None
        mine = Query(KIND, account=ALICE, after=token)
        for other in (
            replace(mine, sort_by=SortBy.NAME),
            replace(mine, descending=True),
            replace(mine, account=BOB),
            replace(mine, account=None),
            replace(mine, kind="model"),
            replace(mine, status="x"),
            replace(mine, created_after=NOON),
        ):
            with pytest.raises(InvalidRequest, match="page token"):
                records.find(other)
        assert list_names(records, mine) == ["1", "2"]

    @pytest.mark.parametrize("token", ["x", "====", "bnVsbA==", "W10=", "WzFd", "e30=", "é", "W1tbW1s=", "A" * 5000])
    def test_a_malformed_page_token_is_refused(self, records: Records, token: str) -> None:
        with pytest.raises(InvalidRequest, match="page token"):
            records.find(Query(KIND, after=token))

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_page_of_less_than_one_is_refused(self, records: Records, limit: int) -> None:
        with pytest.raises(InvalidRequest):
            records.find(Query(KIND, limit=limit))

    def test_a_change_is_seen_in_the_next_list(self, records: Records) -> None:
        made = records.create(draft("a", status="InProgress"), now=NOON)
        records.apply(made, Change(status="Failed"), now=minutes(1))
        assert list_names(records, Query(KIND, status="InProgress")) == []
        assert records.find(Query(KIND, status="Failed")).resources == [records.load(key("a"))]


def list_names(records: Records, query: Query) -> list[str]:
    return names(records.find(query).resources)


def read_all(records: Records, query: Query) -> list[Resource]:
    """Read all pages. None may be larger than asked, or empty unless it is the only one."""
    found: list[Resource] = []
    while True:
        page = records.find(query)
        assert len(page.resources) <= query.limit
        assert page.resources or not found
        found += page.resources
        if page.next_after is None:
            return found
        query = replace(query, after=page.next_after)


def fill_with_ties(records: Records) -> list[Resource]:
    """Create twelve resources. Several share the time, the status, or both."""
    return [
        records.create(draft(f"job-{number % 4}-{number:02}", status="abc"[number % 3]), now=minutes(number // 6))
        for number in range(12)
    ]
