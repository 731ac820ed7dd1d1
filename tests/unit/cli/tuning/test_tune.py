from datetime import timedelta
from typing import Any

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi
from tests.unit.tuning_answers import NOON, TRIALS, description, trial
from trainyard._sdk.tuning.job import TuningJobHandle
from trainyard.cli.run.script import estimator_of
from trainyard.cli.terminal.blocks import plain_lines
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.tuning.start import TuneOptions, start, tuner_of
from trainyard.cli.tuning.studies import find_study, study_blocks
from trainyard.cli.tuning.watch import watch_study
from trainyard.foundation.home import Home
from trainyard.session import Session
from trainyard.tuner import HyperparameterTuner, WarmStartTypes

USUAL = ("--range", "lr=0.1..0.5", "--objective", "loss", "--minimize")


def listing(*names: str) -> RecordingApi:
    found = [{"HyperParameterTuningJobName": name} for name in names]

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        kept = [each for each in found if asked.get("NameContains", "") in each["HyperParameterTuningJobName"]]
        return {"HyperParameterTuningJobSummaries": kept[: asked["MaxResults"]]}

    return RecordingApi(ListHyperParameterTuningJobs=answer)


def tuner(*words: str, api: RecordingApi | None = None) -> HyperparameterTuner:
    options = TuneOptions(
        **{
            name: value
            for name, value in start.make_context("start", ["train.py", *words]).params.items()
            if name != "folder"
        }
    )
    used = api or listing()
    return tuner_of(estimator_of(Session(api=used), options, {}), options, used)


def test_a_study_is_found_by_its_name_by_its_beginning_and_as_the_last() -> None:
    api = listing("mnist-2", "mnist-21", "cifar-1", "my-cifar-1")
    assert find_study(api, "mnist-2").name == "mnist-2"
    assert find_study(api, "cif").name == "cifar-1"
    assert find_study(api, "@last").name == "mnist-2"


def test_an_unknown_or_ambiguous_study_is_reported() -> None:
    with pytest.raises(Failure, match='no tuning job named "x"') as raised:
        find_study(listing("mnist-2"), "x")
    assert raised.value.code is ExitCode.NOT_FOUND
    with pytest.raises(Failure, match='Several tuning jobs have names that start with "mnist"') as raised:
        find_study(listing("mnist-2", "mnist-21"), "mnist")
    assert raised.value.why == "mnist-2, mnist-21"
    with pytest.raises(Failure, match="no tuning job yet"):
        find_study(listing(), "@last")


def test_a_study_is_shown_with_its_best_and_its_trials_the_latest_first() -> None:
    told = description("InProgress", BestTrainingJob=TRIALS[1])
    blocks = study_blocks(told, [*TRIALS, trial(5, None, "InProgress")], now=NOON + timedelta(seconds=75))
    lines = list(plain_lines(list(blocks), filled="#"))
    assert lines == [
        "study  InProgress  1:15  4 of 4 trials ended: 2 completed, 1 stopped, 1 failed",
        "best  acc 0.9  layers=2 lr=0.01235 opt=adam  study-002-0123abcd",
        "",
        "   #  status      acc  time    layers  lr       opt",
        "   5  InProgress       25.0 s  5       0.01235  adam",
        "   4  Failed           4.0 s   4       0.01235  adam  AlgorithmError: no memory",
        "   3  Stopped     0.7  3.0 s   3       0.01235  adam",
        "*  2  Completed   0.9  2.0 s   2       0.01235  adam",
        "   1  Completed   0.5  1.0 s   1       0.01235  adam",
    ]


@pytest.mark.usefixtures("command_context")
@pytest.mark.parametrize(
    ("status", "code"), [("Completed", ExitCode.OK), ("Stopped", ExitCode.STOPPED), ("Failed", ExitCode.FAILED)]
)
def test_watching_without_a_terminal_is_a_line_for_each_trial(
    status: str, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    api = RecordingApi(
        DescribeHyperParameterTuningJob=description(status),
        ListTrainingJobsForHyperParameterTuningJob={"TrainingJobSummaries": list(TRIALS)},
    )
    assert watch_study(TuningJobHandle(api, "study")) is code
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 4
    assert f'Tuning job "study" is {status}' in shown.err


@pytest.mark.usefixtures("command_context")
def test_ctrl_c_leaves_the_study_running_and_says_how_to_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(asked: dict[str, Any]) -> dict[str, Any]:
        raise KeyboardInterrupt

    api = RecordingApi(
        DescribeHyperParameterTuningJob=description("InProgress"),
        ListTrainingJobsForHyperParameterTuningJob=interrupt,
    )
    assert watch_study(TuningJobHandle(api, "study")) is ExitCode.INTERRUPTED
    assert "`trainyard tune watch study` follows it" in capsys.readouterr().err
    assert "StopHyperParameterTuningJob" not in [name for name, _ in api.asked]


def test_options_become_a_tuner() -> None:
    made = tuner(
        *USUAL, "--choice", "opt=adam,sgd", "--strategy", "random", "--parallel", "3", "--seed", "5", "--prune-on", "X"
    )
    assert (made.objective_metric_name, made.objective_type, made.strategy) == ("loss", "Minimize", "Random")
    assert (made.max_jobs, made.max_parallel_jobs, made.random_seed, made.prune_on) == (20, 3, 5, ("X",))
    ranges = made.hyperparameter_ranges()
    assert ranges is not None
    assert ranges["CategoricalParameterRanges"] == [{"Name": "opt", "Values": ['"adam"', '"sgd"']}]
    assert made.base_tuning_job_name == "train"


@pytest.mark.parametrize(("word", "kind"), [("off", "Off"), ("median", "Auto"), ("curve", "Curve")])
def test_early_stopping_is_named_for_what_it_does(word: str, kind: str) -> None:
    assert tuner(*USUAL, "--early-stopping", word).early_stopping_type == kind


def test_parents_are_found_like_any_study() -> None:
    made = tuner(*USUAL, "--warm-start", "@last", "--warm-start", "old", api=listing("newest", "older-1"))
    assert made.warm_start_config is not None
    assert made.warm_start_config.parents == {"newest", "older-1"}
    assert made.warm_start_config.type is WarmStartTypes.IDENTICAL_DATA_AND_ALGORITHM
    moved = tuner(*USUAL, "--warm-start", "@last", "--transfer", api=listing("newest"))
    assert moved.warm_start_config is not None
    assert moved.warm_start_config.type is WarmStartTypes.TRANSFER_LEARNING


def test_limits_replace_the_usual_number_of_trials() -> None:
    limited = tuner(*USUAL, "--max-mins", "10", "--patience", "8", "--target", "0.1", "--until-converged")
    assert (limited.max_jobs, limited.max_runtime_in_seconds) == (None, 600)
    assert limited.completion_criteria_config is not None
    assert limited.completion_criteria_config.to_input_req() == {
        "BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 8},
        "TargetObjectiveMetricValue": 0.1,
        "ConvergenceDetected": {"CompleteOnConvergence": "Enabled"},
    }
    hyperband = tuner(*USUAL, "--strategy", "hyperband", "--resource", "1..27", "--trials", "9")
    assert hyperband.strategy_config is not None
    assert hyperband.strategy_config.hyperband_strategy_config.max_resource == 27


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name it with --objective"),
        (USUAL, "The script is missing"),
        (("train.py", "--range", "lr=0..1", "--maximize"), "name it with --objective"),
        (("train.py", "--range", "lr=0..1", "--objective", "loss"), "give --maximize or --minimize"),
        (("train.py", "--objective", "loss", "--minimize"), "There is nothing to tune"),
        (("train.py", *USUAL, "--transfer"), "--transfer needs --warm-start"),
        (("train.py", *USUAL, "--resource", "1..9"), "is only for --strategy hyperband"),
        (("train.py", *USUAL, "--keep-alive", "60"), "leave --keep-alive out"),
    ],
)
def test_contradictory_options_are_reported_before_any_call(
    words: tuple[str, ...], said: str, trainyard: Trainyard, yard: Home
) -> None:
    result = trainyard("tune", *words)
    assert result.code == ExitCode.USAGE
    assert said in result.err


def test_help_begins_with_examples_and_names_every_command(trainyard: Trainyard) -> None:
    shown = trainyard("tune", "-h").out
    assert shown.index("Examples") < shown.index("Usage")
    for command in ("start", "ls", "show", "watch", "best", "stop", "rm", "plot", "adopt"):
        assert f"\n  {command} " in shown
