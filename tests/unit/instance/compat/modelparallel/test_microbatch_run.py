"""Functions that pause and resume."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch


@pytest.fixture
def module(import_compat: Callable[[str], ModuleType]) -> Any:
    return import_compat("smdistributed.modelparallel.torch.microbatch_run")


def test_a_function_gets_answers_to_its_requests_and_finishes(module: Any) -> None:
    runs: list[Any] = []
    runs.append(module.ThreadCoroutine(lambda: [runs[0].pause("one"), runs[0].pause("two")]))
    assert runs[0].resume() == "one"
    assert runs[0].resume(1) == "two"
    assert runs[0].resume(2) == module.Finished([1, 2])
    assert runs[0].last == module.Finished([1, 2])
    runs[0].abandon()


def test_an_error_in_the_function_reaches_the_caller(module: Any) -> None:
    def fail() -> None:
        raise KeyError("absent")

    with pytest.raises(KeyError, match="absent"):
        module.ThreadCoroutine(fail).resume()


def test_an_abandoned_function_cleans_up_and_stops(module: Any) -> None:
    seen: list[str] = []
    runs: list[Any] = []

    def wait() -> None:
        try:
            runs[0].pause("anything")
            seen.append("went on")
        finally:
            seen.append("cleaned up")

    runs.append(module.ThreadCoroutine(wait))
    runs[0].resume()
    runs[0].abandon()
    assert seen == ["cleaned up"]


def test_a_function_that_never_ran_can_be_abandoned(module: Any) -> None:
    seen: list[str] = []
    module.ThreadCoroutine(lambda: seen.append("ran")).abandon()
    assert seen == []


def test_it_runs_in_the_modes_of_its_caller(module: Any) -> None:
    def modes() -> tuple[bool, bool]:
        return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        inside = module.ThreadCoroutine(modes)
    assert inside.resume() == module.Finished((False, True))
    assert module.ThreadCoroutine(modes).resume() == module.Finished((True, False))
