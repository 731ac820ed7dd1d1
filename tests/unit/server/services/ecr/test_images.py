import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.engines.container.pretended_tool import PretendedTool
from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.server.services.contract import Shape
from trainyard.wire.fault import Fault


@pytest.fixture
def tool(tmp_path: Path) -> PretendedTool:
    return PretendedTool.made_in(tmp_path / "tool")


@pytest.fixture
def anna(accounts: Accounts, tool: PretendedTool) -> As:
    """Return a user with a repository, on a yard that runs images."""
    compute = replace(accounts.yard.compute, containers=tool.store)
    anna = replace(accounts.anna, yard=replace(accounts.yard, compute=compute))
    anna("ecr", "CreateRepository", repositoryName="mine")
    return anna


def own_name(caller: As, tag: str) -> str:
    return f"{caller.account}.dkr.ecr.us-east-1.amazonaws.com/mine:{tag}"


def listed(caller: As, **request: object) -> list[tuple[str, str]]:
    ids: list[Shape] = caller("ecr", "ListImages", repositoryName="mine", **request)["imageIds"]
    return [(each["imageTag"], each["imageDigest"]) for each in ids]


def test_a_repository_has_mapped_images_and_container_images_of_its_name(anna: As, tool: PretendedTool) -> None:
    first = tool.add("localhost/mine:1", number=1)
    second = tool.add(own_name(anna, "2"), own_name(anna, "also-2"), number=2)
    tool.add("999999999999.dkr.ecr.us-east-1.amazonaws.com/mine:3", number=3)
    anna.yard.compute.images.map_container("mine:1", "localhost/mine:1")
    anna.yard.compute.images.map_container("other:1", "localhost/mine:1")

    assert listed(anna) == [("1", first), ("2", second), ("also-2", second)]
    details = anna("ecr", "DescribeImages", repositoryName="mine")["imageDetails"]
    assert [each["imageTags"] for each in details] == [["1"], ["2", "also-2"]]
    assert details[1] == {
        "registryId": anna.account,
        "repositoryName": "mine",
        "imageDigest": second,
        "imageTags": ["2", "also-2"],
        "imageSizeInBytes": 2000,
        "imagePushedAt": datetime(2026, 7, 1, 12, 0, 0, 123456, UTC),
        "imageStatus": "ACTIVE",
    }


def test_a_mapped_name_counts_before_the_same_name_of_the_tool(anna: As, tool: PretendedTool) -> None:
    tool.add(own_name(anna, "1"), number=1)
    mapped = tool.add("localhost/new:1", number=2)
    anna.yard.compute.images.map_container("mine:1", "localhost/new:1")

    assert listed(anna) == [("1", mapped)]


def test_a_container_image_that_is_gone_is_in_no_repository(anna: As) -> None:
    anna.yard.compute.images.map_container("mine:1", "localhost/mine:1")

    assert listed(anna) == []


def test_an_image_mapped_to_a_python_is_found_too(accounts: Accounts) -> None:
    anna = accounts.anna
    anna("ecr", "CreateRepository", repositoryName="mine")
    anna.yard.compute.images.map("mine", sys.executable)
    anna.yard.compute.images.map("mine:1", sys.executable)

    (detail,) = anna("ecr", "DescribeImages", repositoryName="mine", imageIds=[{"imageTag": "1"}])["imageDetails"]

    assert detail["imageTags"] == ["1", "latest"]
    assert detail["imagePushedAt"] == NOON
    assert detail["imageDigest"].startswith("sha256:")
    assert "imageSizeInBytes" not in detail


def test_a_missing_image_is_reported_as_clients_expect(anna: As, tool: PretendedTool) -> None:
    digest = tool.add(own_name(anna, "1"))
    wanted = [{"imageTag": "1"}, {"imageTag": "2"}, {"imageTag": "1", "imageDigest": "sha256:00"}, {}]

    with pytest.raises(
        Fault, match=r"\{imageDigest:'null', imageTag:'2'\} does not exist within the repository"
    ) as caught:
        anna("ecr", "DescribeImages", repositoryName="mine", imageIds=wanted[:2])
    assert caught.value.code == "ImageNotFoundException"
    got = anna("ecr", "BatchGetImage", repositoryName="mine", imageIds=wanted)
    assert [each["imageId"] for each in got["images"]] == [{"imageTag": "1", "imageDigest": digest}]
    codes = [each["failureCode"] for each in got["failures"]]
    assert codes == ["ImageNotFound", "ImageNotFound", "MissingDigestAndTag"]


def test_images_come_in_pages_and_by_filters(anna: As, tool: PretendedTool) -> None:
    digest = tool.add(*(own_name(anna, tag) for tag in ("a", "b", "c")))

    first = anna("ecr", "ListImages", repositoryName="mine", maxResults=2)
    assert [each["imageTag"] for each in first["imageIds"]] == ["a", "b"]
    assert listed(anna, maxResults=2, nextToken=first["nextToken"]) == [("c", digest)]
    assert listed(anna, filter={"tagStatus": "UNTAGGED"}) == []
    assert len(listed(anna, filter={"tagStatus": "TAGGED"})) == 3


def test_layers_are_known_by_their_contents(anna: As, tool: PretendedTool) -> None:
    tool.add(own_name(anna, "1"))
    here, absent = f"sha256:{101:064x}", f"sha256:{102:064x}"

    answer = anna("ecr", "BatchCheckLayerAvailability", repositoryName="mine", layerDigests=[here, absent, "none"])

    availability = {each["layerDigest"]: each["layerAvailability"] for each in answer["layers"]}
    assert availability == {here: "AVAILABLE", absent: "UNAVAILABLE"}
    assert [each["failureCode"] for each in answer["failures"]] == ["InvalidLayerDigest"]


def test_a_repository_with_images_is_forgotten_only_by_force(anna: As, tool: PretendedTool) -> None:
    tool.add(own_name(anna, "1"))

    with pytest.raises(Fault, match="still contains images") as caught:
        anna("ecr", "DeleteRepository", repositoryName="mine")
    assert caught.value.code == "RepositoryNotEmptyException"
    anna("ecr", "DeleteRepository", repositoryName="mine", force=True)
    assert own_name(anna, "1") in tool.names


def test_a_tool_that_does_not_answer_is_a_fault_of_the_server(anna: As, tool: PretendedTool) -> None:
    (tool.folder / "docker").write_text("#!/bin/sh\necho no daemon >&2; exit 1\n")

    with pytest.raises(Fault, match="no daemon") as caught:
        listed(anna)

    assert (caught.value.code, caught.value.status) == ("ServerException", 500)
