import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.server.control.bench import Bench
from tests.unit.server.services.accounts import NOON
from tests.unit.server.services.sagemaker.rules import actions, judged, rule
from trainyard.foundation.jobs.status import Status
from trainyard.link.contract import FrameKind
from trainyard.server.control.actions.kind import RuleActionKind
from trainyard.server.gateways import Gateways
from trainyard.server.jobs.rule_actions import KIND, ActionStatus, RuleAction, action_of
from trainyard.server.records.contract import Query

STUDENTS = {"name": "stoptraining", "training_job_prefix": "student-"}


def work_of(bench: Bench, gateways: Gateways | None = None) -> RuleActionKind:
    yard = bench.anna.yard
    return RuleActionKind(yard.records, gateways or Gateways(), bench.watch, worker="w", wake=lambda _: None)


def fire(bench: Bench, action: dict[str, str]) -> None:
    """Have a rule of a job find something, with this action."""
    claim = bench.start(**judged(rule(action_json=actions(action))))
    told = {"details": "It vanishes.", "finding": None, "judged": 1, "dropped": 0}
    bench.agent().report(FrameKind.RULE, rule="VanishingGradient", status="IssuesFound", **told)
    held = bench.turn(claim)
    assert held is not None
    bench.work.release(held)


def only(bench: Bench) -> tuple[str, RuleAction]:
    (found,) = bench.work.records.find(Query(KIND)).resources
    return found.status, action_of(found)


def act(work: RuleActionKind) -> ActionStatus:
    claim = work.claim()
    assert claim is not None, "nothing is due"
    return work.act(claim)


def with_gateways(bench: Bench, gateways: Gateways) -> Bench:
    """The same bench, whose user's calls find these gateways."""
    yard = replace(bench.anna.yard, compute=replace(bench.anna.yard.compute, gateways=gateways))
    return replace(bench, anna=replace(bench.anna, yard=yard))


def test_another_job_is_stopped_if_only_it_begins_so(bench: Bench) -> None:
    fire(bench, STUDENTS)
    bench.create("student-1")
    assert act(work_of(bench)) is ActionStatus.DONE
    assert bench.job("student-1").status is Status.STOPPED
    assert bench.job("student-1").transitions[-1].message.startswith("Rule VanishingGradient of mnist stops")
    assert only(bench)[1].told == "student-1 was asked to stop."


@pytest.mark.parametrize("students", [0, 2])
def test_no_job_is_stopped_unless_exactly_one_begins_so(bench: Bench, students: int) -> None:
    fire(bench, STUDENTS)
    for number in range(students):
        bench.create(f"student-{number}")
    assert act(work_of(bench)) is ActionStatus.FAILED
    assert only(bench)[1].told.endswith("none was stopped.")
    assert all(bench.job(f"student-{number}").status is Status.IN_PROGRESS for number in range(students))


def test_a_failed_action_is_retried_at_growing_intervals_until_its_limit(bench: Bench) -> None:
    gateways = Gateways(commands={"page": ("/bin/false",)}, patience=timedelta(seconds=6))
    fire(with_gateways(bench, gateways), {"name": "command", "endpoint": "page"})
    work, tried_at = work_of(bench, gateways), []
    for _ in range(60):
        claim = work.claim()
        if claim is not None:
            tried_at.append((bench.watch() - NOON).total_seconds())
            work.act(claim)
        bench.watch.forward(1)
    assert tried_at == [0, 1, 3, 7]
    status, action = only(bench)
    assert (status, action.tries, action.told) == ("Failed", 4, "/bin/false ended with 1: ")
    told = [each.body["status"] for each in bench.work.records.events() if each.kind == "training-job.action"]
    assert told == ["Due", "Due", "Due", "Failed"]


def test_a_command_has_the_finding_on_its_input_and_nothing_of_the_yards_environment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_YARD", "1")
    script = "import json, os, sys; print(json.load(sys.stdin)['rule'], sorted(os.environ), sys.argv[1:])"
    gateways = Gateways(commands={"page": (sys.executable, "-I", "-c", script, "ml")})
    fire(with_gateways(bench, gateways), {"name": "command", "endpoint": "page"})
    assert act(work_of(bench, gateways)) is ActionStatus.DONE
    told = only(bench)[1].told
    assert "VanishingGradient" in told
    assert "'PATH', 'TRAINYARD_ACTION_KEY'" in told
    assert "SECRET_OF_THE_YARD" not in told
    assert told.endswith("['ml']")


def test_a_command_that_takes_too_long_is_killed_with_its_children(bench: Bench) -> None:
    gateways = Gateways(commands={"page": ("/bin/sh", "-c", "sleep 60 & sleep 60")}, timeout=timedelta(seconds=0.2))
    fire(with_gateways(bench, gateways), {"name": "command", "endpoint": "page"})
    assert act(work_of(bench, gateways)) is ActionStatus.DUE
    assert only(bench)[1].told == "/bin/sh took longer than 0.2 s."


def test_a_command_that_is_no_longer_listed_is_not_run(bench: Bench) -> None:
    fire(with_gateways(bench, Gateways(commands={"page": ("/bin/true",)})), {"name": "command", "endpoint": "page"})
    assert act(work_of(bench, Gateways())) is ActionStatus.FAILED


def test_an_action_whose_yard_was_killed_is_done_by_the_next(bench: Bench) -> None:
    gateways = Gateways(commands={"page": ("/bin/true",)})
    fire(with_gateways(bench, gateways), {"name": "command", "endpoint": "page"})
    assert work_of(bench, gateways).claim() is not None  # and is killed
    assert work_of(bench, gateways).claim() is None
    bench.watch.forward(60)
    assert act(work_of(bench, gateways)) is ActionStatus.DONE
