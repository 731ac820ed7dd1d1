"""A judge beside the program, on the folders that its workers write."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from trainyard.formats.tensors.contract import Kind, Mode, Statistic, Step, TensorInfo, TensorTable
from trainyard.formats.tensors.recordings.layout import ENDED
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.rules.contract import DebuggerRule, Evaluation, Finding, Need, Parameter
from trainyard.insight.rules.evaluation import RuleEvaluator
from trainyard.instance.rule_evaluation.folders import JoinedFolders
from trainyard.instance.rule_evaluation.main import evaluate_recording, steps_of, write_files

TABLE = TensorTable((TensorInfo("loss", Kind.LOSS, (), "float32", ("losses",)),))


class Seeing(DebuggerRule):
    """Remembers all that it is shown, and finds nothing."""

    name: ClassVar[str] = "Seeing"
    parameters: ClassVar[tuple[Parameter, ...]] = ()

    def __init__(self) -> None:
        self.seen: list[tuple[int, str]] = []
        self.idled: list[float] = []

    @property
    def needs(self) -> Need:
        return Need(collections=("losses",), is_of_all_workers=True)

    def check(self, step: Step) -> Iterable[Finding]:
        self.seen.append((step.number, step.worker))
        return ()

    def idle(self, seconds: float) -> Iterable[Finding]:
        self.idled.append(seconds)
        return ()


def write(folder: Path, worker: str, steps: range, *, closes: bool = True) -> TrialWriter:
    writer = TrialWriter(folder, worker=worker, workers=2)
    for number in steps:
        append(writer, worker, number)
    writer.flush()
    if closes:
        writer.close()
    return writer


def append(writer: TrialWriter, worker: str, number: int) -> None:
    statistics = np.zeros((1, len(Statistic)), np.float32)
    scalars, nothing = np.array([1.0]), np.empty(0, np.float32)
    writer.append(Step(number, Mode.TRAIN, number, number, worker, TABLE, statistics, nothing, scalars))


def test_the_steps_of_all_instances_are_judged_in_their_order(tmp_path: Path) -> None:
    write(tmp_path / "algo-1", "worker_0", range(5))
    write(tmp_path / "algo-2", "worker_1", range(5))
    rule = Seeing()
    judge = RuleEvaluator({"seeing": rule})
    evaluate_recording(JoinedFolders([tmp_path / "algo-1", tmp_path / "algo-2"]), judge, pause=lambda _: None)
    assert rule.seen == [(number, f"worker_{rank}") for number in range(5) for rank in range(2)]
    (evaluation,) = judge.evaluations
    assert (evaluation.status, evaluation.steps_judged) == (RuleStatus.NO_ISSUES_FOUND, 10)


def test_steps_are_judged_as_they_come_until_the_agent_says_that_the_program_has_ended(tmp_path: Path) -> None:
    writer = write(tmp_path, "worker_0", range(3), closes=False)
    rule = Seeing()
    judge = RuleEvaluator({"seeing": rule})
    clock = iter(range(10_000))
    pauses: list[float] = []
    progress: list[int] = []

    def pause(seconds: float) -> None:
        """While the judge waits, the training goes on; then it is killed, and the agent marks its end."""
        pauses.append(seconds)
        if len(pauses) == 1:
            assert len(rule.seen) == 3
            append(writer, "worker_0", 3)
            writer.flush()
        elif len(pauses) == 5:
            (tmp_path / ENDED).write_text(json.dumps({"at_us": 2**60}))

    evaluate_recording(
        JoinedFolders([tmp_path]),
        judge,
        on_progress=lambda: progress.append(judge.evaluations[0].steps_judged),
        pause=pause,
        monotonic=lambda: float(next(clock)),
    )
    assert progress == [3, 4]
    assert [number for number, _ in rule.seen] == [0, 1, 2, 3]
    assert rule.idled
    assert min(rule.idled) >= 1.0


def test_a_program_that_recorded_nothing_leaves_nothing_to_evaluate(tmp_path: Path) -> None:
    (tmp_path / ENDED).write_text(json.dumps({"at_us": 1}))
    news: list[Evaluation] = []
    judge = RuleEvaluator({"seeing": Seeing()}, on_change=lambda evaluation, _: news.append(evaluation))
    evaluate_recording(JoinedFolders([tmp_path]), judge, pause=lambda _: None)
    assert [evaluation.status for evaluation in news] == [RuleStatus.NO_ISSUES_FOUND]


def test_steps_of_another_run_are_found_by_worker_and_number(tmp_path: Path) -> None:
    write(tmp_path, "worker_0", range(2, 5))
    step_of = steps_of(tmp_path)
    found = step_of("worker_0", 3)
    assert found is not None
    assert (found.number, found.worker) == (3, "worker_0")
    assert step_of("worker_0", 1) is step_of("worker_0", 9) is step_of("worker_1", 3) is None


def test_each_rule_has_its_own_output_folder_whatever_its_name(tmp_path: Path) -> None:
    class Writing(Seeing):
        def files(self) -> Mapping[str, str]:
            return {"report.html": "<p>fine</p>"}

    class Broken(Seeing):
        def files(self) -> Mapping[str, str]:
            raise ValueError

    write_files({"broken": Broken(), "../up": Writing(), "mine": Writing(), "none": Seeing()}, tmp_path / "out")
    assert (tmp_path / "out" / "mine" / "report.html").read_text() == "<p>fine</p>"
    assert (tmp_path / "out" / "..%2Fup" / "report.html").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
