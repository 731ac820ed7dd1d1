"""What is stored and deleted from one look at a folder to the next."""

import pytest

from trainyard.instance.agent.syncing.changes import HELD_S, TIMER_S, Candidate, Changes, Plan, is_appended
from trainyard.instance.agent.syncing.looks import Look, Scan


def look(version: int = 1, *, mtime_ns: int = 0) -> Look:
    return Look(10 * version, mtime_ns or version, 7, version)


def scan(is_whole: bool = True, **files: Look) -> Scan:
    return Scan({name.replace("_", "."): found for name, found in files.items()}, is_whole=is_whole)


def paths(plan: Plan) -> list[str]:
    return [candidate.path for candidate in plan.uploads]


def test_a_file_is_due_when_two_looks_find_it_the_same() -> None:
    changes = Changes()
    assert paths(changes.look(scan(a=look(1)), now=0)) == []
    assert paths(changes.look(scan(a=look(2)), now=1)) == []
    assert paths(changes.look(scan(a=look(2)), now=2)) == ["a"]


def test_what_is_stored_is_not_due_until_it_changes() -> None:
    changes = Changes()
    changes.stored("a", look(1))
    assert changes.look(scan(a=look(1)), now=0) == changes.look(scan(a=look(1)), now=1) == Plan([], [])
    changes.look(scan(a=look(2)), now=2)
    assert paths(changes.look(scan(a=look(2)), now=3)) == ["a"]


def test_a_file_that_could_not_be_stored_stays_due() -> None:
    changes = Changes()
    for now in range(3):
        plan = changes.look(scan(a=look()), now=now)
    assert paths(plan) == ["a"]
    assert plan.is_waiting


def test_a_file_that_never_rests_is_tried_after_a_while_but_not_while_it_is_written() -> None:
    changes = Changes()
    changes.look(scan(a=look(1)), now=0)
    (candidate,) = changes.look(scan(a=look(2)), now=TIMER_S).uploads
    assert candidate == Candidate("a", even_if_open=False, as_it_is=False)


def test_a_log_is_stored_on_a_timer_although_it_is_being_written() -> None:
    changes = Changes()
    changes.look(scan(train_log=look(1)), now=0)
    assert paths(changes.look(scan(train_log=look(2)), now=TIMER_S - 1)) == []
    (candidate,) = changes.look(scan(train_log=look(3)), now=TIMER_S).uploads
    assert candidate == Candidate("train.log", even_if_open=True, as_it_is=True)
    changes.stored("train.log", look(3))
    assert paths(changes.look(scan(train_log=look(4)), now=TIMER_S + 1)) == []
    assert paths(changes.look(scan(train_log=look(5)), now=2 * TIMER_S + 1)) == ["train.log"]


def test_a_file_at_rest_that_a_program_keeps_open_is_stored_after_a_long_while() -> None:
    changes = Changes()
    changes.look(scan(a=look()), now=0)
    (candidate,) = changes.look(scan(a=look()), now=HELD_S - 1).uploads
    assert not candidate.even_if_open
    (candidate,) = changes.look(scan(a=look()), now=HELD_S).uploads
    assert candidate.even_if_open


def test_a_file_is_deleted_when_two_looks_do_not_find_it() -> None:
    changes = Changes()
    changes.stored("a", look())
    plan = changes.look(scan(), now=0)
    assert (plan.deletes, plan.is_waiting) == ([], True)
    plan = changes.look(scan(), now=1)
    assert (plan.deletes, plan.is_waiting) == (["a"], False)
    changes.forgotten("a")
    assert changes.look(scan(), now=2).deletes == []


def test_a_file_that_is_replaced_between_two_looks_is_not_deleted() -> None:
    changes = Changes()
    changes.stored("a", look(1))
    changes.look(scan(), now=0)
    assert changes.look(scan(a=look(2)), now=1).deletes == []
    assert changes.look(scan(), now=2).deletes == []


def test_what_was_never_stored_is_not_deleted() -> None:
    changes = Changes()
    changes.look(scan(a=look()), now=0)
    assert changes.look(scan(), now=1) == changes.look(scan(), now=2) == Plan([], [])


def test_a_look_that_may_have_missed_files_deletes_nothing() -> None:
    changes = Changes()
    changes.stored("a", look())
    for now in range(3):
        assert changes.look(scan(is_whole=False), now=now).deletes == []
    assert changes.last(scan(is_whole=False)).deletes == []


def test_a_rename_is_a_new_file_and_a_deleted_one() -> None:
    changes = Changes()
    changes.stored("a", look(1))
    changes.look(scan(b=look(1)), now=0)
    plan = changes.look(scan(b=look(1)), now=1)
    assert (paths(plan), plan.deletes) == (["b"], ["a"])


def test_files_are_stored_in_the_order_in_which_they_were_written() -> None:
    changes = Changes()
    found = scan(checkpoint=look(1, mtime_ns=30), weights=look(1, mtime_ns=20), a=look(1, mtime_ns=30))
    changes.look(found, now=0)
    assert paths(changes.look(found, now=1)) == ["weights", "a", "checkpoint"]


def test_the_last_look_takes_everything_at_once() -> None:
    changes = Changes()
    changes.stored("same", look())
    changes.stored("gone", look())
    plan = changes.last(scan(same=look(), fresh=look()))
    assert plan.uploads == [Candidate("fresh", even_if_open=True)]
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
    assert is_appended(path) is expected


def test_a_file_that_is_written_all_the_time_rests_after_it_was_stored() -> None:
    changes = Changes(is_restless=True)
    changes.stored("a.arrows", look(1), now=100.0)
    grown = {"a.arrows": look(2)}
    for now in (100.5, 101.0, 104.9):
        plan = changes.look(Scan(grown), now=now)
        assert paths(plan) == []
        assert plan.is_waiting
    (candidate,) = changes.look(Scan(grown), now=105.0).uploads
    assert candidate == Candidate("a.arrows", even_if_open=True, as_it_is=True)


def test_a_large_file_that_grows_rests_longer_so_that_it_is_not_sent_again_and_again() -> None:
    changes = Changes(is_restless=True)
    size = 80 << 20
    changes.stored("a.arrows", Look(size, 1, 7, 1), now=0.0)
    larger = Scan({"a.arrows": Look(size + 10, 2, 7, 2)})
    changes.look(larger, now=18.0)
    assert paths(changes.look(larger, now=19.0)) == []
    assert paths(changes.look(larger, now=20.0)) == ["a.arrows"]
    assert paths(changes.last(larger)) == ["a.arrows"]
