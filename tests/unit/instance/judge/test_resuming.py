import json
from pathlib import Path

import pytest

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.hook.contract import Reached
from trainyard.instance.judge.resuming import read_reached
from trainyard.link.told import RESUMED


def left(ml: Path, text: str) -> Path:
    (ml / RESUMED).parent.mkdir()
    (ml / RESUMED).write_text(text)
    return ml


def test_what_the_agent_left_is_how_many_steps_there_were(tmp_path: Path) -> None:
    manifest = {"last_step": 41, "mode_steps": {"TRAIN": 30, "EVAL": 12}, "worker": "worker_0"}
    found = read_reached(left(tmp_path, json.dumps({"worker_0": manifest})))
    assert found == {"worker_0": Reached(42, {Mode.TRAIN: 30, Mode.EVAL: 12})}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"worker_0": {}}', '{"worker_0": {"last_step": 1, "mode_steps": {"X": 1}}}']
)
def test_what_cannot_be_read_is_a_beginning(tmp_path: Path, text: str) -> None:
    assert read_reached(left(tmp_path, text)) == {}


def test_a_first_attempt_begins(tmp_path: Path) -> None:
    assert read_reached(tmp_path) == {}
