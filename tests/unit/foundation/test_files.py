from pathlib import Path

import pytest

from trainyard.foundation.files import replace_file


def test_a_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"

    replace_file(file, b"one")

    assert file.read_bytes() == b"one"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_replaced_file_takes_the_mode_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "public"
    file.write_bytes(b"old")
    file.chmod(0o600)

    replace_file(file, b"new", mode=0o644)

    assert file.read_bytes() == b"new"
    assert file.stat().st_mode & 0o777 == 0o644


def test_what_a_crash_left_behind_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "file.new").write_bytes(b"half")

    replace_file(tmp_path / "file", b"whole")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"whole"}


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()

    with pytest.raises(IsADirectoryError):
        replace_file(target, b"bytes")

    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
