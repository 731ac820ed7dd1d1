"""Resources are created once, changed if their revision matches, and deleted with their children."""

from collections.abc import Callable
from typing import Any

import pytest

from trainyard.foundation.errors import AlreadyExists, InvalidRequest, NotFound
from trainyard.server.records.contract import Change, NewEvent, Query, Records, Resource, ResourceId
from trainyard.testing.records.samples import (
    ALICE,
    BOB,
    KIND,
    NOON,
    REGION,
    count_of_events,
    draft,
    in_threads,
    key,
    minutes,
    names,
)

Reopen = Callable[[], Records]

BODIES: list[dict[str, Any]] = [
    {},
    {"text": "Zürich 東京 🚂", "quote": "\"'\\", "lines": "a\nb\tc\r"},
    {"nothing": None, "yes": True, "no": False, "deep": [{"list": [1, [2, [3]]]}]},
    {"large": 2**80, "small": -(2**63), "real": 0.1, "tiny": 5e-324},
    {"nul": "a\0b", "half a pair": "\ud83d"},
    {"%": "{}", ":name": "?", "": ""},
]


class ResourceContract:
    def test_a_created_resource_is_loaded_by_its_key_as_it_was_returned(self, records: Records) -> None:
        created = records.create(draft("a", status="InProgress", body={"x": 1}), now=NOON)
        assert records.load(key("a")) == created
        assert created == Resource(created.id, key("a"), REGION, "InProgress", NOON, NOON, 1, {"x": 1}, None)

    def test_a_created_resource_is_loaded_by_its_id(self, records: Records) -> None:
        created = records.create(draft("a"), now=NOON)
        assert records.load_by_id(created.id) == created

    def test_another_process_finds_a_created_resource(self, records: Records, reopen: Reopen) -> None:
        created = records.create(draft("a", body={"x": 1}), now=NOON)
        assert reopen().load(key("a")) == created

    @pytest.mark.parametrize("body", BODIES, ids=lambda body: "-".join(body) or "empty")
    def test_a_body_comes_back_as_it_was_given(self, records: Records, body: dict[str, Any]) -> None:
        records.create(draft("a", body=body), now=NOON)
        assert records.load(key("a")).body == body

    def test_a_time_comes_back_to_the_microsecond(self, records: Records) -> None:
        records.create(draft("a"), now=NOON.replace(microsecond=999_999))
        assert records.load(key("a")).created_at == NOON.replace(microsecond=999_999)

    def test_a_taken_name_is_refused_and_the_first_one_stays(self, records: Records) -> None:
        first = records.create(draft("a", body={"x": 1}), now=NOON)
        with pytest.raises(AlreadyExists, match='A training job named "a" already exists'):
            records.create(draft("a", body={"x": 2}), now=minutes(1))
        assert records.load(key("a")) == first

    def test_a_refused_create_leaves_no_event_and_no_tag(self, records: Records) -> None:
        records.create(draft("a"), now=NOON)
        with pytest.raises(AlreadyExists):
            records.create(draft("a", arn="arn:a", tags={"k": "v"}), now=NOON, event=NewEvent("created"))
        assert count_of_events(records) == 0
        assert records.tags(ALICE, "arn:a") == {}

    def test_accounts_and_kinds_have_separate_names(self, records: Records) -> None:
        one = records.create(draft("a"), now=NOON)
        two = records.create(draft("a", account=BOB), now=NOON)
        three = records.create(draft("a", kind="model"), now=NOON)
        assert len({one.id, two.id, three.id}) == 3
        assert records.load(key("a", account=BOB)) == two

    def test_names_are_case_sensitive(self, records: Records) -> None:
        records.create(draft("Job"), now=NOON)
        records.create(draft("job"), now=NOON)
        with pytest.raises(NotFound):
            records.load(key("JOB"))

    def test_the_error_for_a_missing_resource_has_its_kind_and_name(self, records: Records) -> None:
        with pytest.raises(NotFound) as caught:
            records.load(key("nowhere"))
        assert (caught.value.kind, caught.value.name) == (KIND, "nowhere")

    def test_another_account_does_not_find_it(self, records: Records) -> None:
        records.create(draft("a"), now=NOON)
        with pytest.raises(NotFound):
            records.load(key("a", account=BOB))

    def test_an_unknown_id_is_not_found(self, records: Records) -> None:
        with pytest.raises(NotFound):
            records.load_by_id(ResourceId("nowhere"))

    def test_a_name_that_no_database_can_store_is_refused(self, records: Records) -> None:
        for name in ("a\0b", "half a pair \ud83d"):
            with pytest.raises(InvalidRequest):
                records.create(draft(name), now=NOON)
            with pytest.raises(InvalidRequest):
                records.load(key(name))

    def test_a_child_of_an_unknown_parent_is_refused(self, records: Records) -> None:
        parent = records.create(draft("parent"), now=NOON)
        records.delete(parent, now=NOON)
        with pytest.raises(NotFound):
            records.create(draft("child", parent=parent), now=NOON)

    def test_a_child_of_another_accounts_resource_is_refused(self, records: Records) -> None:
        parent = records.create(draft("parent", account=BOB), now=NOON)
        with pytest.raises(NotFound):
            records.create(draft("child", parent=parent), now=NOON)
        assert records.find(Query(KIND, account=ALICE)).resources == []

    def test_exactly_one_of_a_thousand_concurrent_creates_succeeds(self, records: Records) -> None:
        def create(number: int) -> Resource | None:
            try:
                return records.create(draft("a", body={"number": number}), now=NOON, event=NewEvent("created"))
            except AlreadyExists:
                return None

        [winner] = [made for made in in_threads(32, create, times=1000) if made]
        assert records.load(key("a")) == winner
        assert [event.subject for event in records.events()] == [winner.id]

    def test_concurrent_creates_of_different_names_all_succeed(self, records: Records) -> None:
        made = in_threads(16, lambda number: records.create(draft(f"job-{number}"), now=NOON), times=200)
        assert len({resource.id for resource in made}) == 200
        assert len(records.find(Query(KIND, limit=1000)).resources) == 200

    def test_an_apply_changes_what_it_names_and_leaves_the_rest(self, records: Records) -> None:
        made = records.create(draft("a", status="InProgress", body={"x": 1}), now=NOON)
        changed = records.apply(made, Change(status="Stopping"), now=minutes(1))
        assert changed is not None
        assert (changed.status, changed.body, changed.revision) == ("Stopping", {"x": 1}, 2)
        assert (changed.created_at, changed.modified_at) == (NOON, minutes(1))
        assert records.load(key("a")) == changed

    def test_an_apply_replaces_the_whole_body(self, records: Records) -> None:
        made = records.create(draft("a", status="InProgress", body={"x": 1, "y": 2}), now=NOON)
        changed = records.apply(made, Change(body={"z": 3}), now=NOON)
        assert changed is not None
        assert (changed.status, changed.body) == ("InProgress", {"z": 3})
        assert records.load(key("a")) == changed

    def test_an_empty_status_and_an_empty_body_are_values(self, records: Records) -> None:
        made = records.create(draft("a", status="InProgress", body={"x": 1}), now=NOON)
        records.apply(made, Change(status="", body={}), now=NOON)
        assert (records.load(key("a")).status, records.load(key("a")).body) == ("", {})

    def test_an_apply_to_an_old_revision_has_no_effect_at_all(self, records: Records) -> None:
        made = records.create(draft("a", status="one"), now=NOON)
        current = records.apply(made, Change(status="two"), now=minutes(1))
        late = records.apply(made, Change(status="three"), now=minutes(2), events=[NewEvent("changed")])
        assert late is None
        assert records.load(key("a")) == current
        assert count_of_events(records) == 0

    def test_an_apply_to_a_deleted_resource_has_no_effect(self, records: Records) -> None:
        made = records.create(draft("a"), now=NOON)
        records.delete(made, now=NOON)
        assert records.apply(made, Change(status="x"), now=NOON, events=[NewEvent("changed")]) is None
        assert count_of_events(records) == 0

    def test_an_apply_does_not_reach_a_new_resource_of_the_old_name(self, records: Records) -> None:
        old = records.create(draft("a"), now=NOON)
        records.delete(old, now=NOON)
        new = records.create(draft("a"), now=NOON)
        assert records.apply(old, Change(status="x"), now=NOON) is None
        assert records.load(key("a")) == new

    def test_exactly_one_of_several_concurrent_applies_to_one_revision_succeeds(self, records: Records) -> None:
        made = records.create(draft("a"), now=NOON)

        def apply(number: int) -> Resource | None:
            return records.apply(made, Change(status=str(number)), now=NOON, events=[NewEvent(str(number))])

        [winner] = [changed for changed in in_threads(16, apply, times=64) if changed]
        assert records.load(key("a")) == winner
        assert [event.kind for event in records.events()] == [winner.status]

    def test_incrementing_by_retried_applies_loses_no_increment(self, records: Records) -> None:
        records.create(draft("counter", body={"count": 0}), now=NOON)

        def count(_: int) -> None:
            while True:
                seen = records.load(key("counter"))
                if records.apply(seen, Change(body={"count": seen.body["count"] + 1}), now=NOON):
                    return

        in_threads(8, count, times=80)
        assert records.load(key("counter")).body == {"count": 80}

    def test_a_deleted_resource_is_gone_and_its_name_free_for_another_id(self, records: Records) -> None:
        old = records.create(draft("a"), now=NOON)
        assert records.delete(old, now=NOON)
        with pytest.raises(NotFound):
            records.load_by_id(old.id)
        with pytest.raises(NotFound):
            records.load(key("a"))
        assert records.create(draft("a"), now=NOON).id != old.id

    def test_a_delete_of_an_old_revision_has_no_effect_at_all(self, records: Records) -> None:
        made = records.create(draft("a", arn="arn:a", tags={"k": "v"}), now=NOON)
        current = records.apply(made, Change(status="x"), now=NOON)
        assert not records.delete(made, now=NOON, event=NewEvent("deleted"))
        assert records.load(key("a")) == current
        assert records.tags(ALICE, "arn:a") == {"k": "v"}
        assert count_of_events(records) == 0

    def test_a_second_delete_returns_false(self, records: Records) -> None:
        made = records.create(draft("a"), now=NOON)
        assert [records.delete(made, now=NOON), records.delete(made, now=NOON)] == [True, False]

    def test_exactly_one_of_several_concurrent_deletes_succeeds(self, records: Records) -> None:
        made = records.create(draft("a"), now=NOON)
        done = in_threads(8, lambda _: records.delete(made, now=NOON, event=NewEvent("deleted")))
        assert sorted(done) == [False] * 7 + [True]
        assert count_of_events(records) == 1

    def test_all_descendants_are_deleted_with_a_resource(self, records: Records) -> None:
        group = records.create(draft("group"), now=NOON)
        stream = records.create(draft("stream", parent=group), now=NOON)
        records.create(draft("grandchild", parent=stream), now=NOON)
        records.create(draft("stranger"), now=NOON)
        assert stream.parent == group.id
        assert records.delete(group, now=NOON)
        assert names(records.find(Query(KIND)).resources) == ["stranger"]

    def test_the_tags_of_all_descendants_are_deleted_and_no_others(self, records: Records) -> None:
        group = records.create(draft("group", arn="arn:group", tags={"k": "1"}), now=NOON)
        stream = records.create(draft("stream", parent=group, arn="arn:stream", tags={"k": "2"}), now=NOON)
        records.create(draft("grandchild", parent=stream, arn="arn:grandchild", tags={"k": "3"}), now=NOON)
        records.create(draft("stranger", arn="arn:stranger", tags={"k": "4"}), now=NOON)
        records.set_tags(BOB, "arn:group", {"k": "5"})
        records.delete(group, now=NOON)
        assert [(one.account, one.arn) for one in records.tagged_arns(None)] == [
            (BOB, "arn:group"),
            (ALICE, "arn:stranger"),
        ]

    def test_tags_set_after_the_create_are_deleted_with_the_resource_too(self, records: Records) -> None:
        made = records.create(draft("a", arn="arn:a"), now=NOON)
        records.set_tags(ALICE, "arn:a", {"k": "v"})
        records.delete(made, now=NOON)
        assert records.tags(ALICE, "arn:a") == {}

    def test_deleting_a_child_keeps_its_parent(self, records: Records) -> None:
        parent = records.create(draft("parent"), now=NOON)
        child = records.create(draft("child", parent=parent), now=NOON)
        records.delete(child, now=NOON)
        assert records.load(key("parent")) == parent
