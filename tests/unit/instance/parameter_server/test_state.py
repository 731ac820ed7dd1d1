"""The share of a model that one server keeps."""

from pathlib import Path

import pytest
import torch

from trainyard.foundation.errors import Corrupt, InvalidRequest
from trainyard.instance.parameter_server.state import ParameterState, PushResult

ONES = {"x": torch.ones(2)}


def begun(**options: float) -> ParameterState:
    state = ParameterState()
    state.begin({"x": torch.zeros(2)}, "SGD", {"lr": 1.0} | options)
    return state


def push(state: ParameterState, since: int = 0, max_staleness: int | None = None) -> PushResult:
    return state.push(ONES, since=since, options={}, max_staleness=max_staleness)


def values(state: ParameterState) -> tuple[int, list[float]]:
    version, tensors = state.pull()
    return version, tensors["x"].tolist()


def test_the_first_values_stay_when_others_come() -> None:
    state = begun()
    push(state)
    state.begin({"x": torch.full((2,), 9.0)}, "Adam", {})
    assert values(state) == (1, [-1.0, -1.0])


def test_what_was_pulled_does_not_change_with_later_steps() -> None:
    state = begun()
    _, pulled = state.pull()
    push(state)
    assert pulled["x"].tolist() == [0.0, 0.0]


def test_staleness_is_what_was_applied_since_the_pull() -> None:
    state = begun()
    assert [push(state), push(state), push(state, since=2)] == [
        PushResult(1, 0, is_applied=True),
        PushResult(2, 1, is_applied=True),
        PushResult(3, 0, is_applied=True),
    ]


def test_gradients_that_are_too_stale_change_nothing() -> None:
    state = begun()
    push(state)
    assert push(state, max_staleness=0) == PushResult(1, 1, is_applied=False)
    assert values(state) == (1, [-1.0, -1.0])


def test_a_checkpoint_has_the_state_of_the_optimizer_too(tmp_path: Path) -> None:
    straight, saved, loaded = begun(momentum=0.9), begun(momentum=0.9), ParameterState()
    push(saved)
    saved.save(tmp_path / "new" / "kept.pt")
    loaded.load(tmp_path / "new" / "kept.pt")
    push(loaded)
    push(straight)
    push(straight)
    assert values(loaded) == values(straight)


def test_before_there_are_values_nothing_is_saved(tmp_path: Path) -> None:
    ParameterState().save(tmp_path / "kept.pt")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_is_torn_is_named(tmp_path: Path) -> None:
    begun().save(tmp_path / "kept.pt")
    whole = (tmp_path / "kept.pt").read_bytes()
    (tmp_path / "kept.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Corrupt, match=r"cannot read its checkpoint .*kept.pt"):
        ParameterState().load(tmp_path / "kept.pt")


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"parameters": Path("/")}, tmp_path / "kept.pt")
    with pytest.raises(Corrupt):
        ParameterState().load(tmp_path / "kept.pt")


def test_gradients_of_another_shape_are_refused() -> None:
    state = begun()
    with pytest.raises(InvalidRequest, match=r"has shape \(3,\)"):
        state.push({"x": torch.ones(3)}, since=0, options={}, max_staleness=None)
    with pytest.raises(InvalidRequest, match='has no parameter "y"'):
        state.push({"y": torch.ones(2)}, since=0, options={}, max_staleness=None)
    assert values(state) == (0, [0.0, 0.0])
