"""A checkpoint that is wanted before a training is stopped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.recorder.checkpoint import RequestedCheckpoint
from trainyard.link.event_protocol import WANTED, AgentEventKind


class Stage:
    def __init__(self, root: Path, *, is_first: bool = True) -> None:
        self.ml = root
        (root / WANTED).parent.mkdir()
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self.wanted = RequestedCheckpoint(
            root,
            root / "kept",
            environment={},
            send_event=lambda word, payload: self.told.append((word, payload)),
            is_first=is_first,
        )
        self.model = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def want(self) -> None:
        (self.ml / WANTED).write_text(json.dumps({"checkpoint": 7}))

    def step(self, number: int) -> None:
        self.wanted.begin_step(number, mode=Mode.TRAIN, models=[self.model], optimizers=[self.optimizer])
        self.wanted.end_step(number)


def test_it_is_saved_after_the_step_in_which_it_is_wanted_and_only_then(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.step(8)
    assert stage.told == []
    stage.want()
    stage.step(9)
    stage.step(10)
    path = tmp_path / "kept" / "trainyard-step-9.pt"
    assert stage.told == [(AgentEventKind.SAVED, {"path": str(path)})]
    saved = torch.load(path)
    assert saved["step"] == 9
    assert torch.equal(saved["models"][0]["weight"], stage.model.weight)
    assert saved["optimizers"][0]["param_groups"][0]["momentum"] == 0.9


def test_ranks_that_hold_the_same_leave_it_to_the_first(tmp_path: Path) -> None:
    stage = Stage(tmp_path, is_first=False)
    stage.want()
    stage.step(9)
    assert stage.told == []
    assert not (tmp_path / "kept").exists()


def test_a_checkpoint_that_cannot_be_saved_is_reported_so_that_nobody_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("no folder")
    stage = Stage(tmp_path)
    stage.want()
    stage.step(9)
    ((word, payload),) = stage.told
    assert (word, payload["path"]) == (AgentEventKind.SAVED, "")
    assert "kept" in payload["why"]
