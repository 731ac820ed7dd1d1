"""The command line as a user runs it: its output, its exit codes, and in a terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from trainyard.testing.yard import RunningYard

Output = subprocess.CompletedProcess[str]
LIMIT_S = 60


class CommandLine:
    """`trainyard` of the yard's own user, in a folder with scripts."""

    def __init__(self, yard: RunningYard, folder: Path, *, limit_s: float = LIMIT_S) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRAINYARD_"))}
        self.environment = kept | {"TRAINYARD_HOME": str(yard.home.root), "HOME": str(folder)}
        self.folder = folder
        self.limit_s = limit_s
        self.program = [sys.executable, "-m", "trainyard.cli"]

    def __call__(self, *arguments: str) -> Output:
        return subprocess.run(
            [*self.program, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=self.limit_s,
            check=False,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self.program, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def terminal(self, *arguments: str) -> "Terminal":
        return Terminal([*self.program, *arguments], self.environment | {"TERM": "xterm"}, self.folder)

    def read(self, *arguments: str) -> Any:
        answer = self(*arguments, "--json")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def script(self, text: str, name: str = "train.py") -> str:
        (self.folder / name).write_text(text)
        return name


class Terminal:
    """A program in a pseudo-terminal, with a reader and a writer."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._command, self._environment, self._folder = command, environment, folder
        self.exit_code: int | None = None

    def __enter__(self) -> Self:
        pid, self._keyboard = pty.fork()
        if not pid:
            os.chdir(self._folder)
            os.execve(self._command[0], self._command, self._environment)
        self._pid, self._seen = pid, ""
        return self

    def __exit__(self, *_: object) -> None:
        if self.exit_code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._keyboard)

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def read_until(self, text: str) -> None:
        """Read until a text arrives, and forget what came before it."""
        while text not in self._seen:
            assert self._read(), f"{text!r} did not arrive; got {self._seen!r}"
        self._seen = self._seen.partition(text)[2]

    def read_to_end(self) -> str:
        while self._read():
            pass
        self.exit_code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._seen

    def _read(self) -> bool:
        assert select.select([self._keyboard], [], [], LIMIT_S)[0], f"no output after {self._seen!r}"
        try:
            piece = os.read(self._keyboard, 65536)
        except OSError:
            # A terminal reports the exit of its program this way.
            return False
        self._seen += piece.decode(errors="replace")
        return bool(piece)
