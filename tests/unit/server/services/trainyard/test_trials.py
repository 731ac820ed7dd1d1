from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.tuning.requests import (
    DEPTH,
    RATE,
    add_trials,
    change_tuning,
    config,
    create_tuning,
    definition,
    resource,
    study,
    trial,
)
from trainyard.foundation.jobs.tuning import StopCause, TrialStatus, TuningStatus
from trainyard.server.control.tuning.advisor import ProcessAnalyst
from trainyard.server.jobs.tuning import trial_change, trial_key
from trainyard.wire.fault import Fault

S = TrialStatus


@pytest.fixture(scope="module")
def analyst() -> Iterator[ProcessAnalyst]:
    with closing(ProcessAnalyst()) as opened:
        yield opened


@pytest.fixture
def asking(anna: As, analyst: ProcessAnalyst) -> As:
    """Return a user of a yard that explains searches."""
    return replace(anna, yard=replace(anna.yard, analyst=analyst))


def ask(user: As, operation: str, name: str = "tune", **asked: Any) -> dict[str, Any]:
    return user("trainyard", operation, HyperParameterTuningJobName=name, **asked)


def numbers(answer: dict[str, Any]) -> list[int]:
    return [each["TrialNumber"] for each in answer["Trials"]]


def change_trial(user: As, number: int, minute: int, **changed: Any) -> None:
    row = user.yard.records.load(trial_key(resource(user), number))
    after = replace(trial(user, number), **changed)
    assert user.yard.records.apply(row, trial_change(after), now=NOON + timedelta(hours=2, minutes=minute)) is not None


def measured(user: As, count: int, **changed: Any) -> None:
    """Add trials whose loss is best where the rate is 0.01."""
    rates = [0.001 * 100 ** (index / count) for index in range(count)]
    add_trials(
        user,
        *(
            trial(
                user,
                index + 1,
                status=S.COMPLETED,
                objective=abs(rate - 0.01),
                values={"lr": repr(rate), "depth": str(index % 9 + 1)},
                **changed,
            )
            for index, rate in enumerate(rates)
        ),
    )


def test_trials_are_listed_with_their_results_and_what_ended_them(anna: As) -> None:
    create_tuning(anna)
    add_trials(
        anna,
        trial(anna, 1, status=S.COMPLETED, objective=0.5, started_at=NOON, ended_at=NOON + timedelta(minutes=3)),
        trial(anna, 2, status=S.STOPPED, objective=0.75, cause=StopCause.EARLY, why="It was worse."),
        trial(anna, 3, status=S.FAILED, objective=0.125, why="It broke."),
        trial(anna, 4),
        trial(anna, 5, status=S.PLANNED),
    )
    answer = ask(anna, "ListTrials")
    assert (numbers(answer), answer["TrialCount"], answer["BestTrialNumber"]) == ([1, 2, 3, 4], 4, 1)
    first, second, third, fourth = answer["Trials"]
    assert (first["Objective"], first["IsMeasured"], first["HyperParameters"]["depth"]) == (0.5, True, "1")
    assert (second["StopCause"], second["Reason"], second["IsMeasured"]) == ("early", "It was worse.", True)
    assert (third["Status"], third["Objective"], third["IsMeasured"]) == ("Failed", None, False)
    assert (fourth["Status"], fourth["Objective"], fourth["Bracket"]) == ("InProgress", None, None)


def test_a_cursor_lists_only_what_changed_since(anna: As) -> None:
    create_tuning(anna)
    add_trials(anna, trial(anna, 1), trial(anna, 2))
    first = ask(anna, "ListTrials")
    assert numbers(ask(anna, "ListTrials", Cursor=first["Cursor"])) == []
    change_trial(anna, 1, 1, status=S.COMPLETED, objective=0.5)
    second = ask(anna, "ListTrials", Cursor=first["Cursor"])
    assert (numbers(second), second["TrialCount"]) == ([1], 2)
    assert numbers(ask(anna, "ListTrials", Cursor=second["Cursor"])) == []
    assert numbers(ask(anna, "ListTrials", Cursor="abc.7")) == [2, 1], "the yard does not know this cursor"


def test_many_trials_are_listed_in_parts(anna: As) -> None:
    create_tuning(anna)
    add_trials(anna, *(trial(anna, number) for number in range(1, 8)))
    found, asked = list[int](), dict[str, Any]()
    while True:
        page = ask(anna, "ListTrials", MaxResults=3, **asked)
        found += numbers(page)
        asked = {"Cursor": page["Cursor"]}
        if not page["HasMore"]:
            break
    assert found == [1, 2, 3, 4, 5, 6, 7]


def test_trials_of_hyperband_have_brackets_and_curves_its_rungs(anna: As) -> None:
    strategy = {"HyperbandStrategyConfig": {"MinResource": 1, "MaxResource": 9}}
    create_tuning(anna, HyperParameterTuningJobConfig=config(Strategy="Hyperband", StrategyConfig=strategy))
    curve = (0.5, 0.4, 0.3)
    add_trials(
        anna, trial(anna, 1, status=S.STOPPED, cause=StopCause.EARLY, job_id="gone", curve=curve), trial(anna, 2)
    )
    assert {each["Bracket"] for each in ask(anna, "ListTrials")["Trials"]} <= {0, 1, 2}
    answer = ask(anna, "ReadTrialCurves")
    assert answer["Rungs"] == [1, 3]
    (read,) = answer["Curves"]
    assert (read["TrialNumber"], read["ReportCount"], read["Reports"]) == (1, 3, [1, 2, 3])
    assert read["Values"] == list(curve)
    assert ask(anna, "ReadTrialCurves", Cursor=answer["Cursor"])["Curves"] == []
    assert ask(anna, "ReadTrialCurves", TrialNumbers=[2])["Curves"] == []


def test_the_next_trial_of_a_random_search_is_explained(asking: As) -> None:
    create_tuning(asking)
    add_trials(asking, trial(asking, 1))
    answer = ask(asking, "ExplainNextTrial")
    assert (answer["IsLast"], answer["TrialNumber"]) == (False, 2)
    assert set(answer["HyperParameters"]) == {"lr", "depth"}
    assert answer["ExpectedObjective"] is None
    assert "Random search" in answer["Reasons"][0]


def test_the_next_trial_of_a_model_has_an_expectation(asking: As) -> None:
    create_tuning(asking, HyperParameterTuningJobConfig=config(Strategy="Bayesian"))
    measured(asking, 15)
    answer = ask(asking, "ExplainNextTrial")
    assert answer["ExpectedObjective"] == pytest.approx(0.0, abs=0.02)
    assert 0.0 <= answer["ImprovementProbability"] <= 1.0
    assert answer["StandardDeviation"] > 0.0


def test_a_trial_that_waits_for_room_is_the_next_one(asking: As) -> None:
    create_tuning(asking)
    add_trials(asking, trial(asking, 1), trial(asking, 2, status=S.PLANNED))
    change_tuning(asking, replace(study(asking), notes=("Trials wait to be begun: the quota is used up.",)))
    answer = ask(asking, "ExplainNextTrial")
    assert (answer["TrialNumber"], answer["HyperParameters"]["depth"]) == (2, "2")
    assert answer["Reasons"][1] == "Trials wait to be begun: the quota is used up."


def test_a_tuning_job_that_starts_no_more_trials_says_why(asking: As) -> None:
    create_tuning(asking)
    measured(asking, 2)
    change_tuning(asking, replace(study(asking), stop_reason="Trial 2 reached 0.001.", status=TuningStatus.COMPLETED))
    assert ask(asking, "ExplainNextTrial")["Reasons"] == ["Trial 2 reached 0.001."]


def test_a_survey_shows_what_matters(asking: As) -> None:
    create_tuning(asking)
    measured(asking, 20)
    answer = ask(asking, "SurveyTuningJob")
    survey = answer["Survey"]
    assert answer["MeasuredTrials"] == survey["FittedTrials"] == 20
    assert survey["Importances"][0]["Name"] == "lr"
    assert [each["Name"] for each in survey["Dependences"]] == ["depth", "lr"]
    joint = ask(asking, "SurveyTuningJob", HyperParameterNames=["depth", "lr"])["Survey"]["JointDependence"]
    assert joint["Names"] == ["depth", "lr"]
    assert (len(joint["Rows"]), len(joint["Rows"][0])) == (len(joint["SecondPositions"]), len(joint["FirstPositions"]))


def test_too_few_trials_make_no_survey(asking: As) -> None:
    create_tuning(asking)
    measured(asking, 4)
    answer = ask(asking, "SurveyTuningJob")
    assert (answer["MeasuredTrials"], answer["NeededTrials"], answer.get("Survey")) == (4, 5, None)


def test_each_definition_is_surveyed_by_its_own_trials(asking: As) -> None:
    objective = {"Type": "Minimize", "MetricName": "loss"}
    ranges = {"ContinuousParameterRanges": [RATE], "IntegerParameterRanges": [DEPTH]}
    several = [
        definition(asking, DefinitionName=name, TuningObjective=objective, HyperParameterRanges=ranges)
        for name in ("trees", "network")
    ]
    changed = config(HyperParameterTuningJobObjective=None, ParameterRanges=None)
    create_tuning(
        asking, HyperParameterTuningJobConfig=changed, TrainingJobDefinition=None, TrainingJobDefinitions=several
    )
    measured(asking, 8, definition="network")
    assert ask(asking, "SurveyTuningJob", DefinitionName="network")["MeasuredTrials"] == 8
    assert ask(asking, "SurveyTuningJob")["MeasuredTrials"] == 0
    with pytest.raises(Fault, match="there are: trees, network"):
        ask(asking, "SurveyTuningJob", DefinitionName="forest")


@pytest.mark.parametrize("operation", ["ListTrials", "ReadTrialCurves", "ExplainNextTrial", "SurveyTuningJob"])
def test_other_users_see_nothing_and_administrators_all(accounts: Accounts, asking: As, operation: str) -> None:
    create_tuning(asking)
    with pytest.raises(Fault, match="tune"):
        ask(accounts.ben, operation)
    ask(replace(accounts.admin, yard=asking.yard), operation)
