"""What is uploaded and deleted from one scan to the next."""

import pytest

from trainyard.instance.agent.data.sync.changes import (
    MAX_DELAY_S,
    OPEN_FILE_REST_S,
    ChangeTracker,
    SyncPlan,
    UploadCandidate,
    is_append_only,
)
from trainyard.instance.agent.data.sync.scan import FileStamp, FolderScan


def look(version: int = 1, *, mtime_ns: int = 0) -> FileStamp:
    return FileStamp(10 * version, mtime_ns or version, 7, version)


def scan(is_complete: bool = True, **files: FileStamp) -> FolderScan:
    return FolderScan({name.replace("_", "."): found for name, found in files.items()}, is_complete=is_complete)


def paths(plan: SyncPlan) -> list[str]:
    return [candidate.path for candidate in plan.uploads]


def test_a_file_is_due_when_two_scans_find_it_unchanged() -> None:
    changes = ChangeTracker()
    assert paths(changes.plan(scan(a=look(1)), now=0)) == []
    assert paths(changes.plan(scan(a=look(2)), now=1)) == []
    assert paths(changes.plan(scan(a=look(2)), now=2)) == ["a"]


def test_what_is_stored_is_not_due_until_it_changes() -> None:
    changes = ChangeTracker()
    changes.mark_stored("a", look(1))
    assert changes.plan(scan(a=look(1)), now=0) == changes.plan(scan(a=look(1)), now=1) == SyncPlan([], [])
    changes.plan(scan(a=look(2)), now=2)
    assert paths(changes.plan(scan(a=look(2)), now=3)) == ["a"]


def test_a_file_that_could_not_be_stored_stays_due() -> None:
    changes = ChangeTracker()
    for now in range(3):
        plan = changes.plan(scan(a=look()), now=now)
    assert paths(plan) == ["a"]
    assert plan.is_waiting


def test_a_file_that_keeps_changing_is_tried_after_a_while_but_not_while_it_is_written() -> None:
    changes = ChangeTracker()
    changes.plan(scan(a=look(1)), now=0)
    (candidate,) = changes.plan(scan(a=look(2)), now=MAX_DELAY_S).uploads
    assert candidate == UploadCandidate("a", even_if_open=False, even_if_changing=False)


def test_a_log_is_stored_on_a_timer_although_it_is_being_written() -> None:
    changes = ChangeTracker()
    changes.plan(scan(train_log=look(1)), now=0)
    assert paths(changes.plan(scan(train_log=look(2)), now=MAX_DELAY_S - 1)) == []
    (candidate,) = changes.plan(scan(train_log=look(3)), now=MAX_DELAY_S).uploads
    assert candidate == UploadCandidate("train.log", even_if_open=True, even_if_changing=True)
    changes.mark_stored("train.log", look(3))
    assert paths(changes.plan(scan(train_log=look(4)), now=MAX_DELAY_S + 1)) == []
    assert paths(changes.plan(scan(train_log=look(5)), now=2 * MAX_DELAY_S + 1)) == ["train.log"]


def test_a_file_at_rest_that_a_program_keeps_open_is_stored_after_a_long_while() -> None:
    changes = ChangeTracker()
    changes.plan(scan(a=look()), now=0)
    (candidate,) = changes.plan(scan(a=look()), now=OPEN_FILE_REST_S - 1).uploads
    assert not candidate.even_if_open
    (candidate,) = changes.plan(scan(a=look()), now=OPEN_FILE_REST_S).uploads
    assert candidate.even_if_open


def test_a_file_is_deleted_when_two_scans_do_not_find_it() -> None:
    changes = ChangeTracker()
    changes.mark_stored("a", look())
    plan = changes.plan(scan(), now=0)
    assert (plan.deletes, plan.is_waiting) == ([], True)
    plan = changes.plan(scan(), now=1)
    assert (plan.deletes, plan.is_waiting) == (["a"], False)
    changes.mark_deleted("a")
    assert changes.plan(scan(), now=2).deletes == []


def test_a_file_that_is_replaced_between_two_scans_is_not_deleted() -> None:
    changes = ChangeTracker()
    changes.mark_stored("a", look(1))
    changes.plan(scan(), now=0)
    assert changes.plan(scan(a=look(2)), now=1).deletes == []
    assert changes.plan(scan(), now=2).deletes == []


def test_what_was_never_stored_is_not_deleted() -> None:
    changes = ChangeTracker()
    changes.plan(scan(a=look()), now=0)
    assert changes.plan(scan(), now=1) == changes.plan(scan(), now=2) == SyncPlan([], [])


def test_an_incomplete_scan_deletes_nothing() -> None:
    changes = ChangeTracker()
    changes.mark_stored("a", look())
    for now in range(3):
        assert changes.plan(scan(is_complete=False), now=now).deletes == []
    assert changes.final_plan(scan(is_complete=False)).deletes == []


def test_a_rename_is_a_new_file_and_a_deleted_one() -> None:
    changes = ChangeTracker()
    changes.mark_stored("a", look(1))
    changes.plan(scan(b=look(1)), now=0)
    plan = changes.plan(scan(b=look(1)), now=1)
    assert (paths(plan), plan.deletes) == (["b"], ["a"])


def test_files_are_stored_in_the_order_in_which_they_were_written() -> None:
    changes = ChangeTracker()
    found = scan(checkpoint=look(1, mtime_ns=30), weights=look(1, mtime_ns=20), a=look(1, mtime_ns=30))
    changes.plan(found, now=0)
    assert paths(changes.plan(found, now=1)) == ["weights", "a", "checkpoint"]


def test_the_final_plan_includes_everything_at_once() -> None:
    changes = ChangeTracker()
    changes.mark_stored("same", look())
    changes.mark_stored("gone", look())
    plan = changes.final_plan(scan(same=look(), fresh=look()))
    assert plan.uploads == [UploadCandidate("fresh", even_if_open=True)]
    assert plan.deletes == ["gone"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("runs/events.out.tfevents.170.algo-1.7.0", True),
        ("train.log", True),
        ("metrics.jsonl", True),
        ("model.pt", False),
        ("train.log/model.pt", False),
        ("checkpoint", False),
    ],
)
def test_files_that_programs_append_to_are_known_by_their_names(path: str, expected: bool) -> None:
    assert is_append_only(path) is expected


def test_a_frequently_written_file_waits_after_it_was_stored() -> None:
    changes = ChangeTracker(is_frequently_written=True)
    assert paths(changes.plan(FolderScan({"a.arrows": look(1)}), now=99.5)) == ["a.arrows"]
    changes.mark_stored("a.arrows", look(1), now=100.0)
    for number, now in enumerate((100.5, 101.0, 101.9)):
        plan = changes.plan(FolderScan({"a.arrows": look(2 + number)}), now=now)
        assert paths(plan) == []
        assert plan.is_waiting
    (candidate,) = changes.plan(FolderScan({"a.arrows": look(5)}), now=102.0).uploads
    assert candidate == UploadCandidate("a.arrows", even_if_open=True, even_if_changing=True)


def test_a_large_growing_file_waits_longer_so_that_it_is_not_uploaded_again_and_again() -> None:
    changes = ChangeTracker(is_frequently_written=True)
    size = 80 << 20
    changes.mark_stored("a.arrows", FileStamp(size, 1, 7, 1), now=0.0)
    larger = FolderScan({"a.arrows": FileStamp(size + 10, 2, 7, 2)})
    changes.plan(larger, now=18.0)
    assert paths(changes.plan(larger, now=19.0)) == []
    assert paths(changes.plan(larger, now=20.0)) == ["a.arrows"]
    assert paths(changes.final_plan(larger)) == ["a.arrows"]
