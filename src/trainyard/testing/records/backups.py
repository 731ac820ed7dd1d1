"""An export contains everything at one moment, and a restore brings it back."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from trainyard.foundation.errors import Conflict, Corrupt, TrainyardError
from trainyard.server.records.contract import Association, Body, Change, NewEvent, Query, Records
from trainyard.testing.records.samples import ALICE, KIND, LEASE, NOON, draft, key, minutes
from trainyard.testing.records.users import pair, temporary, user

Rows = list[tuple[str, Body]]


class BackupContract:
    def test_an_export_survives_json_and_a_restore(self, records: Records, other_records: Records) -> None:
        fill(records)
        rows = export_rows(records)
        other_records.restore(iter(rows))
        assert export_rows(other_records) == rows

    def test_a_restore_brings_back_what_callers_see(self, records: Records, other_records: Records) -> None:
        fill(records)
        other_records.restore(export_rows(records))
        query = Query(KIND)
        assert other_records.find(query) == records.find(query)
        assert other_records.events() == records.events()
        assert other_records.users() == records.users()
        assert other_records.user("333333333333") == records.user("333333333333")
        assert other_records.access_key("ASIAALICE") == records.access_key("ASIAALICE")
        assert other_records.tagged_arns(None) == records.tagged_arns(None)

    def test_restored_leases_and_times_are_still_in_force(self, records: Records, other_records: Records) -> None:
        records.create(draft("held", due_at=NOON), now=NOON)
        claim = records.claim_next(KIND, worker="w", lease=LEASE, now=NOON)
        records.create(draft("due", due_at=minutes(0.1)), now=NOON)
        other_records.restore(export_rows(records))
        got = other_records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(0.1))
        assert got is not None
        assert got.resource.key.name == "due"
        assert claim is not None
        assert other_records.apply_claimed(claim, Change(status="x"), now=minutes(0.1)) is not None

    def test_events_after_a_restore_have_higher_numbers(self, records: Records, other_records: Records) -> None:
        fill(records)
        last = records.events()[-1].sequence
        other_records.restore(export_rows(records))
        other_records.create(draft("new"), now=NOON, event=NewEvent("created"))
        assert other_records.events()[-1].sequence > last

    def test_an_export_of_nothing_restores_nothing(self, records: Records, other_records: Records) -> None:
        other_records.restore(export_rows(records))
        assert export_rows(other_records) == export_rows(records)
        other_records.create(draft("a"), now=NOON, event=NewEvent("created"))
        assert len(other_records.events()) == 1

    def test_an_export_is_a_snapshot(self, records: Records) -> None:
        for number in range(5):
            records.create(draft(str(number)), now=NOON, event=NewEvent("created"))
        rows = records.export()
        begun = [next(rows), next(rows)]
        records.create(draft("late"), now=NOON, event=NewEvent("created"))
        records.delete(records.load(key("4")), now=NOON)
        whole = begun + list(rows)
        assert sorted(row["name"] for table, row in whole if table == "resources") == list("01234")
        assert len([row for table, row in whole if table == "events"]) == 5

    def test_a_restore_refuses_records_in_use(self, records: Records, other_records: Records) -> None:
        fill(records)
        mine = other_records.create(draft("mine"), now=NOON)
        with pytest.raises(Conflict, match="resources already"):
            other_records.restore(export_rows(records))
        assert other_records.find(Query(KIND)).resources == [mine]
        assert other_records.users() == []

    def test_a_restore_of_many_rows_keeps_them_all(self, records: Records, other_records: Records) -> None:
        parent = records.create(draft("parent", kind="group"), now=NOON)
        for number in range(1100):
            records.create(draft(f"job-{number}", parent=parent), now=NOON)
        other_records.restore(records.export())
        assert len(other_records.find(Query(KIND, parent=parent.id, limit=2000)).resources) == 1100

    @pytest.mark.parametrize(
        "damage",
        ["no schema", "unknown table", "column missing", "column unknown", "wrong type", "null", "twice", "orphan"],
    )
    def test_a_damaged_backup_is_refused_completely(
        self, records: Records, other_records: Records, damage: str
    ) -> None:
        fill(records)
        with pytest.raises(Corrupt):
            other_records.restore(damage_rows(export_rows(records), damage))
        assert len(export_rows(other_records)) == 1

    def test_a_backup_of_another_schema_is_refused_with_its_version(self, records: Records) -> None:
        rows: Rows = [("schema", {"revision": "9999", "written_by": "9.9.9"})]
        with pytest.raises(Conflict, match=r"9\.9\.9"):
            records.restore(rows)

    def test_a_truncated_backup_leaves_nothing(self, records: Records, other_records: Records) -> None:
        fill(records)

        def breaking() -> Iterator[tuple[str, Body]]:
            yield from export_rows(records)
            raise Broken("the archive ends here")

        with pytest.raises(Broken):
            other_records.restore(breaking())
        assert len(export_rows(other_records)) == 1


class Broken(TrainyardError):
    """The source of the rows failed."""


def fill(records: Records) -> None:
    """Write to every table, with a child that sorts before its parent."""
    records.add_user(user(), pair())
    records.add_user(user("carol", account="333333333333", is_admin=True))
    records.remove_user("333333333333", now=minutes(1))
    records.add_access_key(temporary())
    parent = records.create(draft("parent", body={"x": "Zürich"}), now=minutes(1), event=NewEvent("created", {"y": 1}))
    records.create(draft("child", parent=parent, arn="arn:child", tags={"k": "v"}, due_at=NOON), now=NOON)
    records.apply(parent, Change(status="x"), now=minutes(2), events=[NewEvent("changed")])
    records.set_tags(ALICE, "arn:aws:s3:::data", {"team": "vision"})
    records.associate(Association(ALICE, "arn:a", "arn:b", "Produced", NOON))


def export_rows(records: Records) -> Rows:
    """Return an export as a backup file would store it."""
    return [(table, json.loads(json.dumps(row))) for table, row in records.export()]


def damage_rows(rows: Rows, how: str) -> Rows:
    index = next(index for index, (table, _) in enumerate(rows) if table == "resources")
    row: dict[str, Any] = dict(rows[index][1])
    match how:
        case "no schema":
            return rows[1:]
        case "unknown table":
            return [*rows, ("secrets", {"a": 1})]
        case "column missing":
            del row["region"]
        case "column unknown":
            row["colour"] = "red"
        case "wrong type":
            row["created_at"] = "noon"
        case "null":
            row["name"] = None
        case "twice":
            return [*rows, rows[index]]
        case "orphan":
            row["parent"] = "nowhere"
    return [*rows[:index], ("resources", row), *rows[index + 1 :]]
