import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi
from trainyard.cli.debugger import rules as module
from trainyard.cli.debugger import tensors as tensors_module
from trainyard.formats.tensors.contract import Kind, Mode, Step, TensorInfo, TensorTable
from trainyard.formats.tensors.recordings.trial_writer import TrialWriter
from trainyard.trial import Series, Trial, create_trial

TABLE = TensorTable(
    (
        TensorInfo("gradient/Net_fc.weight", Kind.GRADIENT, (4,), "float32", ("gradients",)),
        TensorInfo("Loss_output_0", Kind.LOSS, (), "float32", ("losses",)),
    )
)
DESCRIBED = {
    "TrainingJobName": "mnist",
    "DebugHookConfig": {"S3OutputPath": "s3://bucket/debug"},
    "DebugRuleConfigurations": [
        {
            "RuleConfigurationName": "Vanishing",
            "RuleEvaluatorImage": "sagemaker-debugger-rules",
            "RuleParameters": {"rule_to_invoke": "VanishingGradient", "action_json": "[]"},
        }
    ],
}
FOUND = {
    "Name": "VanishingGradient",
    "Rule": "VanishingGradient",
    "Status": "IssuesFound",
    "StepsJudged": 8,
    "StepsDropped": 2,
    "Findings": [{"Message": "It vanishes.", "Step": 7, "Mode": "TRAIN", "Worker": "worker_0"}],
    "Actions": [{"Name": "email", "Endpoint": "a@b.de", "Status": "Done", "Tries": 3, "Told": "250 fine"}],
}


def write_trial(folder: Path, *, gradients: list[float]) -> Path:
    writer = TrialWriter(folder, worker="worker_0", workers=1)
    writer.begin(TABLE)
    for number, mean in enumerate(gradients):
        rows = np.array(
            [[mean, 0, abs(mean), mean, mean, 0, 0, 0], [1.0 / (number + 1), 0, 1, 1, 1, 0, 0, 0]], np.float32
        )
        writer.append(
            Step(
                number,
                Mode.TRAIN,
                number,
                number,
                "worker_0",
                TABLE,
                rows,
                np.empty(0, np.float32),
                rows[1:, 0].astype(float),
            )
        )
    writer.close()
    return folder


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    given: dict[str, Any] = {"DescribeTrainingJob": DESCRIBED, "DescribeJob": {"Rules": [FOUND]}}

    @contextlib.contextmanager
    def calls(_: Path | None) -> Iterator[RecordingApi]:
        yield RecordingApi(**given)

    monkeypatch.setattr(module, "open_api", calls)
    monkeypatch.setattr(tensors_module, "open_api", calls)
    return given


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The folders of the trials that commands open, in order."""
    folders: list[Path] = []

    def trial_of(_: object, __: object) -> Trial:
        return create_trial(folders.pop(0))

    monkeypatch.setattr(module, "trial_of", trial_of)
    monkeypatch.setattr(tensors_module, "trial_of", trial_of)
    return folders


def test_all_rules_are_listed_with_their_parameters(trainyard: Trainyard) -> None:
    said = trainyard("rules")
    assert said.code == 0
    assert "VanishingGradient: " in said.out
    assert "threshold                    1e-07" in said.out
    listed = json.loads(trainyard("rules", "--json").out)["Rules"]
    assert "VanishingGradient" in [rule["Name"] for rule in listed]


def test_the_rules_of_a_job_are_shown_with_what_they_found_and_what_was_done(
    trainyard: Trainyard, answers: dict[str, Any]
) -> None:
    said = trainyard("rules", "mnist")
    assert said.out.splitlines() == [
        "VanishingGradient  IssuesFound    8 steps evaluated, 2 dropped",
        "  step 7, TRAIN, worker_0: It vanishes.",
        "  email a@b.de is Done after 3 tries: 250 fine",
    ]
    assert said.code == 1
    assert trainyard("rules", "show", "mnist").out == said.out


def test_a_job_without_rules_says_so(trainyard: Trainyard, answers: dict[str, Any]) -> None:
    answers["DescribeJob"] = {"Rules": []}
    said = trainyard("rules", "mnist")
    assert (said.code, said.err) == (0, "mnist has no rules.\n")


def test_a_run_is_judged_again_by_its_own_rules_and_by_others(
    trainyard: Trainyard, answers: dict[str, Any], trials: list[Path], tmp_path: Path
) -> None:
    folder = write_trial(tmp_path / "trial", gradients=[1.0, 1e-3, 1e-9])
    trials += [folder] * 3
    said = trainyard("rules", "replay", "mnist")
    assert said.code == 1
    assert said.out.startswith("Vanishing  IssuesFound    3 steps evaluated\n  step 2, TRAIN, worker_0: ")
    tolerant = trainyard("rules", "replay", "mnist", "--parameter", "threshold=1e-12")
    assert (tolerant.code, "NoIssuesFound" in tolerant.out) == (0, True)
    exploded = trainyard(
        "rules", "replay", "mnist", "--rule", "ExplodingTensor", "--parameter", "tensor_regex=.*", "--json"
    )
    assert json.loads(exploded.out)["Rules"][0]["Name"] == "ExplodingTensor"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rule", "Vanishing"), "VanishingGradient"),
        (("--parameter", "threshold"), "write it like threshold=1e-6"),
        (("--parameter", "limit=1"), 'has no parameter "limit"'),
    ],
)
def test_a_rule_that_cannot_be_is_refused(
    trainyard: Trainyard,
    answers: dict[str, Any],
    trials: list[Path],
    tmp_path: Path,
    words: tuple[str, ...],
    message: str,
) -> None:
    trials.append(write_trial(tmp_path / "trial", gradients=[1.0]))
    said = trainyard("rules", "replay", "mnist", *words)
    assert said.code == 1
    assert message in said.err


def test_a_job_that_captured_nothing_cannot_be_judged_again(trainyard: Trainyard, answers: dict[str, Any]) -> None:
    answers["DescribeTrainingJob"] = {"TrainingJobName": "mnist"}
    said = trainyard("rules", "replay", "mnist", "--rule", "Overfit")
    assert said.code == 4
    assert "mnist captured no tensors" in said.err


def test_tensors_are_listed_and_drawn(
    trainyard: Trainyard, answers: dict[str, Any], trials: list[Path], tmp_path: Path
) -> None:
    trials += [write_trial(tmp_path / "trial", gradients=[4.0, 2.0])] * 3
    listed = trainyard("tensors", "mnist")
    assert listed.out.splitlines() == [
        "tensor                  kind      shape   collections",
        "gradient/Net_fc.weight  gradient  4       gradients",
        "Loss_output_0           loss      scalar  losses",
    ]
    assert "2 tensors, 2 steps up to 1, 1 worker" in listed.err
    drawn = trainyard("tensors", "mnist", "fc.weight")
    assert drawn.out.splitlines()[0] == "mean_abs of gradient/Net_fc.weight at 2 steps"
    assert drawn.out.splitlines()[-1] == "lowest 2, highest 4"
    told = json.loads(trainyard("tensors", "mnist", "Loss_output_0", "--json").out)
    assert (told["Steps"], told["Values"]) == ([0, 1], [1.0, 0.5])


def test_a_part_of_several_names_is_refused(
    trainyard: Trainyard, answers: dict[str, Any], trials: list[Path], tmp_path: Path
) -> None:
    trials += [write_trial(tmp_path / "trial", gradients=[4.0])] * 2
    assert trainyard("tensors", "mnist", "t").code == 2
    assert trainyard("tensors", "mnist", "bias").code == 4


def test_two_runs_are_compared(
    trainyard: Trainyard, answers: dict[str, Any], trials: list[Path], tmp_path: Path
) -> None:
    first = write_trial(tmp_path / "a", gradients=[4.0, 2.0, 1.0])
    second = write_trial(tmp_path / "b", gradients=[4.0, 2.5, 1.0])
    trials += [first, second, first, first]
    differ = trainyard("tensors", "compare", "a", "b")
    assert differ.code == 1
    assert differ.out.startswith("The runs differ first in step 1 (TRAIN 1), worker_0: mean of gradient/Net_fc.weight")
    same = trainyard("tensors", "compare", "a", "a")
    assert (same.code, same.out) == (0, "The runs are the same in the 3 steps and 2 tensors that both have.\n")


def test_statistics_are_written_for_other_tools(
    trainyard: Trainyard, answers: dict[str, Any], trials: list[Path], tmp_path: Path
) -> None:
    trials.append(write_trial(tmp_path / "trial", gradients=[4.0, 2.0]))
    target = tmp_path / "all.csv"
    said = trainyard("tensors", "export", "mnist", str(target), "--regex", "gradient")
    assert said.err == f"Wrote 2 rows to {target}.\n"
    assert target.read_text().splitlines()[:2] == [
        "step,mode,mode_step,at_us,worker,tensor,mean,std,mean_abs,min,max,zeros,nans,infs",
        "0,TRAIN,0,0,worker_0,gradient/Net_fc.weight,4.0,0.0,4.0,4.0,4.0,0.0,0.0,0.0",
    ]
    assert trainyard("tensors", "export", "mnist", "all.xls").code == 2
    assert '"(" is not a regular expression' in trainyard("tensors", "show", "mnist", "--regex", "(").err


def test_a_long_series_is_drawn_in_twenty_lines_and_what_is_not_finite_is_counted() -> None:
    series = Series(np.arange(1000), np.append(np.linspace(0, 1, 999), np.nan))
    lines = list(tensors_module.chart_lines(series, filled="#"))
    assert len(lines) == 21
    assert lines[0].split() == ["0", "0"]
    assert lines[-1] == "lowest 0, highest 1, 1 not finite"
