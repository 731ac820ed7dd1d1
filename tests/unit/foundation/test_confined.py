"""What a program left is opened without being led out of its folder."""

import os
from pathlib import Path

import pytest

from trainyard.foundation.confined import open_folder, read_text, replace_text


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    secret = tmp_path / "secret"
    (secret / "data").mkdir(parents=True)
    (secret / "failure").write_text("secret")
    (tmp_path / "ml" / "output").mkdir(parents=True)
    return tmp_path / "ml"


def reason(ml: Path) -> str | None:
    return read_text(ml, "output/failure", limit_bytes=100)


def test_a_file_is_read_as_far_as_asked(ml: Path) -> None:
    (ml / "output" / "failure").write_bytes(b"x" * 200 + b"\xff")
    assert reason(ml) == "x" * 100


def test_what_is_not_there_is_nothing(ml: Path) -> None:
    assert reason(ml) is None
    (ml / "output").rmdir()
    assert reason(ml) is None


def test_a_file_that_is_a_link_is_nothing(ml: Path) -> None:
    (ml / "output" / "failure").symlink_to(ml.parent / "secret" / "failure")
    assert reason(ml) is None


def test_a_folder_that_is_a_link_is_nothing(ml: Path) -> None:
    (ml / "output").rmdir()
    (ml / "output").symlink_to(ml.parent / "secret")
    assert reason(ml) is None
    with open_folder(ml, "output/data") as folder:
        assert folder is None


def test_a_pipe_or_a_folder_in_its_place_does_not_block(ml: Path) -> None:
    os.mkfifo(ml / "output" / "failure")
    assert reason(ml) is None
    (ml / "output" / "failure").unlink()
    (ml / "output" / "failure").mkdir()
    assert reason(ml) is None


def test_a_folder_is_opened_and_closed_again(ml: Path) -> None:
    (ml / "output" / "data").mkdir()
    with open_folder(ml, "output/data") as folder:
        assert folder is not None
        assert os.listdir(folder) == []  # noqa: PTH208 - a descriptor has no path
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(folder)


def test_a_file_is_replaced_whole_and_never_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "ml").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "ml" / "in").mkdir()
    assert replace_text(tmp_path / "ml", "in/word", "one")
    (tmp_path / "ml" / "in" / ".word.new").symlink_to(tmp_path / "outside" / "stolen")
    assert replace_text(tmp_path / "ml", "in/word", "two")
    assert (tmp_path / "ml" / "in" / "word").read_text() == "two"
    (tmp_path / "ml" / "led").symlink_to(tmp_path / "outside")
    assert not replace_text(tmp_path / "ml", "led/word", "three")
    assert list((tmp_path / "outside").iterdir()) == []
