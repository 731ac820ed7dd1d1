from pathlib import Path

import pytest

from trainyard.engines.file_systems import FileSystems
from trainyard.foundation.errors import InvalidRequest

ID = "fs-0123456789abcdef0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What stands for a file system, beside a folder that is none of its business."""
    (tmp_path / "shared/sets/mnist").mkdir(parents=True)
    (tmp_path / "private").mkdir()
    return tmp_path / "shared"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home/file_systems.toml"


@pytest.fixture
def systems(file: Path, folder: Path) -> FileSystems:
    file.write_text(f'[file_systems]\n"{ID}" = "{folder}"\n')
    return FileSystems(file)


def test_an_id_stands_for_its_folder(systems: FileSystems, folder: Path) -> None:
    assert systems.folder(ID) == folder
    systems.require(ID, "sets/mnist")
    systems.require(ID, "")


def test_a_change_of_the_file_counts_at_once(systems: FileSystems, file: Path, tmp_path: Path) -> None:
    file.write_text(f'[file_systems]\n"{ID}" = "{tmp_path / "private"}"\n')
    assert systems.folder(ID) == tmp_path / "private"


def test_an_unknown_id_is_refused_with_the_file_to_name_it_in(systems: FileSystems, file: Path) -> None:
    with pytest.raises(InvalidRequest, match=rf"fs-00000000.*\[file_systems\] in {file}"):
        systems.folder("fs-00000000")
    with pytest.raises(InvalidRequest, match=r"file_systems\.toml"):
        FileSystems(file.with_name("none") / "file_systems.toml").folder(ID)


@pytest.mark.parametrize("path", ["nowhere", "../private", "sets/../../private", "out", "sets/file"])
def test_a_directory_that_is_not_within_is_refused(systems: FileSystems, folder: Path, path: str) -> None:
    (folder / "out").symlink_to("../private")
    (folder / "sets/file").touch()
    with pytest.raises(InvalidRequest, match=f'no directory "/{path}" in the file system'):
        systems.require(ID, path)


@pytest.mark.parametrize("named", ["relative", "/none/of/this"])
def test_a_path_that_is_not_a_folder_is_refused(file: Path, named: str) -> None:
    file.write_text(f'[file_systems]\n"{ID}" = "{named}"\n')
    with pytest.raises(InvalidRequest, match="not the absolute path of a folder of this machine"):
        FileSystems(file).folder(ID)


@pytest.mark.parametrize("where", [".", "home", "home/objects"])
def test_the_folder_of_the_yard_itself_is_never_given_away(file: Path, tmp_path: Path, where: str) -> None:
    (tmp_path / "home/objects").mkdir()
    file.write_text(f'[file_systems]\n"{ID}" = "{tmp_path / where}"\n')
    with pytest.raises(InvalidRequest, match="data that no job may see"):
        FileSystems(file).folder(ID)


@pytest.mark.parametrize(("text", "words"), [("[", "not valid TOML"), ("file_systems = 3", "maps ids")])
def test_a_file_that_is_wrong_is_named(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=words):
        FileSystems(file).folder(ID)


@pytest.mark.parametrize("named", ["s3://data/sets", "s3://data/sets/"])
def test_an_id_may_stand_for_an_s3_prefix(file: Path, named: str) -> None:
    file.write_text(f'[file_systems]\n"{ID}" = "{named}"\n')
    systems = FileSystems(file)
    assert systems.prefix(ID, "") == "s3://data/sets/"
    assert systems.prefix(ID, "mnist/./small") == "s3://data/sets/mnist/small/"


def test_a_folder_has_no_s3_prefix(systems: FileSystems) -> None:
    assert systems.prefix(ID, "sets") is None
    assert systems.prefix("fs-00000000", "") is None


@pytest.mark.parametrize(("named", "directory"), [("s3://", ""), ("s3://data", "../other"), ("s3://data", "a/../..")])
def test_an_s3_prefix_needs_a_bucket_and_is_not_left(file: Path, named: str, directory: str) -> None:
    file.write_text(f'[file_systems]\n"{ID}" = "{named}"\n')
    with pytest.raises(InvalidRequest, match=r"names no bucket|not below the file system"):
        FileSystems(file).prefix(ID, directory)
