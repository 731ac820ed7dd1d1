"""Functions that wait in their middle."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch


@pytest.fixture
def pauses(stand_in: Callable[[str], ModuleType]) -> Any:
    return stand_in("smdistributed.modelparallel.torch.pauses")


def test_a_function_gets_what_it_asks_for_and_ends(pauses: Any) -> None:
    runs: list[Any] = []
    runs.append(pauses.Pausable(lambda: [runs[0].pause("one"), runs[0].pause("two")]))
    assert runs[0].resume() == "one"
    assert runs[0].resume(1) == "two"
    assert runs[0].resume(2) == pauses.Ended([1, 2])
    assert runs[0].last == pauses.Ended([1, 2])
    runs[0].abandon()


def test_what_it_raises_reaches_the_caller(pauses: Any) -> None:
    def fail() -> None:
        raise KeyError("absent")

    with pytest.raises(KeyError, match="absent"):
        pauses.Pausable(fail).resume()


def test_one_that_is_abandoned_cleans_up_and_goes_no_further(pauses: Any) -> None:
    seen: list[str] = []
    runs: list[Any] = []

    def wait() -> None:
        try:
            runs[0].pause("anything")
            seen.append("went on")
        finally:
            seen.append("cleaned up")

    runs.append(pauses.Pausable(wait))
    runs[0].resume()
    runs[0].abandon()
    assert seen == ["cleaned up"]


def test_one_that_never_ran_can_be_abandoned(pauses: Any) -> None:
    seen: list[str] = []
    pauses.Pausable(lambda: seen.append("ran")).abandon()
    assert seen == []


def test_it_runs_in_the_modes_of_its_caller(pauses: Any) -> None:
    def modes() -> tuple[bool, bool]:
        return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        inside = pauses.Pausable(modes)
    assert inside.resume() == pauses.Ended((False, True))
    assert pauses.Pausable(modes).resume() == pauses.Ended((True, False))
