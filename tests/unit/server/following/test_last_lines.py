"""Following that begins with the last lines."""

import json
from pathlib import Path

import pytest

from tests.unit.foundation.jobs import placed
from trainyard.formats.logs import LogWriter
from trainyard.server.following.reading import Story, place_before_last, read_on
from trainyard.server.records.contract import ResourceId

JOB_ID = ResourceId("01a1de21-3cef-7045-bd4d-450d958cea5f")


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Two instances of which the first wrote three whole lines and began a fourth, and the second wrote nothing."""
    story = Story(JOB_ID, placed(instances=2), tmp_path)
    with LogWriter(tmp_path / JOB_ID / "1" / "algo-1" / "logs") as writer:
        for number, text in enumerate((b"one\n", b"two\nthree\n", b"fo")):
            writer.append(text, number)
    return story


def told(story: Story, count: int) -> list[str]:
    lines = read_on(story, place_before_last(story, count), with_logs=True).lines.splitlines()
    return [event["text"] for event in map(json.loads, lines) if event["kind"] == "log"]


@pytest.mark.parametrize(
    ("count", "texts"), [(0, []), (1, ["three"]), (2, ["two", "three"]), (9, ["one", "two", "three"])]
)
def test_only_the_last_lines_are_told(story: Story, count: int, texts: list[str]) -> None:
    assert told(story, count) == texts


def test_statuses_are_told_from_the_first_on(story: Story) -> None:
    lines = read_on(story, place_before_last(story, 0), with_logs=True).lines.splitlines()
    statuses = [event["secondary"] for event in map(json.loads, lines) if event["kind"] == "status"]
    assert statuses == [step.status for step in story.job.transitions]
