"""Experiments, trials and components: what each operation does, and what is refused."""

from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.wire.fault import Fault


def call(user: As, operation: str, **request: Any) -> Any:
    return user("sagemaker", operation, **request)


@pytest.fixture
def anna(accounts: Accounts) -> As:
    """Return a user with the experiment `tune`, its trial `first`, and the components `a` and `b` in it."""
    user = accounts.anna
    call(user, "CreateExperiment", ExperimentName="tune", Description="batch sizes")
    call(user, "CreateTrial", TrialName="first", ExperimentName="tune")
    for number, name in enumerate("ab"):
        later = user.at(seconds(number))
        call(later, "CreateTrialComponent", TrialComponentName=name)
        call(later, "AssociateTrialComponent", TrialComponentName=name, TrialName="first")
    return user


def names(answer: Any) -> list[str]:
    [members] = [value for value in answer.values() if isinstance(value, list)]
    keys = ("TrialComponentName", "TrialName", "ExperimentName")
    return [next(member[key] for key in keys if key in member) for member in members]


def test_what_was_created_is_described(anna: As) -> None:
    arn = f"arn:aws:sagemaker:eu-west-3:{anna.account}"
    experiment = call(anna, "DescribeExperiment", ExperimentName="tune")
    assert experiment == {
        "ExperimentName": "tune",
        "ExperimentArn": f"{arn}:experiment/tune",
        "DisplayName": "tune",
        "Description": "batch sizes",
        "CreationTime": NOON,
        "LastModifiedTime": NOON,
        "CreatedBy": {"UserProfileName": "anna"},
        "LastModifiedBy": {"UserProfileName": "anna"},
    }
    assert call(anna, "DescribeTrial", TrialName="first")["ExperimentName"] == "tune"
    by_arn = call(anna, "DescribeTrialComponent", TrialComponentName=f"{arn}:experiment-trial-component/a")
    assert by_arn["TrialComponentName"] == "a"


def test_names_are_kept_as_given_and_found_in_any_case(anna: As) -> None:
    created = call(anna, "CreateTrialComponent", TrialComponentName="Mixed-Case")
    assert created["TrialComponentArn"].endswith("/mixed-case")
    assert call(anna, "DescribeTrialComponent", TrialComponentName="MIXED-case")["TrialComponentName"] == "Mixed-Case"
    with pytest.raises(Fault, match="already exists") as caught:
        call(anna, "CreateTrialComponent", TrialComponentName="mixed-case")
    assert caught.value.code == "ValidationException"


@pytest.mark.parametrize(
    ("operation", "request_", "words"),
    [
        ("DescribeExperiment", {"ExperimentName": "x"}, "Experiment '{arn}:experiment/x' does not exist."),
        ("DescribeTrial", {"TrialName": "x"}, "Trial '{arn}:experiment-trial/x' does not exist."),
        ("DescribeTrialComponent", {"TrialComponentName": "x"}, "TrialComponent '{arn}:experiment-trial-component/x'"),
        ("CreateTrial", {"TrialName": "t", "ExperimentName": "x"}, "Experiment '{arn}:experiment/x'"),
        ("ListTrials", {"ExperimentName": "x"}, "Experiment '{arn}:experiment/x'"),
        ("ListTrialComponents", {"TrialName": "x"}, "Trial '{arn}:experiment-trial/x'"),
        ("AssociateTrialComponent", {"TrialName": "first", "TrialComponentName": "x"}, "TrialComponent '{arn}"),
        ("AssociateTrialComponent", {"TrialName": "x", "TrialComponentName": "a"}, "Trial '{arn}"),
        ("DeleteTrialComponent", {"TrialComponentName": "x"}, "TrialComponent '{arn}"),
    ],
)
def test_what_does_not_exist_is_named_in_the_words_of_aws(
    anna: As, operation: str, request_: dict[str, Any], words: str
) -> None:
    with pytest.raises(Fault) as caught:
        call(anna, operation, **request_)
    assert caught.value.code == "ResourceNotFound"
    assert words.format(arn=f"arn:aws:sagemaker:eu-west-3:{anna.account}") in caught.value.message


def test_what_is_in_use_cannot_be_deleted(anna: As) -> None:
    for operation, request in (
        ("DeleteExperiment", {"ExperimentName": "tune"}),
        ("DeleteTrial", {"TrialName": "first"}),
        ("DeleteTrialComponent", {"TrialComponentName": "a"}),
    ):
        with pytest.raises(Fault, match="cannot be deleted") as caught:
            call(anna, operation, **request)
        assert caught.value.code == "ValidationException"
    for name in "ab":
        call(anna, "DisassociateTrialComponent", TrialComponentName=name, TrialName="FIRST")
        call(anna, "DeleteTrialComponent", TrialComponentName=name)
    call(anna, "DeleteTrial", TrialName="first")
    call(anna, "DeleteExperiment", ExperimentName="tune")
    for operation in ("ListExperiments", "ListTrials", "ListTrialComponents"):
        assert names(call(anna, operation)) == []


def test_lists_are_filtered_ordered_and_paged(anna: As) -> None:
    call(anna, "CreateTrialComponent", TrialComponentName="loose")
    assert names(call(anna, "ListTrialComponents", SortBy="Name", SortOrder="Ascending")) == ["a", "b", "loose"]
    assert names(call(anna, "ListTrialComponents", TrialName="First")) == ["b", "a"]
    assert names(call(anna, "ListTrialComponents", ExperimentName="Tune", CreatedAfter=NOON)) == ["b"]
    page = call(anna, "ListTrialComponents", TrialName="first", MaxResults=1)
    rest = call(anna, "ListTrialComponents", TrialName="first", MaxResults=1, NextToken=page["NextToken"])
    assert (names(page), names(rest), "NextToken" in rest) == (["b"], ["a"], False)
    with pytest.raises(Fault, match="Filter by one of"):
        call(anna, "ListTrialComponents", TrialName="first", SourceArn="arn")


def test_the_trials_of_a_component_are_listed(anna: As) -> None:
    for number, name in enumerate(["x", "y"], 1):
        call(anna.at(seconds(number)), "CreateTrial", TrialName=name, ExperimentName="tune")
        call(anna, "AssociateTrialComponent", TrialComponentName="a", TrialName=name)
    asked = {"TrialComponentName": "a", "MaxResults": 2}
    page = call(anna, "ListTrials", **asked)
    assert names(page) == ["y", "x"]
    assert names(call(anna, "ListTrials", **asked, NextToken=page["NextToken"])) == ["first"]
    assert names(call(anna, "ListTrials", ExperimentName="tune", SortBy="Name", SortOrder="Ascending")) == [
        "first",
        "x",
        "y",
    ]


def test_an_update_adds_replaces_and_removes(anna: As) -> None:
    first = {"lr": {"NumberValue": 0.5}, "model": {"StringValue": "cnn"}, "seed": {"NumberValue": 7}}
    data = {"data": {"Value": "s3://data/train", "MediaType": "text/csv"}}
    call(anna, "UpdateTrialComponent", TrialComponentName="a", Parameters=first, InputArtifacts=data)
    call(
        anna,
        "UpdateTrialComponent",
        TrialComponentName="a",
        DisplayName="Best",
        Status={"PrimaryStatus": "Completed", "Message": "done"},
        EndTime=NOON,
        Parameters={"lr": {"NumberValue": 0.25}},
        ParametersToRemove=["seed"],
        InputArtifactsToRemove=["data"],
        OutputArtifacts={"model": {"Value": "s3://data/model"}},
    )
    found = call(anna, "DescribeTrialComponent", TrialComponentName="a")
    assert found["Parameters"] == {"lr": {"NumberValue": 0.25}, "model": {"StringValue": "cnn"}}
    assert (found["InputArtifacts"], found["OutputArtifacts"]) == ({}, {"model": {"Value": "s3://data/model"}})
    assert (found["DisplayName"], found["EndTime"]) == ("Best", NOON)
    assert found["Status"] == {"PrimaryStatus": "Completed", "Message": "done"}
    assert "StartTime" not in found


def test_a_component_has_at_most_three_hundred_parameters(anna: As) -> None:
    full = {f"p{number}": {"NumberValue": number} for number in range(300)}
    call(anna, "UpdateTrialComponent", TrialComponentName="a", Parameters=full)
    with pytest.raises(Fault, match="301 parameters; at most 300"):
        call(anna, "UpdateTrialComponent", TrialComponentName="a", Parameters={"more": {"NumberValue": 1}})


def test_any_text_can_be_a_name_or_a_value_of_a_parameter(anna: As) -> None:
    odd = {"é.ö/\0": {"StringValue": "x" * 2500}, " ": {"StringValue": "\0 \ud800"}, "n": {"StringValue": "1e999"}}
    call(anna, "UpdateTrialComponent", TrialComponentName="a", Parameters=odd)
    assert call(anna, "DescribeTrialComponent", TrialComponentName="a")["Parameters"] == odd


def test_another_user_sees_none_of_it_and_may_use_the_names(accounts: Accounts, anna: As) -> None:
    ben = accounts.ben
    for operation in ("ListExperiments", "ListTrials", "ListTrialComponents"):
        assert names(call(ben, operation)) == []
    for operation, request in (
        ("DescribeExperiment", {"ExperimentName": "tune"}),
        ("DeleteTrialComponent", {"TrialComponentName": "a"}),
    ):
        with pytest.raises(Fault, match="does not exist"):
            call(ben, operation, **request)
    call(ben, "CreateExperiment", ExperimentName="tune")
    assert names(call(ben, "ListTrials", ExperimentName="tune")) == []
    assert sorted(names(call(accounts.admin, "ListTrialComponents"))) == ["a", "b"]


def test_tags_are_given_at_the_create_and_later(anna: As) -> None:
    tags = [{"Key": "team", "Value": "vision"}]
    arn = call(anna, "CreateExperiment", ExperimentName="tagged", Tags=tags)["ExperimentArn"]
    assert call(anna, "ListTags", ResourceArn=arn)["Tags"] == tags
    trial = call(anna, "DescribeTrial", TrialName="first")["TrialArn"]
    call(anna, "AddTags", ResourceArn=trial, Tags=tags)
    listed = anna("resourcegroupstaggingapi", "GetResources", ResourceTypeFilters=["sagemaker:experiment-trial"])
    assert [each["ResourceARN"] for each in listed["ResourceTagMappingList"]] == [trial]
