import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.disk_recorder import DiskRecorder, power_cuts
from trainyard.engines.local.code import MODULES, PACKAGE, PARTS, ensure_agent_code
from trainyard.link.file_locks import hold


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    return tmp_path / "agents"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small package, to be changed."""
    folder = tmp_path / "installed"
    (folder / "link").mkdir(parents=True)
    for module in MODULES:
        (folder / module).write_text("")
    (folder / "link" / "spool.py").write_text("FORMAT = 1\n")
    return folder


def test_the_copy_holds_what_runs_on_an_instance_and_nothing_of_the_yard(agents: Path) -> None:
    code = ensure_agent_code(agents)

    copied = {path.name for path in (code.folder / "trainyard").iterdir() if path.is_dir()} - {"__pycache__"}
    assert copied == {part.partition("/")[0] for part in PARTS}
    assert [path.name for path in (code.folder / "trainyard" / "_sdk").iterdir()] == ["experiments"]
    for part in PARTS:
        sources = {path.relative_to(PACKAGE) for path in (PACKAGE / part).rglob("*.py")}
        assert {
            path.relative_to(code.folder / "trainyard") for path in (code.folder / "trainyard" / part).rglob("*.py")
        } == (sources)


def test_a_power_cut_leaves_a_whole_copy_or_none(package: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "agents").mkdir(parents=True)
    recorder = DiskRecorder(disk)

    name = recorder.run(lambda: ensure_agent_code(disk / "agents", package)).folder.name

    for call, left in power_cuts(recorder, tmp_path):
        copy = left / "agents" / name
        assert not copy.exists() or (copy / "trainyard" / "link" / "spool.py").read_text() == "FORMAT = 1\n", call


def test_several_engines_may_make_it_at_once(agents: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        made = {future.result().folder for future in [threads.submit(ensure_agent_code, agents) for _ in range(4)]}

    assert list(agents.iterdir()) == list(made)


def test_the_copy_runs_without_the_installed_package(agents: Path) -> None:
    code = ensure_agent_code(agents)
    script = (
        f"import sys; sys.path.insert(0, {str(code.folder)!r}); import trainyard.link.spool as s; print(s.__file__)"
    )

    printed = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)

    assert printed.stdout.strip() == str(code.folder / "trainyard" / "link" / "spool.py")


def test_the_same_code_is_copied_once(agents: Path) -> None:
    first = ensure_agent_code(agents)
    made = first.agent_program.stat().st_mtime_ns

    assert ensure_agent_code(agents) == first
    assert first.agent_program.stat().st_mtime_ns == made
    assert [path.name for path in agents.iterdir()] == [first.folder.name]


def test_changed_code_is_another_copy_and_the_old_one_goes(agents: Path, package: Path) -> None:
    first = ensure_agent_code(agents, package)
    (package / "link" / "spool.py").write_text("FORMAT = 2\n")

    second = ensure_agent_code(agents, package)

    assert second != first
    assert (second.folder / "trainyard" / "link" / "spool.py").read_text() == "FORMAT = 2\n"
    assert not first.folder.exists()


def test_a_copy_that_an_agent_uses_stays(agents: Path, package: Path) -> None:
    first = ensure_agent_code(agents, package)
    using = hold(first.lock_file, shared=True)
    assert using is not None
    (package / "link" / "spool.py").write_text("FORMAT = 2\n")

    second = ensure_agent_code(agents, package)
    assert (first.folder / "trainyard" / "link" / "spool.py").read_text() == "FORMAT = 1\n"

    os.close(using)
    ensure_agent_code(agents, package)
    assert [path.name for path in agents.iterdir()] == [second.folder.name]


def test_the_remains_of_a_copy_after_a_crash_are_removed(agents: Path, package: Path) -> None:
    (agents / ".new-abc" / "trainyard").mkdir(parents=True)

    code = ensure_agent_code(agents, package)

    assert [path.name for path in agents.iterdir()] == [code.folder.name]
