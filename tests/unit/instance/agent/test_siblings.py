"""What an instance knows about the others."""

import json
import os
from pathlib import Path

import pytest

from tests.unit.instance.agent.samples import changed
from trainyard.foundation.home import process_start
from trainyard.instance.agent.commands import StopRequested
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.siblings import Siblings, SiblingState
from trainyard.instance.sandbox.contract import ProgramExit
from trainyard.link.contract import Frame
from trainyard.link.folders import InstanceFolder
from trainyard.link.spool import SpoolWriter, last_frame


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    for name in ("algo-1", "algo-2", "algo-3"):
        (tmp_path / name).mkdir()
    return tmp_path


def siblings_of(attempt: Path, name: str = "algo-1") -> Siblings:
    spec = changed(instance=name, hosts=("algo-1", "algo-2", "algo-3"))
    return Siblings(InstanceFolder(attempt / name), spec)


def announce(attempt: Path, name: str, *, is_alive: bool) -> None:
    started = process_start(os.getpid()) if is_alive else "another boot:1"
    InstanceFolder(attempt / name).agent.write_text(json.dumps({"pid": os.getpid(), "started": started}))


def report(attempt: Path, name: str, outcome: str = "", reason: str = "") -> None:
    with SpoolWriter(InstanceFolder(attempt / name).spool) as spool:
        reports = Reports(spool)
        reports.report_exit(ProgramExit(code=0, signal=None))
        if outcome:
            reports.report_end(outcome, reason, card=None)


def give_up() -> None:
    raise StopRequested


def test_an_instance_alone_has_none(attempt: Path) -> None:
    alone = Siblings(InstanceFolder(attempt / "algo-1"), changed())
    assert not alone
    assert alone.wait(give_up) == {}


def test_all_are_waited_for_and_each_has_ended_in_its_way(attempt: Path) -> None:
    report(attempt, "algo-2", "stopped")
    report(attempt, "algo-3", "failed")
    assert siblings_of(attempt).wait(give_up) == {"algo-2": SiblingState.ENDED_WELL, "algo-3": SiblingState.FAILED}


def test_one_that_was_interrupted_did_not_end_well(attempt: Path) -> None:
    report(attempt, "algo-2", "stopped", "interrupted")
    report(attempt, "algo-3", "stopped", "user")
    assert siblings_of(attempt).wait(give_up) == {"algo-2": SiblingState.INTERRUPTED, "algo-3": SiblingState.ENDED_WELL}


def test_an_instance_that_died_without_a_last_report_is_lost_and_not_waited_for(attempt: Path) -> None:
    report(attempt, "algo-2", "completed")
    report(attempt, "algo-3")
    announce(attempt, "algo-3", is_alive=False)
    assert siblings_of(attempt).wait(give_up) == {"algo-2": SiblingState.ENDED_WELL, "algo-3": SiblingState.LOST}


def test_one_that_reported_and_went_is_not_lost(attempt: Path) -> None:
    for name in ("algo-2", "algo-3"):
        report(attempt, name, "completed")
        announce(attempt, name, is_alive=False)
    assert set(siblings_of(attempt).wait(give_up).values()) == {SiblingState.ENDED_WELL}


@pytest.mark.parametrize("is_born", [True, False])
def test_a_running_instance_is_waited_for_until_the_wait_is_cancelled(attempt: Path, is_born: bool) -> None:
    report(attempt, "algo-2", "completed")
    if is_born:
        announce(attempt, "algo-3", is_alive=True)
    with pytest.raises(StopRequested):
        siblings_of(attempt).wait(give_up)


def test_the_wait_continues_until_the_last_has_ended(attempt: Path) -> None:
    announce(attempt, "algo-3", is_alive=True)
    report(attempt, "algo-2", "completed")
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            report(attempt, "algo-3", "completed")

    assert set(siblings_of(attempt).wait(look).values()) == {SiblingState.ENDED_WELL}
    assert len(looks) == 2


def test_those_whose_programs_have_ended_are_at_rest(attempt: Path) -> None:
    report(attempt, "algo-1")
    with SpoolWriter(InstanceFolder(attempt / "algo-3").spool) as spool:
        Reports(spool).report_status("Training", "Training")
    siblings = siblings_of(attempt, "algo-2")
    assert siblings.exited_hosts() == ["algo-1"]
    assert siblings["algo-1"].root == attempt / "algo-1"


def test_one_that_ends_while_it_is_looked_at_is_not_lost(attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(attempt, "algo-2", is_alive=True)
    report(attempt, "algo-3", "completed")

    def end_after_reading(spool: Path) -> Frame | None:
        frame = last_frame(spool)
        if frame is None:
            report(attempt, "algo-2", "completed")
            announce(attempt, "algo-2", is_alive=False)
        return frame

    monkeypatch.setattr("trainyard.instance.agent.siblings.last_frame", end_after_reading)
    assert siblings_of(attempt).wait(lambda: None) == {
        "algo-2": SiblingState.ENDED_WELL,
        "algo-3": SiblingState.ENDED_WELL,
    }
