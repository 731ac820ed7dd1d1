"""Search for experiments, trials and trial components."""

from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from trainyard.wire.fault import Fault


@pytest.fixture
def anna(accounts: Accounts) -> As:
    """Return a user with four components: 1 and 2 in the trial `cnn` of `tune`, 3 in `mlp` of `other`, 4 in none."""
    user = accounts.anna
    for experiment, trial in (("tune", "cnn"), ("other", "mlp")):
        user("sagemaker", "CreateExperiment", ExperimentName=experiment)
        user("sagemaker", "CreateTrial", TrialName=trial, ExperimentName=experiment)
    for number, (rate, model, trial) in enumerate([(0.5, "cnn", "cnn"), (0.1, "cnn2", "cnn"), (0.05, "x", "mlp")], 1):
        parameters = {"lr": {"NumberValue": rate}, "model.kind": {"StringValue": model}}
        user.at(seconds(number))(
            "sagemaker",
            "CreateTrialComponent",
            TrialComponentName=str(number),
            Parameters=parameters,
            Tags=[{"Key": "odd", "Value": str(number % 2)}],
            OutputArtifacts={"SageMaker.ModelArtifact": {"Value": f"s3://data/{number}"}},
        )
        user("sagemaker", "AssociateTrialComponent", TrialComponentName=str(number), TrialName=trial)
    rest = {"lr": {"StringValue": "0.2"}}
    user.at(seconds(4))("sagemaker", "CreateTrialComponent", TrialComponentName="4", Parameters=rest)
    return user


def found(user: As, *filters: tuple[str, ...], **asked: Any) -> str:
    """Return the names on all pages of one result each; filters are joined by And."""
    given = [dict(zip(("Name", "Operator", "Value"), each, strict=False)) for each in filters]
    expression = {"Filters": given} if given else None
    asked = {"SortBy": "CreationTime", "SortOrder": "Ascending", "SearchExpression": expression, **asked}
    request = {name: value for name, value in asked.items() if value is not None}
    names = ""
    while True:
        page = user("sagemaker", "Search", Resource="ExperimentTrialComponent", MaxResults=1, **request)
        names += "".join(each["TrialComponent"]["TrialComponentName"] for each in page["Results"])
        if "NextToken" not in page:
            return names
        request["NextToken"] = page["NextToken"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("Parents.ExperimentName", "Equals", "tune")], "12"),
        ([("Parents.TrialName", "In", "cnn, mlp")], "123"),
        ([("Parents.TrialName", "NotExists")], "4"),
        ([("Parameters.lr", "GreaterThan", "0.1")], "14"),
        ([("Parameters.lr", "LessThanOrEqualTo", "0.1")], "23"),
        ([("Parameters.lr", "Equals", "0.20")], "4"),
        ([("Parameters.lr.Value", "Equals", "0.5")], "1"),
        ([("Parameters.lr", "In", "0.5, 0.05, x")], "13"),
        ([("Parameters.model.kind", "Equals", "cnn")], "1"),
        ([("Parameters.model.kind.StringValue", "Contains", "cnn")], "12"),
        ([("Parameters.model.kind", "NotEquals", "cnn")], "234"),
        ([("Parameters.model.kind", "NotExists")], "4"),
        ([("Tags.odd", "Equals", "1"), ("Parameters.lr", "Exists")], "13"),
        ([("OutputArtifacts.SageMaker.ModelArtifact.Value", "Contains", "/2")], "2"),
        ([("TrialComponentName", "Equals", "3")], "3"),
        ([("Metrics.loss.Min", "Exists")], ""),
    ],
    ids=str,
)
def test_components_are_found_by_any_property(anna: As, filters: list[tuple[str, ...]], expected: str) -> None:
    assert found(anna, *filters) == expected


def test_components_are_sorted_by_a_parameter_and_those_without_it_come_last(anna: As) -> None:
    anna.at(seconds(9))("sagemaker", "CreateTrialComponent", TrialComponentName="5")
    assert found(anna, SortBy="Parameters.lr") == "32415"
    assert found(anna, SortBy="Parameters.lr", SortOrder="Descending") == "14235"
    assert found(anna, ("Tags.odd", "Exists"), SortBy="Parameters.lr.Value") == "321"


def test_a_nested_filter_needs_one_parent_that_passes_all(anna: As) -> None:
    def nested(trial: str, experiment: str) -> str:
        values = {"Parents.TrialName": trial, "Parents.ExperimentName": experiment}
        filters = [{"Name": name, "Operator": "Equals", "Value": value} for name, value in values.items()]
        expression = {"NestedFilters": [{"NestedPropertyName": "Parents", "Filters": filters}]}
        return found(anna, SearchExpression=expression)

    assert (nested("cnn", "tune"), nested("cnn", "other")) == ("12", "")


def test_a_result_has_the_parents_and_tags_of_the_component(anna: As) -> None:
    wanted = {"Filters": [{"Name": "TrialComponentName", "Operator": "Equals", "Value": "1"}]}
    [result] = anna("sagemaker", "Search", Resource="ExperimentTrialComponent", SearchExpression=wanted)["Results"]
    component = result["TrialComponent"]
    assert component["Parents"] == [{"TrialName": "cnn", "ExperimentName": "tune"}]
    assert component["Tags"] == [{"Key": "odd", "Value": "1"}]
    assert component["Parameters"]["lr"] == {"NumberValue": 0.5}


def test_experiments_and_trials_are_found_too(anna: As) -> None:
    in_tune = {"Filters": [{"Name": "ExperimentName", "Operator": "Equals", "Value": "tune"}]}
    [experiment] = anna("sagemaker", "Search", Resource="Experiment", SearchExpression=in_tune)["Results"]
    assert experiment["Experiment"]["ExperimentName"] == "tune"
    [trial] = anna("sagemaker", "Search", Resource="ExperimentTrial", SearchExpression=in_tune)["Results"]
    assert (trial["Trial"]["TrialName"], trial["Trial"]["Tags"]) == ("cnn", [])


def test_the_names_that_users_gave_are_suggested(anna: As) -> None:
    query = {"PropertyNameQuery": {"PropertyNameHint": "parameters.m"}}
    answer = anna("sagemaker", "GetSearchSuggestions", Resource="ExperimentTrialComponent", SuggestionQuery=query)
    assert answer["PropertyNameSuggestions"] == [{"PropertyName": "Parameters.model.kind"}]


def test_a_token_of_another_order_is_invalid(anna: As) -> None:
    with pytest.raises(Fault, match="NextToken is invalid"):
        found(anna, SortBy="Parameters.lr", NextToken="x")
