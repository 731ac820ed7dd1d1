import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit._sdk.resume_drill.runs import run
from trainyard._sdk.resume_drill import runs
from trainyard._sdk.resume_drill.jobs import DrillJob
from trainyard._sdk.resume_drill.runs import FORCED_SHARE, InterruptionPoint, run_interrupted, run_whole

DRILL_JOB = DrillJob("bucket", "mnist-drill")


def test_a_run_tells_its_attempts_apart() -> None:
    found = run(["a", "b"], ["b", "c"], seconds=4.0)
    assert (found.lines_before, found.lines_last, found.interruptions) == (["a", "b"], ["b", "c"], 1)
    assert (found.trained.total_seconds(), found.trained_last.total_seconds()) == (8.0, 4.0)


def test_the_point_is_a_share_of_the_lines_and_needs_a_checkpoint() -> None:
    point = InterruptionPoint.in_run(run([f"line {number}" for number in range(100)]), 0.5)
    assert not point.is_reached(lines=49, trained_s=99, has_checkpoint=True)
    assert point.is_reached(lines=50, trained_s=0, has_checkpoint=True)
    assert not point.is_reached(lines=50, trained_s=0, has_checkpoint=False)
    assert point.is_reached(lines=int(100 * FORCED_SHARE), trained_s=0, has_checkpoint=False)


def test_the_point_in_a_silent_run_is_a_share_of_its_time() -> None:
    point = InterruptionPoint.in_run(run(["only one"], seconds=10.0), 0.5)
    assert not point.is_reached(lines=1, trained_s=4.9, has_checkpoint=True)
    assert point.is_reached(lines=1, trained_s=5.0, has_checkpoint=True)


class Yard:
    """Simulates a job that prints ten lines and, after an interruption, ten more."""

    def __init__(self, *, breaks: bool = False, waits: bool = True) -> None:
        self.asked: list[str] = []
        self.interrupted = threading.Event()
        self.breaks, self.waits = breaks, waits

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        self.asked.append(operation)
        if operation == "InterruptJob":
            self.interrupted.set()
        if operation == "ListObjectsV2":
            assert params["Prefix"] == "trainyard-drills/mnist-drill/checkpoints/"
            return {"Contents": [{"Key": "state.pt"}]}
        if operation == "DescribeJob":
            return {"Attempts": [{"Number": number} for number in range(1, 3 if self.interrupted.is_set() else 2)]}
        steps = ["Training", *(["Interrupted", "Training"] if self.interrupted.is_set() else [])]
        return {
            "TrainingJobName": "mnist-drill",
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": steps[-1],
            "SecondaryStatusTransitions": [{"Status": step} for step in steps],
        }

    @contextlib.contextmanager
    def stream(self, service: str, operation: str, **params: Any) -> Iterator[Iterator[bytes]]:
        yield (json.dumps(line | {"cursor": "1"}).encode() for line in self.told())

    def told(self) -> Iterator[dict[str, Any]]:
        if self.breaks:
            raise OSError("the cable is out")
        yield from self.lines(1)
        if self.waits and self.interrupted.wait(timeout=30):
            yield from self.lines(2)
        yield {"kind": "ended", "status": "Completed"}

    def lines(self, attempt: int) -> Iterator[dict[str, Any]]:
        for number in range(10):
            yield {"kind": "log", "instance": "algo-1", "attempt": attempt, "at_ms": 1, "text": f"line {number}"}
        yield {"kind": "log", "instance": "algo-1", "attempt": attempt, "at_ms": 1, "text": "[trainyard] a remark"}


def test_a_run_is_interrupted_once_and_what_it_saved_is_counted() -> None:
    yard = Yard()
    found = run_interrupted(yard, {"TrainingJobName": "mnist-drill"}, DRILL_JOB, point=InterruptionPoint(0.5, 10, 1.0))
    assert yard.asked.count("InterruptJob") == 1
    assert (found.interruptions, found.checkpoint_files) == (1, 1)
    assert found.lines == {1: [f"line {number}" for number in range(10)], 2: [f"line {number}" for number in range(10)]}


def test_a_run_that_nobody_interrupts_is_followed_to_its_end() -> None:
    yard = Yard(waits=False)
    found = run_whole(yard, {"TrainingJobName": "mnist-drill"})
    assert (found.interruptions, len(found.lines_last)) == (0, 10)
    assert yard.asked[0] == "CreateTrainingJob"


def test_a_run_that_cannot_be_followed_raises_why() -> None:
    with pytest.raises(OSError, match="the cable is out"):
        run_whole(Yard(breaks=True), {"TrainingJobName": "mnist-drill"})


def test_a_drill_that_stops_waiting_stops_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()

    def give_up(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "_wait_for_point", give_up)
    with pytest.raises(KeyboardInterrupt):
        run_interrupted(yard, {"TrainingJobName": "mnist-drill"}, DRILL_JOB, point=InterruptionPoint(0.5, 10, 1.0))
    assert "StopTrainingJob" in yard.asked
    yard.interrupted.set()
