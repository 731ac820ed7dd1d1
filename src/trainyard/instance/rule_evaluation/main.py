"""The rule evaluation process: follows the tensors that workers write, and reports findings to the agent."""

import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from trainyard.formats.tensors.contract import Step
from trainyard.formats.tensors.recordings.arrow_recording import ArrowRecording
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.foundation.sources import FolderSource
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import ComparesRuns, DebuggerRule, Evaluation, StepsOf, WritesFiles
from trainyard.insight.rules.evaluation import RuleEvaluator
from trainyard.instance.rule_evaluation.custom import CustomRule, evaluate_trial, last_line, load_rule
from trainyard.instance.rule_evaluation.event_client import EventClient
from trainyard.instance.rule_evaluation.folders import JoinedFolders
from trainyard.instance.rule_evaluation.rules_config import read_rules
from trainyard.link.contract import RuleSpec

# The worker's name in the events of this process.
WORKER = "judge"

_PAUSE_S = 0.1
# After this time without a step, rules learn that the training is idle.
_IDLE_S = 1.0
# Between two reports of how many steps were evaluated.
_PROGRESS_INTERVAL_S = 1.0
_FLUSH_S = 5.0


def evaluate_rules(orders: Mapping[str, Any]) -> None:
    """Evaluate the rules of the orders until the program has ended and all its steps are evaluated; then exit."""
    client = EventClient(orders["ml"])
    rules = [rule for rule in read_rules(orders["ml"]) if rule.name in orders["rules"]]
    source = JoinedFolders([Path(folder) for folder in orders["folders"]])
    custom = {name: Path(file) for name, file in orders["files"].items()}
    for rule in rules:
        client.send_rule(Evaluation(rule.name, RuleStatus.IN_PROGRESS), None, worker=WORKER)
    made: dict[str, DebuggerRule] = {}
    for rule in rules:
        try:
            built = _make_rule(rule, custom)
            if isinstance(built, CustomRule):
                evaluate_trial(built, source, runs=orders["runs"], client=client, worker=WORKER)
                continue
            if isinstance(built, ComparesRuns):
                built.compare_with({uri: steps_of(Path(folder)) for uri, folder in orders["runs"].items()})
            made[rule.name] = built
        except Exception as error:
            traceback.print_exc()
            client.send_rule(Evaluation(rule.name, RuleStatus.ERROR, last_line(error)), None, worker=WORKER)
    if made:
        evaluator = RuleEvaluator(made, on_change=lambda *change: client.send_rule(*change, worker=WORKER))

        def report_progress() -> None:
            for evaluation in evaluator.evaluations:
                client.send_rule(evaluation, None, worker=WORKER)

        evaluate_recording(source, evaluator, on_progress=report_progress)
        # Once more, with the final numbers of steps.
        report_progress()
        write_files(made, Path(orders["output"]))
    client.flush(_FLUSH_S)
    sys.exit(0)


def evaluate_recording(
    source: JoinedFolders,
    evaluator: RuleEvaluator,
    *,
    on_progress: Callable[[], None] = lambda: None,
    pause: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Evaluate every step as it arrives, in the order of steps, until the recording has ended.

    `on_progress` is called now and then while steps arrive.
    """
    recording = ArrowRecording(source)
    done: dict[str, int] = {}
    dropped = 0
    last_step_at = monotonic()
    progress_at = last_step_at
    while True:
        recording.refresh()
        has_new = _evaluate_new_steps(recording, evaluator, done)
        lost = sum(state.dropped for state in recording.states.values())
        evaluator.drop(max(0, lost - dropped))
        dropped = max(lost, dropped)
        if recording.has_ended and not has_new:
            evaluator.end()
            return
        if has_new:
            last_step_at = monotonic()
            if last_step_at - progress_at >= _PROGRESS_INTERVAL_S:
                progress_at = last_step_at
                on_progress()
            continue
        if monotonic() - last_step_at >= _IDLE_S:
            evaluator.idle(monotonic() - last_step_at)
        pause(_PAUSE_S)


def steps_of(folder: Path) -> StepsOf:
    """Return a function that looks up a step of another run by its worker and number."""
    recording = ArrowRecording(FolderSource(folder))
    recording.refresh(is_thorough=True)

    def step_of(worker: str, number: int) -> Step | None:
        recorded = recording.workers.get(worker)
        if recorded is None:
            return None
        row = int(np.searchsorted(recorded.index.numbers, number))
        exists = row < len(recorded.index) and int(recorded.index.numbers[row]) == number
        return recorded.step(row) if exists else None

    return step_of


def write_files(rules: Mapping[str, DebuggerRule], folder: Path) -> None:
    """Write the files of each rule to its own folder. A failure of one rule does not affect the others."""
    for name, rule in rules.items():
        if not isinstance(rule, WritesFiles):
            continue
        target = folder / quote(name, safe=" ")
        try:
            target.mkdir(parents=True, exist_ok=True)
            for file, text in rule.files().items():
                (target / file).write_text(text)
        except Exception:
            traceback.print_exc()


def _evaluate_new_steps(recording: ArrowRecording, evaluator: RuleEvaluator, done: dict[str, int]) -> bool:
    new = []
    for name, worker in recording.workers.items():
        # The index is shorter than before if the training went back to a checkpoint.
        first = min(done.get(name, 0), len(worker.index))
        new += [(int(worker.index.numbers[row]), name, row) for row in range(first, len(worker.index))]
        done[name] = len(worker.index)
    for _, name, row in sorted(new):
        evaluator.take(recording.workers[name].step(row))
    return bool(new)


def _make_rule(rule: RuleSpec, custom: Mapping[str, Path]) -> DebuggerRule | CustomRule:
    if rule.name in custom:
        return load_rule(rule, custom[rule.name])
    return make_rule(rule.rule, rule.parameters)
