"""A judge beside the program: follows what its workers write, and tells the agent what the rules find in it."""

import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from trainyard.formats.tensors.arrow_recording import ArrowRecording
from trainyard.formats.tensors.contract import Step
from trainyard.foundation.sources import FolderSource
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import (
    ComparesRuns,
    DebuggerRule,
    Evaluation,
    RuleStatus,
    StepsOf,
    WritesFiles,
)
from trainyard.insight.rules.judging import Judge
from trainyard.instance.judge.custom import CustomRule, judge_trial, last_line, load_rule
from trainyard.instance.judge.folders import JoinedFolders
from trainyard.instance.judge.rules_config import read_rules
from trainyard.instance.judge.telling import Teller
from trainyard.link.contract import RuleSpec

WORKER = "judge"  # as whom it tells

_PAUSE_S = 0.1
_IDLE_S = 1.0  # without a step, from which on rules are told so
_FLUSH_S = 5.0


def judge(orders: Mapping[str, Any]) -> None:
    """Judge by the rules of the orders until the program has ended and all that it left is judged."""
    teller = Teller(orders["ml"])
    rules = [rule for rule in read_rules(orders["ml"]) if rule.name in orders["rules"]]
    source = JoinedFolders([Path(folder) for folder in orders["folders"]])
    custom = {name: Path(file) for name, file in orders["files"].items()}
    for rule in rules:
        teller.tell_rule(Evaluation(rule.name, RuleStatus.IN_PROGRESS), None, worker=WORKER)
    made: dict[str, DebuggerRule] = {}
    for rule in rules:
        try:
            found = _made(rule, custom)
            if isinstance(found, CustomRule):
                judge_trial(found, source, runs=orders["runs"], teller=teller, worker=WORKER)
                continue
            if isinstance(found, ComparesRuns):
                found.compare_with({uri: steps_of(Path(folder)) for uri, folder in orders["runs"].items()})
            made[rule.name] = found
        except Exception as error:
            traceback.print_exc()
            teller.tell_rule(Evaluation(rule.name, RuleStatus.ERROR, last_line(error)), None, worker=WORKER)
    if made:
        follow(source, Judge(made, on_change=lambda *news: teller.tell_rule(*news, worker=WORKER)))
        write_files(made, Path(orders["output"]))
    teller.flush(_FLUSH_S)
    sys.exit(0)


def follow(
    source: JoinedFolders,
    judging: Judge,
    *,
    pause: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Have every step judged as it comes, in the order of steps, until no more come."""
    recording = ArrowRecording(source)
    done: dict[str, int] = {}
    dropped = 0
    came_at = monotonic()
    while True:
        recording.refresh()
        has_come = _judge_new(recording, judging, done)
        lost = sum(state.dropped for state in recording.states.values())
        judging.drop(max(0, lost - dropped))
        dropped = max(lost, dropped)
        if recording.has_ended and not has_come:
            judging.end()
            return
        if has_come:
            came_at = monotonic()
            continue
        if monotonic() - came_at >= _IDLE_S:
            judging.idle(monotonic() - came_at)
        pause(_PAUSE_S)


def steps_of(folder: Path) -> StepsOf:
    """The steps of another run, by their workers and numbers."""
    recording = ArrowRecording(FolderSource(folder))
    recording.refresh(is_thorough=True)

    def step_of(worker: str, number: int) -> Step | None:
        found = recording.workers.get(worker)
        if found is None:
            return None
        row = int(np.searchsorted(found.index.numbers, number))
        is_there = row < len(found.index) and int(found.index.numbers[row]) == number
        return found.step(row) if is_there else None

    return step_of


def write_files(rules: Mapping[str, DebuggerRule], folder: Path) -> None:
    """Write what rules leave, each in a folder of its own; one that cannot hurts no other."""
    for name, rule in rules.items():
        if not isinstance(rule, WritesFiles):
            continue
        place = folder / quote(name, safe=" ")
        try:
            place.mkdir(parents=True, exist_ok=True)
            for file, text in rule.files().items():
                (place / file).write_text(text)
        except Exception:
            traceback.print_exc()


def _judge_new(recording: ArrowRecording, judging: Judge, done: dict[str, int]) -> bool:
    new = []
    for name, worker in recording.workers.items():
        first = min(done.get(name, 0), len(worker.index))  # fewer where a training went back to a checkpoint
        new += [(int(worker.index.numbers[row]), name, row) for row in range(first, len(worker.index))]
        done[name] = len(worker.index)
    for _, name, row in sorted(new):
        judging.take(recording.workers[name].step(row))
    return bool(new)


def _made(rule: RuleSpec, custom: Mapping[str, Path]) -> DebuggerRule | CustomRule:
    if rule.name in custom:
        return load_rule(rule, custom[rule.name])
    return make_rule(rule.rule, rule.parameters)
