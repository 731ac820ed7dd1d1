"""Evaluations of profiles under faults: the yard and its evaluation process are killed at any moment."""

import json
import os
import random
import signal
import time
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.system.test_profiler import Yards, rule, statuses
from tests.system.trainees import Trainee
from trainyard.server.jobs.profile_evaluations import KIND as EVALUATION
from trainyard.server.jobs.profiled_runs import KIND as RUN
from trainyard.server.jobs.rule_actions import KIND as ACTION
from trainyard.server.jobs.rule_actions import action_of
from trainyard.server.records.contract import Query
from trainyard.server.records.sql import open_records
from trainyard.testing.eventually import eventually

pytestmark = pytest.mark.slow

JOBS, KILLS = 4, 12
PROGRAM = "import time\nprint('begun', flush=True)\ntime.sleep({seconds})\n"
STOP = json.dumps([{"name": "stoptraining"}])


def test_every_job_is_evaluated_to_its_end_and_every_action_is_requested_once(tmp_path: Path) -> None:
    """No steps are known of these programs, so that one rule always finds something, and another one never does."""
    dice = random.Random(23)
    home = tmp_path / "yard"
    with closing(Yards(home)) as yards:
        anna = Trainee(yards.administrator.add_user("anna")).prepare()
        rules = [
            rule("report", "ProfilerReport", MaxInitializationTime_threshold="0.001"),
            rule("late", "MaxInitializationTime", threshold="0.001", action_json=STOP),
            rule("gpus", "LowGPUUtilization"),
        ]
        for number in range(JOBS):
            anna.start(f"job-{number}", PROGRAM.format(seconds=3 + 4 * number), ProfilerRuleConfigurations=rules)
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.2, 4.0))
            if dice.random() < 0.4:
                _kill_evaluation(yards.pid)
            else:
                yards.restart()
        for number in range(JOBS):
            eventually(partial(_are_settled, anna, f"job-{number}"), within=timedelta(seconds=180))
            prefix = f"out/job-{number}/rule-output/report/profiler-output"
            assert f"{prefix}/profiler-report.html" in anna.keys(prefix)
    records = open_records(f"sqlite:///{home}/records.sqlite")
    with closing(records):
        assert records.find(Query(EVALUATION)).resources == []
        actions = [action_of(each) for each in records.find(Query(ACTION)).resources]
        assert sorted(each.job for each in actions) == [f"job-{number}" for number in range(JOBS)]
        assert len(records.find(Query(RUN)).resources) <= JOBS


def _are_settled(trainee: Trainee, name: str) -> bool:
    return statuses(trainee, name) == {"report": "IssuesFound", "late": "IssuesFound", "gpus": "NoIssuesFound"}


def _kill_evaluation(yard: int) -> None:
    """Kill the evaluation process of a yard, if it runs."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if b"evaluation_process" in (folder / "cmdline").read_bytes() and _parent(folder) == yard:
                os.kill(int(folder.name), signal.SIGKILL)


def _parent(folder: Path) -> int:
    return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
