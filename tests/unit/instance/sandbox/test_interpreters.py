import sys
from pathlib import Path

import pytest

from trainyard.instance.sandbox.interpreters import changeable_folders, interpreter_folders


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder with an installation of a version manager, and an environment made with it."""
    installation = tmp_path / "home/.versions/3.11"
    (installation / "lib/python3.11").mkdir(parents=True)
    (installation / "lib/python3.11/os.py").touch()
    (installation / "bin").mkdir()
    (installation / "bin/python3.11").touch()
    (installation / "bin/python").symlink_to("python3.11")
    environment = tmp_path / "home/project/.venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").symlink_to(installation / "bin/python")
    (environment / "pyvenv.cfg").write_text(f"home = {installation}/bin\n")
    return tmp_path / "home"


def test_an_environment_shows_itself_and_its_installation_and_nothing_around_them(home: Path) -> None:
    shown = interpreter_folders(home / "project/.venv/bin/python", [home])
    assert shown == [home / "project/.venv", home / ".versions/3.11"]


def test_a_link_to_the_installation_is_shown_under_both_names(home: Path) -> None:
    (home / ".versions/current").symlink_to("3.11")
    shown = interpreter_folders(home / ".versions/current/bin/python")
    assert shown == [home / ".versions/current", home / ".versions/3.11"]


def test_an_installation_that_is_the_home_itself_shows_only_its_parts(home: Path) -> None:
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to("python3")
    (home / "bin/python3").touch()
    (home / "lib/python3.12").mkdir(parents=True)
    (home / "lib/python3.12/os.py").touch()
    assert interpreter_folders(home / "bin/python", [home]) == [home / "bin", home / "lib"]


def test_a_link_in_a_folder_of_scripts_does_not_show_what_is_beside_that_folder(home: Path) -> None:
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to(home / ".versions/3.11/bin/python")
    assert interpreter_folders(home / "bin/python") == [home / ".versions/3.11"]


def test_the_root_of_the_file_system_is_never_shown_whole() -> None:
    assert Path("/") not in interpreter_folders(Path("/bin/python3"))


def test_the_running_interpreter_shows_its_prefix_and_its_base() -> None:
    shown = interpreter_folders(Path(sys.executable))
    for prefix in (sys.prefix, sys.base_prefix):
        assert any(Path(prefix).is_relative_to(path) or path.is_relative_to(prefix) for path in shown)


def test_an_installer_changes_the_environment_alone_and_not_its_installation(home: Path) -> None:
    assert changeable_folders(home / "project/.venv/bin/python", [home]) == [home / "project/.venv"]


def test_an_installer_changes_only_the_parts_of_python_in_a_folder_that_holds_more(home: Path) -> None:
    for folder in ("bin", "lib/python3.12/site-packages", "share/man", "etc"):
        (home / folder).mkdir(parents=True)
    (home / "lib/python3.12/os.py").touch()
    (home / "bin/python3.12").touch()
    (home / "etc/password").touch(0o600)
    assert changeable_folders(home / "bin/python3.12", [home]) == [
        home / "bin",
        home / "lib/python3.12",
        home / "share",
    ]


def test_nothing_is_changed_where_there_is_no_library(tmp_path: Path) -> None:
    assert changeable_folders(tmp_path / "python3") == []
