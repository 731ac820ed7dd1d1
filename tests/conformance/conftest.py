"""A real yard, and unmodified clients in their own environments."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance.environments import interpreter
from trainyard.testing.yard import RunningYard, running_yard

FLOWS = Path(__file__).parent / "flows"
TRAINYARD = Path(sys.executable).with_name("trainyard")
# The environment of these tests, which has the trainyard SDK.
PROJECT = "project"
FLOW_TIMEOUT_S = 420


@dataclass(frozen=True, slots=True)
class Person:
    """A user with an empty home folder who uses a yard from the shell."""

    yard: RunningYard
    home: Path

    def trainyard(self, *arguments: str) -> str:
        """Run the trainyard command and return its output."""
        return self._finish([str(TRAINYARD), *arguments], self.bare_environment())

    def exports(self, *, secure: bool = False) -> Mapping[str, str]:
        """Return the variables of the shell after eval "$(trainyard env)", with --https if wanted."""
        command = f'eval "$("{TRAINYARD}" env {"--https" if secure else ""})" && env -0'
        printed = self._finish(["bash", "-c", command], self.bare_environment())
        return dict(line.split("=", 1) for line in printed.split("\0") if line)

    def bare_environment(self) -> Mapping[str, str]:
        """Return the variables of a shell without any AWS settings."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TRAINYARD_HOME": str(self.yard.home.root),
            "LANG": "C.UTF-8",
        }

    def run(self, flow: str, environment: str, exports: Mapping[str, str], *, words: Sequence[str] = ()) -> str:
        """Run one of the flows with the Python of an environment. The flow contains the assertions."""
        return self.run_file(FLOWS / f"{flow}.py", environment, exports, words=words)

    def run_file(self, file: Path, environment: str, exports: Mapping[str, str], *, words: Sequence[str] = ()) -> str:
        """Run a program with the Python of an environment, and return its output."""
        python = sys.executable if environment == PROJECT else interpreter(environment)
        return self._finish([str(python), "-X", "utf8", str(file), *words], exports)

    def _finish(self, command: list[str], environment: Mapping[str, str]) -> str:
        with subprocess.Popen(
            command,
            env={**environment, "PYTHONFAULTHANDLER": "1"},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                printed, complained = process.communicate(timeout=FLOW_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                # Makes Python print its stack.
                os.killpg(process.pid, signal.SIGABRT)
                printed, complained = process.communicate()
        said = f"{printed[-2000:]}\n{complained[-6000:]}"
        assert process.returncode == 0, f"{command} ended with {process.returncode}:\n{said}"
        return printed


@pytest.fixture(scope="session")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("conformance") / "yard") as running:
        yield running


@pytest.fixture
def person(yard: RunningYard, tmp_path: Path) -> Person:
    home = tmp_path / "home"
    home.mkdir()
    return Person(yard, home)
