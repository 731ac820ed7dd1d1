from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from trainyard.objects.preconditions import NamedLocks
from trainyard.testing.objects.samples import in_threads


def test_a_name_is_held_by_one_at_a_time() -> None:
    locks = NamedLocks()
    inside = 0
    most = 0

    def work(_: int) -> None:
        nonlocal inside, most
        for _turn in range(50):
            with locks.holding(exclusive=["a", "b"]):
                inside += 1
                most = max(most, inside)
                inside -= 1

    in_threads(6, work)
    assert most == 1


def test_other_names_and_shared_ones_do_not_wait() -> None:
    locks = NamedLocks()
    with (
        locks.holding(exclusive=["a"], shared=["s"]),
        locks.holding(exclusive=["b"], shared=["s"]),
        locks.holding(shared=["s"]),
    ):
        pass


def test_a_shared_name_keeps_out_who_wants_it_alone() -> None:
    locks = NamedLocks()
    has_it = Event()

    def want_alone() -> None:
        with locks.holding(exclusive=["s"]):
            has_it.set()

    with ThreadPoolExecutor(1) as pool:
        with locks.holding(shared=["s"]):
            waiting = pool.submit(want_alone)
            with locks.holding(shared=["s"]):
                assert not has_it.is_set()
        waiting.result(30)
    assert has_it.is_set()


def test_names_are_given_back_after_an_error() -> None:
    locks = NamedLocks()
    with pytest.raises(ZeroDivisionError), locks.holding(exclusive=["a"], shared=["s"]):
        _ = 1 / 0
    with locks.holding(exclusive=["a", "s"]):
        pass
