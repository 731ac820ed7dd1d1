import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from trainyard.cli.main import run
from trainyard.foundation.home import Credentials, Home, Runtime
from trainyard.server.home import open_home


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str


Trainyard = Callable[..., Result]


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a new user, without the environment variables of the real user."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in os.environ:
        if name.startswith(("TRAINYARD_", "AWS_", "XDG_")) or name.lower().endswith(("_color", "_proxy")):
            monkeypatch.delenv(name)
    return folder


@pytest.fixture
def command_context(user_home: Path) -> Iterator[click.Context]:
    """The context of a running command, for functions that are called without one."""
    with click.Context(click.Command("test"), obj=os.environ) as context:
        yield context


@pytest.fixture
def trainyard(user_home: Path, capsys: pytest.CaptureFixture[str]) -> Trainyard:
    """Run the command line in this process."""

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        code = run(list(arguments), os.environ)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def yard(user_home: Path) -> Home:
    """The default home folder, with this process as the yard that runs on it."""
    home = open_home(user_home / ".trainyard")
    home.write_credentials(
        Credentials("123456789012", "admin", "TrainyardRole", "AKIAEXAMPLE", "it's/secret+", "eu-west-3")
    )
    home.write_runtime(
        Runtime.of_this_process(
            http="http://127.0.0.1:4780", https="https://127.0.0.1:4781", version="0.1.0", home=home.root
        )
    )
    return home
