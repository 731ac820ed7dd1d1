from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.engines.container.pretended_tool import PretendedTool
from trainyard.engines.container.store import ImageStore
from trainyard.foundation.errors import InvalidRequest, Unavailable

REGISTRY = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"


def test_an_image_is_described_by_what_the_tool_knows_of_it(tool: PretendedTool) -> None:
    identifier = tool.add("mine:1")

    image = tool.store.find(["mine:1"])["mine:1"]

    assert (image.id, image.digest, image.size_bytes) == (identifier, identifier, 1000)
    assert image.created_at == datetime(2026, 7, 1, 12, 0, 0, 123456, UTC)
    assert image.layers == (f"sha256:{101:064x}",)


def test_the_digest_is_that_of_the_manifest_where_there_is_one(tool: PretendedTool) -> None:
    tool.add("ours:1", number=1, Digest="sha256:aa")  # as podman tells it, of every image
    tool.add("pulled:1", number=2, RepoDigests=["registry.example/pulled@sha256:bb"])  # as docker does, of pulled ones

    found = tool.store.find(["ours:1", "pulled:1"])

    assert [found[name].digest for name in ("ours:1", "pulled:1")] == ["sha256:aa", "sha256:bb"]


@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ("localhost/mine:latest", "mine"),
        ("localhost/mine:1", "mine:1"),
        ("mine:1", "localhost/mine:1"),
        ("docker.io/library/python:3.12", "python:3.12"),
        ("team/mine:1", "docker.io/team/mine:1"),
        (f"{REGISTRY}/mine:1", f"{REGISTRY}/mine:1"),
        ("localhost:5000/mine:latest", "localhost:5000/mine"),
    ],
)
def test_a_name_is_found_as_podman_and_docker_spell_it(tool: PretendedTool, kept: str, asked: str) -> None:
    tool.add(kept)

    assert set(tool.store.find([asked])) == {asked}
    assert tool.store.full_name(asked) == kept


def test_a_missing_name_is_not_found(tool: PretendedTool) -> None:
    tool.add()  # without a name
    tool.add("mine:2", number=2)

    assert tool.store.names() == {"mine:2": f"sha256:{2:064x}"}
    assert tool.store.find(["mine:1", "mine"]) == {}
    with pytest.raises(InvalidRequest, match=r'docker has no image "mine:1".*docker images'):
        tool.store.full_name("mine:1")


def test_an_image_gets_one_name_more(tool: PretendedTool) -> None:
    identifier = tool.add("mine:1")

    tool.store.tag("mine:1", f"{REGISTRY}/mine:2")

    assert tool.store.names() == {"mine:1": identifier, f"{REGISTRY}/mine:2": identifier}


def test_a_failed_build_is_reported(tool: PretendedTool, tmp_path: Path) -> None:
    tool.fail(125)

    with pytest.raises(InvalidRequest, match=r"docker could not build mine:1 .* exited with 125"):
        tool.store.build(tmp_path, "mine:1", file=tmp_path / "Dockerfile")


def test_a_tool_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        ImageStore("false").names()
