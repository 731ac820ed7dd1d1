import json
from pathlib import Path

import pytest

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.hook.contract import ResumePoint
from trainyard.instance.rule_evaluation.hook_attachment import read_resume_points
from trainyard.link.event_protocol import RESUMED


def write_resumed(ml: Path, text: str) -> Path:
    (ml / RESUMED).parent.mkdir()
    (ml / RESUMED).write_text(text)
    return ml


def test_resume_points_count_the_steps_of_the_last_attempt(tmp_path: Path) -> None:
    manifest = {"last_step": 41, "mode_steps": {"TRAIN": 30, "EVAL": 12}, "worker": "worker_0"}
    found = read_resume_points(write_resumed(tmp_path, json.dumps({"worker_0": manifest})))
    assert found == {"worker_0": ResumePoint(42, {Mode.TRAIN: 30, Mode.EVAL: 12})}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"worker_0": {}}', '{"worker_0": {"last_step": 1, "mode_steps": {"X": 1}}}']
)
def test_an_unreadable_file_gives_no_resume_points(tmp_path: Path, text: str) -> None:
    assert read_resume_points(write_resumed(tmp_path, text)) == {}


def test_a_first_attempt_has_no_resume_points(tmp_path: Path) -> None:
    assert read_resume_points(tmp_path) == {}
