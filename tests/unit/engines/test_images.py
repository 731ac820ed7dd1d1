import importlib.metadata
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainyard.engines.images import ContainerImage, ImageReference, Images, PythonEnvironment, installed_version
from trainyard.foundation.errors import InvalidRequest, NotFound

REGISTRY = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "images.toml"


@pytest.fixture
def images(file: Path) -> Images:
    """Of a yard whose own Python has torch 2.13.0 and nothing else."""
    return Images(file, version_of={"torch": "2.13.0+cpu"}.get)


def make_python(folder: Path, name: str) -> str:
    python = folder / name
    python.touch(mode=0o755)
    return str(python)


@pytest.mark.parametrize(
    ("image", "repository", "tag"),
    [
        (f"{REGISTRY}/pytorch-training:2.6.0-cpu-py312", "pytorch-training", "2.6.0-cpu-py312"),
        ("pytorch-training", "pytorch-training", ""),
        ("localhost:5000/team/mine:v1", "team/mine", "v1"),
        ("team/mine@sha256:abc", "team/mine", ""),
        (f"{REGISTRY}/team/mine:v1@sha256:abc", "team/mine", "v1"),
    ],
)
def test_the_name_of_an_image_is_parsed(image: str, repository: str, tag: str) -> None:
    assert ImageReference.parse(image) == ImageReference(repository, tag)


@pytest.mark.parametrize(
    ("image", "account"),
    [
        (f"{REGISTRY}/mine:1", "123456789012"),
        ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/mine", "123456789012"),
        ("mine:1", ""),
        ("registry.example/mine:1", ""),
        (f"{REGISTRY}.example/mine:1", ""),
    ],
)
def test_an_image_in_a_registry_of_amazons_is_of_an_account(image: str, account: str) -> None:
    assert ImageReference.parse(image).account == account


@pytest.mark.parametrize("image", ["", ":", "registry.example/"])
def test_an_invalid_image_name_is_refused(image: str) -> None:
    with pytest.raises(InvalidRequest):
        ImageReference.parse(image)


def test_a_framework_image_stands_for_the_yards_own_python(images: Images) -> None:
    image = f"{REGISTRY}/pytorch-training:2.13.0-cpu-py312"

    assert images.environment(image) == PythonEnvironment(sys.executable)


def test_another_version_is_replaced_with_a_note(images: Images) -> None:
    environment = images.environment(f"{REGISTRY}/pytorch-training:1.6.0-cpu-py3")

    assert environment.python == sys.executable
    assert environment.notes == (
        "The image pytorch-training:1.6.0-cpu-py3 maps to an environment with torch 2.13.0+cpu.",
    )


def test_a_framework_that_is_not_installed_gets_a_note(images: Images) -> None:
    environment = images.environment("tensorflow-training:2.19.0-cpu-py312")

    assert environment.notes == (
        "The image tensorflow-training:2.19.0-cpu-py312 maps to an environment with no tensorflow; "
        f"`{sys.executable} -m pip install tensorflow` brings it.",
    )
    assert images.environment("tensorflow-training:latest").notes, "the image promises it, whatever the version"


@pytest.mark.parametrize(
    ("installed", "image"),
    [
        (("torch", "scikit-learn"), "pytorch-training:latest"),
        (("scikit-learn", "xgboost"), "sagemaker-scikit-learn:latest"),
        ((), "trainyard-python:latest"),
    ],
)
def test_the_default_image_is_one_whose_framework_is_there(
    tmp_path: Path, installed: tuple[str, ...], image: str
) -> None:
    images = Images(tmp_path / "images.toml", version_of=lambda package: "1.0" if package in installed else None)
    assert images.default_image() == image
    assert images.environment(image).notes == ()


def test_a_mapped_framework_comes_before_plain_python(tmp_path: Path) -> None:
    images = Images(tmp_path / "images.toml", version_of=lambda _: None)
    images.map("pytorch-training:2.6", sys.executable)
    assert images.default_image() == "pytorch-training:latest"


def test_numbers_that_only_one_side_names_do_not_differ(images: Images) -> None:
    assert images.environment("pytorch-training:2.13-gpu").notes == ()
    assert images.environment("pytorch-training:2.13.0.1").notes == ()
    assert images.environment("pytorch-training").notes == ()
    assert images.environment("pytorch-training:latest").notes == ()


def test_a_strict_yard_refuses_another_version(images: Images) -> None:
    assert images.environment("pytorch-training:2.13.0", strict=True).notes == ()
    with pytest.raises(InvalidRequest, match=r"torch 2\.13\.0\+cpu.*trainyard images map pytorch-training:1\.6"):
        images.environment("pytorch-training:1.6", strict=True)


@pytest.mark.parametrize("image", ["team/mine:v1", f"{REGISTRY}/image-classification:1"])
def test_an_image_that_stands_for_nothing_is_refused_with_both_commands_that_help(images: Images, image: str) -> None:
    with pytest.raises(InvalidRequest, match=r"trainyard images map \S+ /path/to/python") as caught:
        images.environment(image)

    assert image in caught.value.message
    assert f"trainyard images map {ImageReference.parse(image)} --container" in caught.value.message


def test_a_mapped_image_stands_for_its_python_in_every_registry(images: Images, tmp_path: Path) -> None:
    python = make_python(tmp_path, "python-mine")
    images.map(f"{REGISTRY}/team/mine:v1", python)

    assert images.environment("team/mine:v1") == PythonEnvironment(python)
    assert images.environment("localhost:5000/team/mine:v1") == PythonEnvironment(python)
    assert images.mappings() == {"team/mine:v1": python}


def test_an_image_mapped_without_a_tag_stands_for_all_its_versions(images: Images, tmp_path: Path) -> None:
    every, one = make_python(tmp_path, "every"), make_python(tmp_path, "one")
    images.map("team/mine", every)
    images.map("team/mine:v2", one)

    assert images.environment("team/mine:v1") == PythonEnvironment(every)
    assert images.environment("team/mine") == PythonEnvironment(every)
    assert images.environment("team/mine:v2") == PythonEnvironment(one)


def test_the_nearest_mapped_version_is_used(images: Images, tmp_path: Path) -> None:
    pythons = {version: make_python(tmp_path, f"python-{version}") for version in ("1.13", "2.1", "2.6")}
    for version, python in pythons.items():
        images.map(f"pytorch-training:{version}", python)

    def chosen(tag: str) -> str:
        return images.environment(f"pytorch-training:{tag}").python

    assert chosen("2.6.0-cpu-py312") == pythons["2.6"]
    assert chosen("2.5.1") == pythons["2.6"]
    assert chosen("2.2") == pythons["2.1"]
    assert chosen("1.6.0-cpu-py3") == pythons["1.13"]
    assert chosen("2.12") == sys.executable
    assert images.environment("pytorch-training:2.6.0-cpu-py312").notes == ()
    assert images.environment("pytorch-training:2.5.1").notes == (
        "The image pytorch-training:2.5.1 maps to an environment with pytorch-training:2.6.",
    )


@pytest.mark.parametrize(
    ("wanted", "mapped", "chosen"),
    [
        ("2.6", ["2.5", "2.7"], "2.7"),
        ("2.6", ["2.7", "2.5"], "2.7"),
        ("2.6", ["2.6.1", "2.6.10", "2.6.2"], "2.6.10"),
        ("2", ["2.9", "2.13", "2.1"], "2.13"),
        ("2.6.0-cpu-py312", ["2", "2.6"], "2.6"),
        ("2.6.0-cpu-py312", ["2.6", "2"], "2.6"),
        ("3.1", ["2.9", "2.10"], "2.10"),
        ("latest", ["1.9", "1.13"], "1.13"),
    ],
)
def test_of_equally_near_versions_the_newer_is_used(
    images: Images, tmp_path: Path, wanted: str, mapped: list[str], chosen: str
) -> None:
    """Whatever their order in the file."""
    lines = [f'"framework:{version}" = "{make_python(tmp_path, version)}"\n' for version in mapped]
    (tmp_path / "images.toml").write_text("[images]\n" + "".join(lines))

    assert Path(images.environment(f"framework:{wanted}").python).name == chosen


def test_a_mapped_version_is_nearer_than_an_own_python_without_the_framework(images: Images, tmp_path: Path) -> None:
    python = make_python(tmp_path, "python-tf")
    images.map("tensorflow-training:2.4", python)

    assert images.environment("tensorflow-training:2.19").python == python


def test_an_image_may_stand_for_a_container_image(images: Images) -> None:
    images.map_container(f"{REGISTRY}/mine:1", "localhost/mine:1")

    assert images.resolve("mine:1") == ContainerImage("localhost/mine:1")
    assert images.container_of(f"{REGISTRY}/mine:1") == "localhost/mine:1"
    assert images.mappings() == {"mine:1": "container:localhost/mine:1"}
    with pytest.raises(InvalidRequest, match=r"localhost/mine:1, which only the container engine runs"):
        images.environment("mine:1")


def test_a_container_image_stands_for_the_names_that_were_mapped_and_for_none_near_them(images: Images) -> None:
    images.map_container("pytorch-training:2.6", "localhost/torch:2.6")

    assert images.container_of("pytorch-training:2.6") == "localhost/torch:2.6"
    assert images.container_of("pytorch-training:2.5") == ""
    assert images.environment("pytorch-training:2.5").python == sys.executable


def test_an_image_without_a_tag_is_the_latest(images: Images) -> None:
    images.map_container("mine:latest", "localhost/mine:latest")
    images.map_container("ours", "localhost/ours:1")
    images.map_container("ours:latest", "localhost/ours:2")

    assert images.container_of("mine") == "localhost/mine:latest"
    assert images.container_of("ours") == "localhost/ours:1"  # which was mapped by that very name
    assert images.container_of("ours:latest") == "localhost/ours:2"


def test_an_image_that_stands_for_nothing_runs_under_its_own_name(images: Images, tmp_path: Path) -> None:
    images.map("theirs", make_python(tmp_path, "python"))

    assert images.container_of(f"{REGISTRY}/mine:1") == f"{REGISTRY}/mine:1"
    assert images.container_of("theirs:1") == ""
    assert images.container_of("pytorch-training:2.6") == ""


@pytest.mark.parametrize("name", ["", "-v", "two words", "/mine", "mine:1:2", "https://mine"])
def test_an_invalid_container_image_name_is_refused(images: Images, name: str) -> None:
    with pytest.raises(InvalidRequest, match="not the name of a container image"):
        images.map_container("mine", name)


def test_an_image_is_mapped_again_and_unmapped(images: Images, tmp_path: Path) -> None:
    first, second = make_python(tmp_path, "first"), make_python(tmp_path, "second")
    images.map("mine", first)
    images.map_container("mine", "localhost/mine:1")
    assert images.resolve("mine") == ContainerImage("localhost/mine:1")
    images.map("mine", second)
    assert images.environment("mine").python == second

    images.unmap("mine")

    assert images.mappings() == {}
    with pytest.raises(NotFound):
        images.unmap("mine")


def test_names_with_quotes_survive_the_file(images: Images, tmp_path: Path) -> None:
    python = make_python(tmp_path, 'py "3" \\ ü')

    images.map("mine", python)

    assert images.environment("mine").python == python


def test_no_concurrent_mapping_is_lost(images: Images) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: images.map_container(f"mine:{number}", f"localhost/mine:{number}"), range(40)))
    assert len(images.mappings()) == 40


def test_only_a_program_can_be_mapped_to(images: Images, tmp_path: Path) -> None:
    (tmp_path / "text").touch(mode=0o644)

    for path in ("text", "absent", "."):
        with pytest.raises(InvalidRequest, match="not an executable file"):
            images.map("mine", str(tmp_path / path))
    assert images.mappings() == {}


def test_a_python_that_is_gone_is_reported_when_the_image_is_resolved(images: Images, tmp_path: Path) -> None:
    python = make_python(tmp_path, "python-mine")
    images.map("mine", python)
    Path(python).unlink()

    with pytest.raises(InvalidRequest, match="trainyard images map mine"):
        images.environment("mine")


@pytest.mark.parametrize("text", ["x = [", "images = 3", "[images]\nmine = 3"])
def test_a_wrong_file_is_refused_with_its_path(file: Path, images: Images, text: str) -> None:
    file.write_text(text)

    with pytest.raises(InvalidRequest) as caught:
        images.environment("mine")

    assert str(file) in caught.value.message


def test_the_version_of_an_installed_package_is_known() -> None:
    assert installed_version("pytest") == pytest.__version__
    assert installed_version("no-such-package") is None


def test_xgboost_for_processors_alone_is_xgboost_too() -> None:
    assert installed_version("xgboost") == importlib.metadata.version("xgboost-cpu")
