import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard import __version__
from trainyard.foundation.errors import Conflict, InvalidRequest
from trainyard.foundation.home import FORMAT, Home, HomeVersion, Runtime
from trainyard.server.home import lock_home, open_home


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_only_the_owner_can_read_a_new_home(tmp_path: Path) -> None:
    home = open_home(tmp_path / "deep" / "home")

    assert home.root.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in home.folders} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in home.root.iterdir() if path.is_file()} == {0o600}
    assert home.version() == HomeVersion(FORMAT, __version__)


def test_an_empty_folder_becomes_a_home_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o755)

    open_home(folder)

    assert folder.stat().st_mode & 0o777 == 0o700


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    home.settings_file.write_text("port = 5000\n")
    before = tree(home.root)

    assert open_home(home.root) == home
    assert tree(home.root) == before


def test_an_interrupted_first_start_is_continued(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "version.new").write_bytes(b"{")

    assert open_home(folder).version() == HomeVersion(FORMAT, __version__)


def test_a_newer_home_is_refused_and_unchanged(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    home.write_version(HomeVersion(FORMAT + 1, "9.9.9"))
    before = tree(home.root)

    with pytest.raises(InvalidRequest, match=r"9\.9\.9"):
        open_home(home.root)
    assert tree(home.root) == before
    assert [path.name for path in home.root.iterdir()] == ["version"]


def test_a_folder_of_something_else_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(InvalidRequest, match="not a home folder of Trainyard"):
        open_home(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_home_under_a_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InvalidRequest, match="is not a folder"):
        open_home(tmp_path / "file" / "home")


def test_the_error_of_a_second_holder_names_the_first(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    home.write_runtime(Runtime.of_this_process(http="http://127.0.0.1:4780", https="", version="1", home=home.root))

    with lock_home(home), pytest.raises(Conflict) as caught, lock_home(home):
        pass

    assert f"process {os.getpid()} at http://127.0.0.1:4780" in caught.value.message
    assert str(home.root) in caught.value.message


def test_the_lock_is_free_after_the_block(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")

    with lock_home(home):
        pass
    with lock_home(home):
        assert home.lock_file.read_text() == f"{os.getpid()}\n"


def test_the_lock_dies_with_a_killed_holder(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    program = (
        "import sys; from pathlib import Path; from trainyard.server.home import lock_home, open_home\n"
        "with lock_home(open_home(Path(sys.argv[1]))):\n"
        "    print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(home.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Conflict, match=f"process {holder.pid}"), lock_home(home):
            pass
        holder.kill()
    with lock_home(home):
        assert home.lock_file.read_text() == f"{os.getpid()}\n"
