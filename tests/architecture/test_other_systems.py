"""The SDK and the command line can be imported where no yard runs: on macOS and Windows."""

import subprocess
import sys

from tests.architecture.layers import SOURCE

# For scripts inside jobs; they need a framework or numpy on every system.
_FOR_JOBS = {"hook", "parameter_server", "trial"}


def test_the_sdk_is_imported_without_linux() -> None:
    modules = [path.stem for path in sorted(SOURCE.glob("*.py"))]
    _run("import", *(f"trainyard.{name}" for name in modules if name not in _FOR_JOBS and not name.startswith("__")))


def test_every_command_is_imported_without_linux() -> None:
    paths = [path.relative_to(SOURCE).with_suffix("") for path in sorted((SOURCE / "cli").rglob("*.py"))]
    _run("import", *(".".join(("trainyard", *path.parts)) for path in paths if not path.stem.startswith("__")))


def test_the_help_is_printed_without_linux() -> None:
    assert "Train a script." in _run("trainyard", "--help")


def _run(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.other_system", *arguments]
    run = subprocess.run(command, cwd=SOURCE.parents[1], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout
