"""Artifacts, contexts, actions, their associations, and queries that follow them."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.server.services.sagemaker.lineage import query as query_module
from trainyard.wire.fault import Fault

CHAIN = ["raw", "clean", "features", "model", "endpoint"]


def artifact(user: As, uri: str, *, type: str = "DataSet", **more: Any) -> str:  # noqa: A002 - as in AWS
    made = user("sagemaker", "CreateArtifact", Source={"SourceUri": uri}, ArtifactType=type, **more)
    arn: str = made["ArtifactArn"]
    return arn


def associate(user: As, source: str, destination: str, kind: str = "DerivedFrom") -> None:
    user("sagemaker", "AddAssociation", SourceArn=source, DestinationArn=destination, AssociationType=kind)


def query(user: As, start: str, **more: Any) -> dict[str, Any]:
    return user("sagemaker", "QueryLineage", StartArns=[start], **more)


def arns(answer: dict[str, Any]) -> list[str]:
    return [each["Arn"] for each in answer["Vertices"]]


@pytest.fixture
def chain(anna: As) -> list[str]:
    """Five artifacts, each derived from the one before, and the last one from itself over the first: a cycle."""
    made = [artifact(anna.at(NOON + timedelta(hours=n)), f"s3://b/{name}") for n, name in enumerate(CHAIN)]
    for source, destination in zip(made, [*made[1:], made[0]], strict=True):
        associate(anna, source, destination)
    return made


def test_an_artifact_is_unique_by_its_source_and_its_types(anna: As) -> None:
    source: dict[str, Any] = {"SourceUri": "s3://b/data"}
    tagged = {**source, "SourceTypes": [{"SourceIdType": "S3ETag", "Value": "1"}]}
    plain = artifact(anna, "s3://b/data", ArtifactName="data")
    version = anna("sagemaker", "CreateArtifact", Source=tagged, ArtifactType="DataSet")["ArtifactArn"]
    with pytest.raises(Fault, match=f"already exists: {plain}") as caught:
        artifact(anna, "s3://b/data", ArtifactName="other")
    assert caught.value.code == "ValidationException"
    listed = anna("sagemaker", "ListArtifacts", SourceUri="s3://b/data")["ArtifactSummaries"]
    assert {each["ArtifactArn"] for each in listed} == {plain, version}
    assert anna("sagemaker", "ListArtifacts", SourceUri="s3://b/dat")["ArtifactSummaries"] == []
    assert anna("sagemaker", "DeleteArtifact", Source=tagged) == {"ArtifactArn": version}
    assert anna("sagemaker", "DescribeArtifact", ArtifactArn=plain)["Source"] == {**source, "SourceTypes": []}


def test_an_artifact_is_described_with_what_was_given_and_changed(anna: As) -> None:
    arn = artifact(
        anna,
        "s3://b/ünï",
        type="Code",
        Properties={"a": "1", "b": "2"},
        MetadataProperties={"CommitId": "c0ffee"},
        Tags=[{"Key": "team", "Value": "vision"}],
    )
    later = anna.at(NOON + timedelta(hours=1))
    later("sagemaker", "UpdateArtifact", ArtifactArn=arn, ArtifactName="n", PropertiesToRemove=["a"])
    told = anna("sagemaker", "DescribeArtifact", ArtifactArn=arn)
    assert (told["ArtifactName"], told["ArtifactType"], told["Source"]["SourceUri"]) == ("n", "Code", "s3://b/ünï")
    assert told["Properties"] == {"b": "2"}
    assert told["MetadataProperties"] == {"CommitId": "c0ffee"}
    later("sagemaker", "UpdateArtifact", ArtifactArn=arn, Properties={"c": "3"})
    assert anna("sagemaker", "DescribeArtifact", ArtifactArn=arn)["Properties"] == {"c": "3"}
    assert told["LastModifiedTime"] - told["CreationTime"] == timedelta(hours=1)
    assert anna("sagemaker", "ListTags", ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "vision"}]


@pytest.mark.parametrize("prefix", ["Context", "Action"])
def test_contexts_and_actions_are_named_by_their_users(anna: As, prefix: str) -> None:
    source = {"SourceUri": "arn:x", "SourceType": "ARN", "SourceId": "7"}
    for number, name in enumerate(["one", "two"]):
        given = {f"{prefix}Name": name, f"{prefix}Type": f"type-{name}", "Source": source, "Description": "d"}
        anna.at(NOON + timedelta(hours=number))("sagemaker", f"Create{prefix}", **given)
    with pytest.raises(Fault, match="already exists"):
        anna("sagemaker", f"Create{prefix}", **given)
    members = {f"{prefix}Name": "one", "Properties": {"p": "q"}, "Description": "new"}
    anna("sagemaker", f"Update{prefix}", **members, **({"Status": "Completed"} if prefix == "Action" else {}))
    told = anna("sagemaker", f"Describe{prefix}", **{f"{prefix}Name": "one"})
    assert (told["Source"], told["Properties"], told["Description"]) == (source, {"p": "q"}, "new")
    assert told.get("Status") == ("Completed" if prefix == "Action" else None)
    by_arn = anna("sagemaker", f"Describe{prefix}", **{f"{prefix}Name": told[f"{prefix}Arn"]})
    assert by_arn == told

    def names(**asked: Any) -> list[str]:
        return [each[f"{prefix}Name"] for each in anna("sagemaker", f"List{prefix}s", **asked)[f"{prefix}Summaries"]]

    assert names() == ["two", "one"]
    assert names(SourceUri="arn:x", SortBy="Name", SortOrder="Ascending") == ["one", "two"]
    assert names(**{f"{prefix}Type": "type-one"}) == ["one"]
    assert names(SourceUri="arn:y") == names(CreatedAfter=NOON + timedelta(days=1)) == []
    anna("sagemaker", f"Delete{prefix}", **{f"{prefix}Name": "two"})
    with pytest.raises(Fault, match=f"{prefix} 'arn:aws:sagemaker:.*/two' does not exist") as caught:
        anna("sagemaker", f"Describe{prefix}", **{f"{prefix}Name": "two"})
    assert caught.value.code == "ResourceNotFound"


def test_what_has_associations_is_not_deleted(anna: As) -> None:
    source, destination = artifact(anna, "s3://b/1"), artifact(anna, "s3://b/2")
    associate(anna, source, destination)
    with pytest.raises(Fault, match="already exists"):
        associate(anna, source, destination, "Produced")
    for arn in (source, destination):
        with pytest.raises(Fault, match="has associations"):
            anna("sagemaker", "DeleteArtifact", ArtifactArn=arn)
    anna("sagemaker", "DeleteAssociation", SourceArn=source, DestinationArn=destination)
    with pytest.raises(Fault) as caught:
        anna("sagemaker", "DeleteAssociation", SourceArn=source, DestinationArn=destination)
    assert caught.value.code == "ResourceNotFound"
    anna("sagemaker", "DeleteArtifact", ArtifactArn=source)


def test_associations_are_listed_with_types_and_names(anna: As) -> None:
    model = artifact(anna, "s3://b/model", type="Model", ArtifactName="model")
    for number in range(3):
        associate(anna.at(NOON + timedelta(hours=number)), artifact(anna, f"s3://b/{number}"), model)
    first = anna("sagemaker", "ListAssociations", DestinationArn=model, SortOrder="Ascending", MaxResults=2)
    rest = anna(
        "sagemaker",
        "ListAssociations",
        DestinationArn=model,
        SortOrder="Ascending",
        MaxResults=2,
        NextToken=first["NextToken"],
    )
    found = first["AssociationSummaries"] + rest["AssociationSummaries"]
    assert [each["CreationTime"].hour for each in found] == [12, 13, 14]
    assert {(each["SourceType"], each["DestinationType"], each["DestinationName"]) for each in found} == {
        ("DataSet", "Model", "model")
    }
    assert anna("sagemaker", "ListAssociations", SourceArn=model)["AssociationSummaries"] == []
    assert len(anna("sagemaker", "ListAssociations", SourceType="DataSet")["AssociationSummaries"]) == 3


def test_a_query_follows_a_cycle_once(anna: As, chain: list[str]) -> None:
    around = query(anna, chain[0], Direction="Descendants")
    assert arns(around) == chain
    assert len(around["Edges"]) == 5
    assert arns(query(anna, chain[0], Direction="Ascendants", MaxDepth=2)) == [chain[0], chain[4], chain[3]]
    assert set(arns(query(anna, chain[0], MaxDepth=1))) == {chain[0], chain[1], chain[4]}


def test_an_association_with_itself_ends_a_query(anna: As) -> None:
    alone = artifact(anna, "s3://b/alone")
    associate(anna, alone, alone)
    found = query(anna, alone)
    assert arns(found) == [alone]


def test_filters_choose_entities_and_edges_the_paths_to_them(anna: As, chain: list[str]) -> None:
    anna("sagemaker", "UpdateArtifact", ArtifactArn=chain[2], Properties={"k": "v"})
    side = artifact(anna, "s3://b/side", type="Report")
    associate(anna, chain[1], side)
    only = {"Direction": "Descendants", "Filters": {"Properties": {"k": "v", "other": "x"}}}
    assert arns(query(anna, chain[0], IncludeEdges=False, **only)) == [chain[2]]
    with_path = query(anna, chain[0], IncludeEdges=True, **only)
    assert arns(with_path) == chain[:3]
    assert [(each["SourceArn"], each["AssociationType"]) for each in with_path["Edges"]] == [
        (chain[1], "DerivedFrom"),
        (chain[0], "DerivedFrom"),
    ]
    for filters, expected in (
        ({"Types": ["Report"]}, [side]),
        ({"LineageTypes": ["Context"]}, []),
        ({"CreatedAfter": NOON + timedelta(hours=2)}, chain[3:]),
        ({"CreatedBefore": NOON + timedelta(hours=2), "Types": ["DataSet"]}, [chain[1]]),
        ({"ModifiedBefore": NOON + timedelta(minutes=1), "Types": ["DataSet"]}, [chain[2]]),
    ):
        assert arns(query(anna, chain[0], IncludeEdges=False, Direction="Descendants", Filters=filters)) == expected


def test_a_query_has_pages(anna: As, chain: list[str]) -> None:
    found: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = query(anna, chain[0], Direction="Descendants", IncludeEdges=False, MaxResults=2, **token)
        found += arns(page)
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert found == chain[1:]
    with pytest.raises(Fault, match="NextToken"):
        query(anna, chain[0], NextToken="x")


def test_a_query_that_would_follow_too_much_says_so(
    anna: As, chain: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_module, "MAX_VISITED", 3)
    with pytest.raises(Fault, match="more than 3 associations"):
        query(anna, chain[0])
    assert len(arns(query(anna, chain[0], MaxDepth=1))) == 3


def test_the_lineage_of_another_user_does_not_exist(accounts: Accounts, anna: As, chain: list[str]) -> None:
    ben = accounts.ben
    own = artifact(ben, "s3://b/raw")
    for call in (
        lambda: query(ben, chain[0]),
        lambda: ben("sagemaker", "DescribeArtifact", ArtifactArn=chain[0]),
        lambda: ben("sagemaker", "DeleteAssociation", SourceArn=chain[0], DestinationArn=chain[1]),
        lambda: associate(ben, own, chain[0]),
    ):
        with pytest.raises(Fault) as caught:
            call()
        assert caught.value.code == "ResourceNotFound"
    assert ben("sagemaker", "ListAssociations", SourceArn=chain[0])["AssociationSummaries"] == []
    assert len(ben("sagemaker", "ListArtifacts")["ArtifactSummaries"]) == 1
    assert len(arns(query(accounts.admin, chain[0], Direction="Descendants"))) == 5


def test_what_is_not_an_entity_has_no_lineage(anna: As) -> None:
    own = artifact(anna, "s3://b/own")
    missing = f"arn:aws:sagemaker:eu-west-3:{anna.account}:experiment-trial-component/gone-aws-training-job"
    with pytest.raises(Fault) as caught:
        associate(anna, own, missing)
    assert caught.value.code == "ResourceNotFound"
    with pytest.raises(Fault, match="has no lineage"):
        associate(anna, own, f"arn:aws:sagemaker:eu-west-3:{anna.account}:experiment/x")
