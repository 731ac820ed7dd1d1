from pathlib import Path

import pytest

from tests.unit.engines.container.pretended_tool import PretendedTool
from trainyard.engines.container.image_build import BuildRecipe, build_image, local_name
from trainyard.engines.images import Images
from trainyard.foundation.errors import InvalidRequest

REGISTRY = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"
AMAZON = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:1.9.0-gpu-py38-cu111-ubuntu20.04"


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "images.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"FROM {AMAZON}\nRUN true\n")
    return folder


def test_a_mapped_base_image_gets_its_name_before_the_build(images: Images, tool: PretendedTool, folder: Path) -> None:
    base = tool.add("localhost/torch:1.9")
    images.map_container(AMAZON, "localhost/torch:1.9")

    built = build_image("mine:1", BuildRecipe.find(folder, options=["--no-cache"]), images=images, store=tool.store)

    assert tool.names[AMAZON] == base
    assert built == "localhost/mine:1"
    assert tool.built == f"build --tag {built} --file {folder}/Dockerfile --no-cache {folder}".split()
    assert images.container_of("mine:1") == built


def test_the_latest_mapping_of_a_base_image_counts(images: Images, tool: PretendedTool, folder: Path) -> None:
    tool.add("localhost/old:1", AMAZON, number=1)
    new = tool.add("localhost/new:1", number=2)
    images.map_container("pytorch-training", "localhost/new:1")

    build_image("mine", BuildRecipe.find(folder), images=images, store=tool.store)

    assert tool.names[AMAZON] == new


def test_a_base_image_that_was_pulled_under_its_own_name_needs_no_map(
    images: Images, tool: PretendedTool, folder: Path
) -> None:
    tool.add(AMAZON)

    assert build_image("mine:1", BuildRecipe.find(folder), images=images, store=tool.store) == "localhost/mine:1"


@pytest.mark.parametrize("base", [AMAZON, f"{REGISTRY}/team/base:1", "pytorch-training:2.6"])
def test_a_base_image_that_nothing_stands_for_is_refused_with_the_command_that_helps(
    images: Images, tool: PretendedTool, folder: Path, base: str
) -> None:
    (folder / "Dockerfile").write_text(f"FROM {base}\n")

    with pytest.raises(InvalidRequest, match=r"trainyard images map [\w/-]+:[\w.-]+ --container") as caught:
        build_image("mine:1", BuildRecipe.find(folder), images=images, store=tool.store)

    assert base in caught.value.message
    assert tool.built == []
    assert images.mappings() == {}


def test_a_base_image_of_a_public_registry_is_left_to_the_tool(
    images: Images, tool: PretendedTool, folder: Path
) -> None:
    (folder / "Dockerfile").write_text("FROM docker.io/library/python:3.12\n")

    build_image("mine:1", BuildRecipe.find(folder), images=images, store=tool.store)

    assert tool.built[-1] == str(folder)


def test_a_base_image_whose_container_image_is_gone_is_refused(
    images: Images, tool: PretendedTool, folder: Path
) -> None:
    images.map_container(AMAZON, "localhost/torch:1.9")

    with pytest.raises(InvalidRequest, match=r"localhost/torch:1\.9, which is not on this machine"):
        build_image("mine:1", BuildRecipe.find(folder), images=images, store=tool.store)


def test_a_base_image_by_its_digest_cannot_be_another(images: Images, tool: PretendedTool, folder: Path) -> None:
    tool.add("localhost/base:1")
    images.map_container("team/base", "localhost/base:1")
    (folder / "Dockerfile").write_text(f"FROM {REGISTRY}/team/base@sha256:{'0' * 64}\n")

    with pytest.raises(InvalidRequest, match="digest"):
        build_image("mine:1", BuildRecipe.find(folder), images=images, store=tool.store)


@pytest.mark.parametrize("options", [["--build-arg", "TAG=2"], ["--build-arg=TAG=2"]])
def test_build_arguments_choose_the_base_image(
    images: Images, tool: PretendedTool, folder: Path, options: list[str]
) -> None:
    tool.add("localhost/base:2")
    images.map_container("team/base:2", "localhost/base:2")
    (folder / "Dockerfile").write_text(f"ARG TAG=1\nFROM {REGISTRY}/team/base:$TAG\n")

    build_image("mine:1", BuildRecipe.find(folder, options=options), images=images, store=tool.store)

    assert f"{REGISTRY}/team/base:2" in tool.names


def test_a_failed_build_maps_nothing(images: Images, tool: PretendedTool, folder: Path) -> None:
    tool.add(AMAZON)
    tool.fail(1)

    with pytest.raises(InvalidRequest):
        build_image("mine:1", BuildRecipe.find(folder), images=images, store=tool.store)

    assert images.mappings() == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mine", "localhost/mine:latest"),
        ("team/mine:1", "localhost/team/mine:1"),
        (f"{REGISTRY}/mine", f"{REGISTRY}/mine:latest"),
        ("mine.example/mine:1", "mine.example/mine:1"),
    ],
)
def test_an_image_has_the_same_name_for_every_tool(name: str, expected: str) -> None:
    assert local_name(name) == expected


def test_the_file_of_a_folder_is_found_by_either_name_or_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"Dockerfile.*--file"):
        BuildRecipe.find(tmp_path)
    (tmp_path / "Containerfile").touch()
    assert BuildRecipe.find(tmp_path).file == tmp_path / "Containerfile"
    (tmp_path / "other").touch()
    assert BuildRecipe.find(tmp_path, file=tmp_path / "other").file == tmp_path / "other"
