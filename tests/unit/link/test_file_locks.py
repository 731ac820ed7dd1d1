import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.link.file_locks import hold, is_held
from trainyard.testing.eventually import eventually


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_a_file_is_held_by_one_at_a_time(file: Path) -> None:
    first = hold(file)
    assert first is not None

    assert hold(file) is None
    assert hold(file, shared=True) is None
    assert is_held(file)

    os.close(first)
    assert not is_held(file)


def test_many_may_share_a_lock_but_then_nobody_holds_it_exclusively(file: Path) -> None:
    first, second = hold(file, shared=True), hold(file, shared=True)
    assert first is not None
    assert second is not None

    os.close(first)

    assert hold(file) is None
    os.close(second)
    assert not is_held(file)


def test_a_file_that_does_not_exist_is_not_held_and_asking_does_not_make_it(file: Path) -> None:
    assert not is_held(file)
    assert not file.exists()


def test_asking_takes_no_hold(file: Path) -> None:
    held = hold(file)
    assert held is not None
    os.close(held)

    assert not is_held(file)
    again = hold(file)
    assert again is not None
    os.close(again)


def test_a_child_keeps_an_inherited_lock_until_it_dies(file: Path) -> None:
    held = hold(file)
    assert held is not None
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(held,))
    os.close(held)
    assert is_held(file)

    child.kill()
    child.communicate()

    eventually(lambda: not is_held(file))


def test_a_child_that_was_not_given_it_does_not_hold(file: Path) -> None:
    held = hold(file)
    assert held is not None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        os.close(held)

        assert not is_held(file)
        child.communicate(b"\n")


def test_a_file_that_was_replaced_before_it_was_locked_is_not_held(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace_meanwhile(*_: object) -> None:
        file.unlink()
        file.touch()

    monkeypatch.setattr("fcntl.fcntl", replace_meanwhile)  # another process between the opening and the locking
    assert hold(file) is None
