from datetime import timedelta

import pytest

from tests.unit.tuning_answers import NOON, TRIALS, definition, description, trial
from trainyard._sdk.tuning.text import ObjectiveAim, TuningProgress, aim_of, details_lines, summary, value_text


def test_what_is_better_depends_on_the_direction() -> None:
    assert ObjectiveAim("acc", is_maximized=True).prefers(2.0, 1.0)
    assert not ObjectiveAim("loss", is_maximized=False).prefers(2.0, 1.0)
    assert ObjectiveAim("loss", is_maximized=False).prefers(2.0, None)


def test_the_aim_of_several_algorithms_is_that_of_the_first() -> None:
    told = description()
    objective = told["HyperParameterTuningJobConfig"].pop("HyperParameterTuningJobObjective")
    del told["TrainingJobDefinition"]
    told["TrainingJobDefinitions"] = [definition(DefinitionName="a", TuningObjective={**objective, "Type": "Minimize"})]
    assert aim_of(told) == ObjectiveAim("acc", is_maximized=False)


@pytest.mark.parametrize(
    ("text", "shown"), [('"adam"', "adam"), ("0.000012345", "1.234e-05"), ("12", "12"), ("plain", "plain")]
)
def test_values_are_shown_as_people_read_them(text: str, shown: str) -> None:
    assert value_text(text) == shown


def test_a_control_sequence_in_a_value_does_not_reach_the_terminal() -> None:
    assert "\x1b" not in value_text('"\\u001b]0;title\\u0007x"')


def test_without_a_limit_only_the_count_is_shown() -> None:
    told = description()
    del told["HyperParameterTuningJobConfig"]["ResourceLimits"]["MaxNumberOfTrainingJobs"]
    assert TuningProgress(told).line(TRIALS[0]).startswith("  1  Completed")


def test_a_training_job_that_measured_nothing_says_so() -> None:
    assert "no objective reported" in TuningProgress(description()).line(trial(1))


def test_details_that_only_the_yard_knows_are_shown() -> None:
    told = {"StopReason": "The target of 0.9 is reached.", "RandomSeed": 7, "Notes": ["It waits for a slot."]}
    assert list(details_lines(told)) == [
        "ended: The target of 0.9 is reached.",
        "seed: 7",
        "note: It waits for a slot.",
    ]
    assert list(details_lines({"RandomSeed": 0, "Notes": []})) == ["seed: 0"]


def test_a_better_job_of_a_parent_is_named_too() -> None:
    told = description(
        BestTrainingJob=TRIALS[1],
        OverallBestTrainingJob={**TRIALS[0], "TrainingJobName": "parent-001"},
        HyperParameterTuningEndTime=NOON + timedelta(seconds=75),
    )
    lines = summary(told).splitlines()
    assert lines[0].startswith('Tuning job "study" is Completed after 1:15; training jobs: 2 completed')
    assert lines[-1] == "including its parents, best: parent-001 with acc 0.5"
