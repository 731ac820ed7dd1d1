"""How the hook gets into a program, whatever Trainyard its environment has."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.instance.launch import import_watcher

# What the agent's version of the package does when it is attached: it tells who it is.
ATTACHMENT = """
def attach_hook(framework, ml, environment):
    from trainyard.marker import OWNER
    import trainyard.marker
    print("attached to", framework, "of", OWNER, trainyard.marker.OWNER, "as", __name__.partition(".")[0])
"""
PROGRAM = """
import sys
exec(compile(open({source!r}).read(), {source!r}, "exec"), names := {{"__name__": "trainyard_import_watcher"}})
import os; names["attach_on_import"](os.environ)
import {imported}
try:
    import trainyard.marker
    print("the program has", trainyard.marker.OWNER)
except ImportError:
    print("the program has none")
print(hasattr(sys.modules[{imported!r}].__spec__.loader, "exec_module"), {imported}.VALUE)
"""


def make_package(folder: Path, owner: str, *, version: str, attachment: str = ATTACHMENT) -> Path:
    package = folder / "trainyard"
    (package / "instance" / "rule_evaluation").mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (package / "marker.py").write_text(f"OWNER = {owner!r}\n")
    for inner in ("instance", "instance/rule_evaluation"):
        (package / inner / "__init__.py").write_text("")
    (package / "instance" / "rule_evaluation" / "hook_attachment.py").write_text(attachment)
    return package


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that a program runs in, with a framework."""
    made = tmp_path / "place"
    made.mkdir()
    (made / "torch.py").write_text("VALUE = 5\n")
    (made / "input" / "config").mkdir(parents=True)
    (made / "input" / "config" / "debughookconfig.json").write_text("{}")
    (made / "other.py").write_text("VALUE = 6\n")
    return made


def run(place: Path, package: Path, *, imported: str = "torch", ml: Path | None = None) -> list[str]:
    environment = {"TRAINYARD_HOOK": str(ml or place), "TRAINYARD_PACKAGE": str(package)}
    program = PROGRAM.format(source=import_watcher.__file__, imported=imported)
    # Without `site`, the environment has nothing but the standard library and the folder.
    ended = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=place, env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def test_where_the_environment_has_none_the_agents_version_is_used(place: Path, tmp_path: Path) -> None:
    package = make_package(tmp_path / "agent", "agent", version="2")
    assert run(place, package) == [
        "attached to torch of agent agent as trainyard",
        "the program has agent",
        "True 5",
    ]


def test_an_environment_of_the_same_version_shares_its_own(place: Path, tmp_path: Path) -> None:
    make_package(place, "environment", version="2")
    package = make_package(tmp_path / "agent", "agent", version="2")
    assert run(place, package)[:2] == [
        "attached to torch of environment environment as trainyard",
        "the program has environment",
    ]


def test_another_version_stays_the_programs_own_and_the_hook_is_the_agents(place: Path, tmp_path: Path) -> None:
    make_package(place, "environment", version="1")
    package = make_package(tmp_path / "agent", "agent", version="2")
    assert run(place, package)[:2] == [
        "attached to torch of agent agent as trainyard_of_agent",
        "the program has environment",
    ]


def test_a_program_without_a_framework_is_left_alone(place: Path, tmp_path: Path) -> None:
    package = make_package(tmp_path / "agent", "agent", version="2")
    assert run(place, package, imported="other") == ["the program has none", "True 6"]


def test_a_hook_that_cannot_be_loaded_is_noted_and_the_program_continues(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package(tmp_path / "agent", "agent", version="2", attachment="import no_such_thing\n")
    (place / ".trainyard").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(place)  # since the path of a socket must be short
        listener.bind(".trainyard/told")
        listener.listen()
        assert run(place, package)[-1] == "True 5"
        connection, _ = listener.accept()
        with connection:
            told = json.loads(connection.recv(4096))
    assert told == {
        "kind": "note",
        "payload": {"text": "The tensors of the program are not captured: No module named 'no_such_thing'."},
    }


def test_a_program_whose_steps_are_timed_needs_no_capture(place: Path, tmp_path: Path) -> None:
    package = make_package(tmp_path / "agent", "agent", version="2")
    add_profiler(package, "print('timing', framework)")
    config = place / "input" / "config"
    (config / "debughookconfig.json").rename(config / "profilerconfig.json")
    assert run(place, package)[0] == "timing torch"


def test_a_profiler_that_cannot_be_loaded_changes_nothing(place: Path, tmp_path: Path) -> None:
    package = make_package(tmp_path / "agent", "agent", version="2")
    add_profiler(package, "raise RuntimeError('planted')")
    (place / "input" / "config" / "profilerconfig.json").write_text("{}")
    assert run(place, package) == ["attached to torch of agent agent as trainyard", "the program has agent", "True 5"]


def add_profiler(package: Path, body: str) -> None:
    folder = package / "instance" / "hook" / "profiling"
    folder.mkdir(parents=True)
    for each in (folder.parent, folder):
        (each / "__init__.py").write_text("")
    (folder / "attachment.py").write_text(f"def attach_profiler(framework, ml, environment, *, note):\n    {body}\n")
