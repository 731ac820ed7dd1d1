from datetime import datetime
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import channel, create
from tests.unit.server.services.sagemaker.rules import judged, rule
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from tests.unit.server.services.sagemaker.tuning.requests import config, create_tuning, end_tuning, resource, trial
from trainyard.foundation.jobs.attempts import Attempt, InstanceState, MetricSummary
from trainyard.server.records.contract import Resource
from trainyard.server.services.sagemaker.search import operation as module
from trainyard.server.services.sagemaker.search import resource_types
from trainyard.server.services.sagemaker.training.description import training_job_description
from trainyard.server.services.sagemaker.tuning.trial_launch import TrainingJobLauncher
from trainyard.wire.fault import Fault


@pytest.fixture
def filled(anna: As) -> As:
    for number, name in enumerate(["a-1", "a-2", "b-1", "b-2", "b-3"]):
        epochs = {"sagemaker_program": "t.py", "sagemaker_submit_directory": "s3://data/code/sourcedir.tar.gz"}
        create(
            anna.at(seconds(number)),
            name,
            HyperParameters=epochs | {"epochs": str(number * 5)},
            Tags=[{"Key": "team", "Value": name[0]}, {"Key": "a.b", "Value": "dotted"}],
            InputDataConfig=[
                channel("train", "s3://data/train/1"),
                channel("test", f"s3://data/train/{number % 2 + 2}"),
            ],
        )
        if number:
            learn(anna, name, 1 / number)
    anna.at(seconds(99))("sagemaker", "StopTrainingJob", TrainingJobName="b-2")
    return anna


def learn(user: As, name: str, loss: float) -> None:
    from dataclasses import replace

    instance = InstanceState("algo-1", metrics={"loss": MetricSummary(loss, seconds(4), 3)})
    attempt = Attempt(1, seconds(1), "KEY", (instance,), ended_at=seconds(2))
    remember(user, replace(load(user, name), attempts=(attempt,)))


def where(name: str, operator: str | None = None, value: str | None = None) -> dict[str, Any]:
    given = {"Name": name, "Operator": operator, "Value": value}
    return {member: item for member, item in given.items() if item is not None}


def names(user: As, *filters: dict[str, Any], **asked: Any) -> list[str]:
    """Return the names on all pages; filters are joined by And."""
    if filters:
        asked["SearchExpression"] = {"Filters": list(filters)}
    asked = {"Resource": "TrainingJob", "SortBy": "TrainingJobName", "SortOrder": "Ascending"} | asked
    found: list[str] = []
    while True:
        page = user("sagemaker", "Search", **asked)
        found += [each["TrainingJob"]["TrainingJobName"] for each in page["Results"]]
        if "NextToken" not in page:
            return found
        asked["NextToken"] = page["NextToken"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([where("Tags.team", "In", "a, c")], ["a-1", "a-2"]),
        ([where("Tags.team", "Contains", "b")], ["b-1", "b-2", "b-3"]),
        ([where("Tags.team", "Exists"), where("Tags.none", "NotExists")], ["a-1", "a-2", "b-1", "b-2", "b-3"]),
        ([where("Tags.none", "Exists")], []),
        ([where("Tags.team", "Equals", "a"), where("Tags.team", "Equals", "b")], []),
        ([where("SecondaryStatus", "Equals", "Stopped")], ["b-2"]),
        ([where("SecondaryStatus", "Equals", "Sleeping")], []),
        ([where("CreationTime", "Equals", "2026-07-01T12:00:02Z")], ["b-1"]),
        (
            [
                where("CreationTime", "GreaterThan", "2026-07-01T12:00:00Z"),
                where("CreationTime", "LessThanOrEqualTo", "2026-07-01T12:00:02+00:00"),
            ],
            ["a-2", "b-1"],
        ),
        ([where("LastModifiedTime", "GreaterThanOrEqualTo", "2026-07-01T12:01:39Z")], ["b-2"]),
        ([where("TrainingJobName", "Equals", "b-1")], ["b-1"]),
        ([where("TrainingJobName", "Contains", "a-")], ["a-1", "a-2"]),
        ([where("TrainingJobName", "In", "a-1, b-3,c")], ["a-1", "b-3"]),
        ([where("TrainingJobName", None, "b-1")], ["b-1"]),
        ([where("Tags.team", "Equals", "b"), where("TrainingJobStatus", "Equals", "InProgress")], ["b-1", "b-3"]),
        ([where("Tags.team", "NotEquals", "b")], ["a-1", "a-2"]),
        ([where("Tags.a.b", "Equals", "dotted"), where("TrainingJobName", "Contains", "1")], ["a-1", "b-1"]),
        ([where("TrainingJobStatus", "Equals", "Stopped")], ["b-2"]),
        ([where("TrainingJobStatus", "NotEquals", "InProgress")], ["b-2"]),
        ([where("Metrics.loss", "LessThan", "0.4")], ["b-2", "b-3"]),
        ([where("Metrics.loss", "GreaterThanOrEqualTo", "0.5")], ["a-2", "b-1"]),
        ([where("Metrics.loss", "NotExists")], ["a-1"]),
        ([where("Metrics.loss", "Exists")], ["a-2", "b-1", "b-2", "b-3"]),
        ([where("Metrics.loss")], ["a-2", "b-1", "b-2", "b-3"]),
        ([where("HyperParameters.epochs", "GreaterThan", "9")], ["b-1", "b-2", "b-3"]),
        ([where("HyperParameters.epochs", "Equals", "10.0")], ["b-1"]),
        (
            [where("ResourceConfig.InstanceCount", "Equals", "1"), where("TrainingJobName", "Contains", "a")],
            ["a-1", "a-2"],
        ),
        ([where("CreationTime", "LessThan", "2026-07-01T12:00:02Z")], ["a-1", "a-2"]),
        ([where("EnableManagedSpotTraining", "Equals", "true")], []),
        ([where("InputDataConfig.DataSource.S3DataSource.S3Uri", "Contains", "train/3")], ["a-2", "b-2"]),
        ([where("FailureReason", "Exists")], []),
    ],
)
def test_filters_choose(filled: As, filters: list[dict[str, Any]], expected: list[str]) -> None:
    assert names(filled, *filters) == expected
    assert names(filled, *filters, MaxResults=1) == expected


def test_expressions_nest_with_and_and_or(filled: As) -> None:
    either = {
        "Operator": "Or",
        "SubExpressions": [
            {"Filters": [where("Tags.team", "Equals", "a"), where("Metrics.loss", "Exists")]},
            {"Filters": [where("TrainingJobName", "Equals", "b-3")]},
        ],
    }
    assert names(filled, SearchExpression=either) == ["a-2", "b-3"]


def test_a_nested_filter_wants_one_member_to_satisfy_all(filled: As) -> None:
    path = "InputDataConfig"
    nested = {
        "NestedPropertyName": path,
        "Filters": [
            where(f"{path}.ChannelName", "Equals", "train"),
            where(f"{path}.DataSource.S3DataSource.S3Uri", "Contains", "train/3"),
        ],
    }
    assert names(filled, SearchExpression={"NestedFilters": [nested]}) == []
    nested["Filters"][0]["Value"] = "test"  # type: ignore[index]
    assert names(filled, SearchExpression={"NestedFilters": [nested]}) == ["a-2", "b-2"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ({"SortBy": "CreationTime", "SortOrder": "Descending"}, ["b-3", "b-2", "b-1", "a-2", "a-1"]),
        ({"SortBy": "Metrics.loss", "SortOrder": "Ascending"}, ["b-3", "b-2", "b-1", "a-2", "a-1"]),
        ({"SortBy": "Metrics.loss", "SortOrder": "Descending"}, ["a-2", "b-1", "b-2", "b-3", "a-1"]),
        ({"SortBy": "Tags.team", "SortOrder": "Ascending"}, ["a-1", "a-2", "b-1", "b-2", "b-3"]),
        ({"SortBy": "HyperParameters.epochs", "SortOrder": "Descending"}, ["b-3", "b-2", "b-1", "a-2", "a-1"]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_any_property_gives_an_order_that_holds_over_pages(
    filled: As, order: dict[str, str], expected: list[str], size: int
) -> None:
    assert names(filled, **order, MaxResults=size) == expected


def test_the_latest_change_comes_first_when_no_order_is_asked_for(filled: As) -> None:
    first = filled("sagemaker", "Search", Resource="TrainingJob", MaxResults=1)["Results"][0]["TrainingJob"]
    assert first["TrainingJobName"] == "b-2"
    assert {tag["Key"]: tag["Value"] for tag in first["Tags"]} == {"team": "b", "a.b": "dotted"}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"Resource": "Pipeline"}, "does not search for Pipeline"),
        ({"SearchExpression": {}}, "at least one filter"),
        (
            {"SearchExpression": {"Filters": [where("Colour", "Equals", "red")]}},
            '"Colour" is not a searchable property',
        ),
        ({"SearchExpression": {"Filters": [where("TrainingJobName", "Equals")]}}, "needs a Value"),
        ({"SearchExpression": {"Filters": [where("TrainingJobName", "Exists", "x")]}}, "takes no Value"),
        ({"SearchExpression": {"Filters": [where("CreationTime", "LessThan", "soon")]}}, "is not a time"),
        ({"SortBy": "Colour"}, '"Colour" is not a searchable property'),
        ({"SortBy": "Metrics.loss", "NextToken": "bm9uc2Vuc2U="}, "NextToken is invalid"),
        ({"CrossAccountFilterOption": "CrossAccount"}, "across accounts"),
    ],
)
def test_an_invalid_search_is_refused(filled: As, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(Fault, match=words) as caught:
        filled("sagemaker", "Search", **{"Resource": "TrainingJob", **asked})
    assert caught.value.code == "ValidationException"


def test_a_long_search_ends_early_with_a_token(filled: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_READS", 1)
    monkeypatch.setattr(module, "_BATCH", 2)
    few = where("HyperParameters.epochs", "LessThan", "1")
    page = filled("sagemaker", "Search", Resource="TrainingJob", SearchExpression={"Filters": [few]})
    assert page["Results"] == []
    assert "NextToken" in page
    assert names(filled, few) == ["a-1"]


def test_an_order_without_an_index_is_refused_for_too_many_jobs(filled: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SORTED", 4)
    monkeypatch.setattr(module, "_BATCH", 2)
    with pytest.raises(Fault, match="More than 4 results are too many to sort by this property; filter"):
        names(filled, SortBy="Metrics.loss")
    assert names(filled, where("Tags.team", "Equals", "b"), SortBy="Metrics.loss") == ["b-3", "b-2", "b-1"]


def test_a_search_reads_only_the_jobs_that_have_the_tag(filled: As, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def watched(resource: Resource, *, now: datetime) -> dict[str, Any]:
        looked_at.append(resource.key.name)
        return training_job_description(resource, now=now)

    monkeypatch.setattr(resource_types, "training_job_description", watched)
    deep = {"SubExpressions": [{"Filters": [where("Tags.team", "Equals", "a"), where("Tags.a.b")]}]}
    assert names(filled, SearchExpression=deep) == ["a-1", "a-2"]
    assert set(looked_at) == {"a-1", "a-2"}


def test_others_find_nothing_of_it(accounts: Accounts, filled: As) -> None:
    assert names(accounts.ben) == []
    assert len(names(accounts.admin)) == 5


def test_jobs_are_found_by_how_their_rules_stand(anna: As) -> None:
    create(anna, "judged", **judged(rule()))
    create(anna, "stopped", **judged(rule()))
    create(anna, "plain")
    anna("sagemaker", "StopTrainingJob", TrainingJobName="stopped")
    status = "DebugRuleEvaluationStatuses.RuleEvaluationStatus"
    assert names(anna, where(status, "Equals", "InProgress")) == ["judged"]
    assert names(anna, where(status, "Equals", "Stopped")) == ["stopped"]


def tuning_names(user: As, *filters: dict[str, Any], **asked: Any) -> list[str]:
    asked = {"SortBy": "CreationTime", "SortOrder": "Ascending", "Resource": "HyperParameterTuningJob"} | asked
    if filters:
        asked["SearchExpression"] = {"Filters": list(filters)}
    found = user("sagemaker", "Search", **asked)["Results"]
    return [each["HyperParameterTuningJob"]["HyperParameterTuningJobName"] for each in found]


def test_a_found_job_has_of_its_profiler_what_aws_tells(anna: As) -> None:
    create(anna, ProfilerConfig={"S3OutputPath": "s3://data/p"}, ProfilerRuleConfigurations=[rule("ProfilerReport")])
    (found,) = anna("sagemaker", "Search", Resource="TrainingJob")["Results"]
    assert {member for member in found["TrainingJob"] if "Profil" in member} == {"ProfilerConfig"}


def test_tuning_jobs_are_found_by_name_status_tags_and_results(accounts: Accounts, anna: As) -> None:
    create_tuning(anna, "First", Tags=[{"Key": "team", "Value": "a"}])
    create_tuning(anna.at(seconds(1)), "second", HyperParameterTuningJobConfig=config(Strategy="Bayesian"))
    end_tuning(anna, "second", t1=0.5)
    best = "BestTrainingJob.FinalHyperParameterTuningJobObjectiveMetric.Value"
    assert tuning_names(anna) == ["First", "second"]
    assert tuning_names(anna, where("HyperParameterTuningJobName", "Equals", "First")) == ["First"]
    assert tuning_names(anna, where("HyperParameterTuningJobName", "Equals", "first")) == []
    assert tuning_names(anna, where("HyperParameterTuningJobName", "Contains", "ir")) == ["First"]
    assert tuning_names(anna, where("HyperParameterTuningJobStatus", "Equals", "Completed")) == ["second"]
    assert tuning_names(anna, where("HyperParameterTuningJobConfig.Strategy", "Equals", "Bayesian")) == ["second"]
    assert tuning_names(anna, where("Tags.team", "Equals", "a")) == ["First"]
    assert tuning_names(anna, where(best, "LessThan", "0.6"), SortBy=best) == ["second"]
    assert tuning_names(accounts.ben) == []


def test_training_jobs_are_found_by_their_tuning_job(anna: As) -> None:
    arn = create_tuning(anna)["HyperParameterTuningJobArn"]
    create(anna, "plain")
    TrainingJobLauncher(anna.yard).launch(resource(anna), trial(anna, 1), now=seconds(1))
    assert names(anna, where("TuningJobArn", "Equals", arn)) == [trial(anna, 1).job]


def suggested(user: As, hint: str, resource: str = "TrainingJob") -> list[str]:
    query = {"PropertyNameQuery": {"PropertyNameHint": hint}}
    answer = user("sagemaker", "GetSearchSuggestions", Resource=resource, SuggestionQuery=query)
    return [each["PropertyName"] for each in answer["PropertyNameSuggestions"]]


def test_properties_that_begin_with_a_hint_are_suggested(filled: As) -> None:
    assert suggested(filled, "TrainingJ") == ["TrainingJobArn", "TrainingJobName", "TrainingJobStatus"]
    assert suggested(filled, "hyperparameters.e") == ["HyperParameters.epochs"]
    assert suggested(filled, "Metrics.") == ["Metrics.loss"]
    assert suggested(filled, "Tags.") == ["Tags.a.b", "Tags.team"]
    assert suggested(filled, "nothing") == []
    assert len(suggested(filled, "")) == 10


def test_names_of_other_accounts_are_not_suggested(accounts: Accounts, filled: As) -> None:
    assert suggested(accounts.ben, "Tags.") == []
    assert suggested(accounts.admin, "Tags.") == ["Tags.a.b", "Tags.team"]


def test_suggestions_are_only_for_what_search_finds(filled: As) -> None:
    assert suggested(filled, "HyperParameterTuningJobN", "HyperParameterTuningJob") == ["HyperParameterTuningJobName"]
    with pytest.raises(Fault, match="does not search for Endpoint yet"):
        suggested(filled, "", "Endpoint")
