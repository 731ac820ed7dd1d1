from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk.lineage.tree import LineageEntry, LineageTree, await_recorded, read_tree
from trainyard.cli.lineage.lineage import tree_lines
from trainyard.foundation.errors import NotFound

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
BASE = "arn:aws:sagemaker:eu-west-3:123456789012:"


def vertex(name: str, kind: str = "DataSet") -> dict[str, str]:
    return {"Arn": f"{BASE}artifact/{name}", "Type": kind, "LineageType": "Artifact"}


def edge(source: str, destination: str) -> dict[str, str]:
    return {"SourceArn": f"{BASE}artifact/{source}", "DestinationArn": f"{BASE}artifact/{destination}"}


def describe(request: dict[str, Any]) -> dict[str, Any]:
    name = request["ArtifactArn"].rpartition("/")[2]
    source: dict[str, Any] = {"SourceUri": f"s3://b/{name}"}
    if name == "code":
        source["SourceTypes"] = [{"SourceIdType": "S3ETag", "Value": "0123456789abcdef"}]
    origin = {"MetadataProperties": {"CommitId": "c0ffee"}} if name == "code" else {}
    return {
        "ArtifactArn": request["ArtifactArn"],
        "ArtifactType": "Code" if name == "code" else "DataSet",
        "Source": source,
        **origin,
    }


def test_a_tree_is_read_page_by_page_and_a_cycle_is_shown_once() -> None:
    def query(request: dict[str, Any]) -> dict[str, Any]:
        if "NextToken" in request:
            return {"Vertices": [vertex("code")], "Edges": [edge("code", "b"), edge("a", "b")]}
        return {"Vertices": [vertex("a"), vertex("b")], "Edges": [edge("b", "a")], "NextToken": "more"}

    tree = read_tree(RecordingApi(QueryLineage=query, DescribeArtifact=describe), f"{BASE}artifact/a")
    assert list(tree_lines(tree)) == [
        "DataSet      s3://b/a",
        "└─ DataSet      s3://b/b",
        "   └─ DataSet      s3://b/a  shown above",
        "   └─ Code         s3://b/code  S3ETag 0123456789ab, commit c0ffee",
    ]


def test_names_from_jobs_cannot_control_a_terminal() -> None:
    tree = LineageTree("a", {"a": LineageEntry("a", "Model", "s3://b/\x1b[2Jm\nx")})
    assert list(tree_lines(tree)) == ["Model        s3://b/m x"]


def test_what_has_just_ended_is_waited_for_and_what_ended_long_ago_is_not() -> None:
    tries = 0

    def lookup() -> str:
        nonlocal tries
        tries += 1
        if tries < 2:
            raise NotFound("job record", "x")
        return "found"

    assert await_recorded(lookup, since=NOON, now=NOON) == "found"
    tries = -100
    with pytest.raises(NotFound):
        await_recorded(lookup, since=NOON - timedelta(hours=1), now=NOON)
    assert tries < 0
