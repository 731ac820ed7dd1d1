import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.settings_file import write_setting


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text('# mine\nport = 5000  # not 4780\nhost = "x"\n')
    return path


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (True, "true"),
        (0.5, "0.5"),
        (timedelta(days=30), '"30d"'),
        (timedelta(0), '"0s"'),
        ('say "ä\\\n', r'"say \"ä\\\n"'),
        (Path("/data"), '"/data"'),
    ],
)
def test_a_new_setting_is_added_at_the_end(file: Path, value: Any, text: str) -> None:
    write_setting(file, "new", value)
    assert file.read_text() == f'# mine\nport = 5000  # not 4780\nhost = "x"\nnew = {text}\n'
    tomllib.loads(file.read_text())


def test_a_setting_is_replaced_or_removed_and_the_rest_stays(file: Path) -> None:
    write_setting(file, "port", 6000)
    assert file.read_text() == '# mine\nport = 6000\nhost = "x"\n'
    write_setting(file, "port", None)
    assert file.read_text() == '# mine\nhost = "x"\n'
    write_setting(file, "port", None)
    assert file.read_text() == '# mine\nhost = "x"\n'
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_missing_file_is_created(tmp_path: Path) -> None:
    write_setting(tmp_path / "settings.toml", "slots", 2)
    assert (tmp_path / "settings.toml").read_text() == "slots = 2\n"


@pytest.mark.parametrize("text", ['port = """\n5"""\n', '"port" = 5\n', "port = \n", "[table]\nx = 1\n"])
def test_a_file_that_cannot_be_changed_safely_stays_as_it_is(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidRequest):
        write_setting(file, "port", 7)
    assert file.read_text() == text
