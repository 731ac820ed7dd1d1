"""What the local engine does around its agents; what it does with them is in the contract suite."""

import errno
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.disk_recorder import DiskRecorder
from trainyard.engines.contract import AttemptRef
from trainyard.engines.local import LocalEngine
from trainyard.engines.local.code import MODULES, ensure_agent_code
from trainyard.engines.probe import ProbeResult
from trainyard.foundation.errors import Conflict, InvalidRequest, Unavailable
from trainyard.link.port_blocks import ENGINE, hold_block
from trainyard.testing.engines.samples import SampleEnvironment, attempt_specs
from trainyard.testing.eventually import eventually


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def environment(tmp_path: Path) -> SampleEnvironment:
    return SampleEnvironment(tmp_path / "objects")


def engine_with(tmp_path: Path, python: str, *, slots: int | None = None) -> LocalEngine:
    return LocalEngine(tmp_path / "jobs", tmp_path / "agents", python=python, slots=slots, forks=False)


def make_python(tmp_path: Path, script: str) -> str:
    """A program that is started in place of Python: $3 is the instance's folder, $4 and $5 are the holds."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_the_code_that_an_engine_starts_agents_from_stays_until_it_is_closed(tmp_path: Path) -> None:
    """Code that is installed while a yard runs comes with the next engine on its folder."""
    engine, agents, installed = engine_with(tmp_path, "/bin/true"), tmp_path / "agents", tmp_path / "installed"
    engine.make_ready()
    (copy,) = agents.iterdir()
    installed.mkdir()
    for name in MODULES:
        (installed / name).touch()

    newer = ensure_agent_code(agents, installed)
    assert set(agents.iterdir()) == {copy, newer.folder}

    engine.close()
    ensure_agent_code(agents, installed)
    assert set(agents.iterdir()) == {newer.folder}


def test_slots_are_as_many_as_cores_unless_set(tmp_path: Path) -> None:
    machine = engine_with(tmp_path, "/bin/true").capacity()

    assert machine.slots == max(1, int(machine.cpus))
    assert engine_with(tmp_path, "/bin/true", slots=7).capacity().slots == 7


def test_an_agent_that_dies_at_once_is_not_alive(tmp_path: Path, environment: SampleEnvironment) -> None:
    engine = engine_with(tmp_path, "/bin/false")

    (instance,) = engine.start(attempt_specs(environment))

    eventually(lambda: not engine.is_alive(instance))
    assert engine.reports(instance, 0).frames == ()
    engine.end(instance.attempt)


def test_an_agent_is_alive_and_not_started_again_before_its_first_report(
    tmp_path: Path, jobs: Path, environment: SampleEnvironment
) -> None:
    script = 'echo started >> "$3/starts"; while [ ! -e "$3/go" ]; do sleep 0.01; done'
    engine = engine_with(tmp_path, make_python(tmp_path, script))
    specs = attempt_specs(environment)
    (instance,) = engine.start(specs)
    root = instance.folder(jobs).root
    eventually((root / "starts").exists)

    assert engine.is_alive(instance)
    assert engine_with(tmp_path, "/bin/true").start(specs) == (instance,)

    (root / "go").touch()
    eventually(lambda: not engine.is_alive(instance))
    assert (root / "starts").read_text() == "started\n"


def test_an_agent_that_never_announces_itself_cannot_be_ended(
    tmp_path: Path, jobs: Path, environment: SampleEnvironment
) -> None:
    engine = engine_with(tmp_path, make_python(tmp_path, 'while [ ! -e "$3/go" ]; do sleep 0.01; done'))
    (instance,) = engine.start(attempt_specs(environment))

    with pytest.raises(Unavailable, match="has not announced its process id"):
        engine.end(instance.attempt, patience=timedelta(milliseconds=50))

    (instance.folder(jobs).root / "go").touch()
    engine.end(instance.attempt)
    assert not engine.is_alive(instance)


def test_a_python_that_cannot_be_started_leaves_nothing_running(tmp_path: Path, environment: SampleEnvironment) -> None:
    engine = engine_with(tmp_path, str(tmp_path / "absent"))
    specs = attempt_specs(environment, count=2)

    with pytest.raises(Unavailable, match="cannot be started"):
        engine.start(specs)

    with pytest.raises(Conflict):
        engine.start(specs)


def test_an_agent_knows_nothing_of_the_yards_secrets(
    tmp_path: Path, environment: SampleEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_SERVER_RECORDS", "postgresql://user:secret@host/db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example")
    engine = engine_with(tmp_path, make_python(tmp_path, 'env > "$3/env.part"; mv "$3/env.part" "$3/env"'))

    (instance,) = engine.start(attempt_specs(environment))

    seen = instance.folder(tmp_path / "jobs").root / "env"
    eventually(seen.exists)
    assert "secret" not in seen.read_text()
    assert "PIP_INDEX_URL=https://index.example" in seen.read_text().splitlines()


def test_agents_have_a_session_of_their_own_and_none_of_the_yards_descriptors(
    tmp_path: Path, jobs: Path, environment: SampleEnvironment
) -> None:
    script = """
    ls -l /proc/$$/fd > "$3/open"
    cut -d ' ' -f 6 /proc/$$/stat > "$3/session"
    echo $$ > "$3/pid"
    touch "$3/done"
    """
    engine = engine_with(tmp_path, make_python(tmp_path, script))
    with (tmp_path / "private").open("w") as private:
        os.set_inheritable(private.fileno(), True)
        (instance,) = engine.start(attempt_specs(environment))
        root = instance.folder(jobs).root
        eventually((root / "done").exists)

    assert (root / "session").read_text().strip() == (root / "pid").read_text().strip()
    assert "algo-1/lock" in (root / "open").read_text()
    assert "private" not in (root / "open").read_text()


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden"])
def test_names_that_lead_out_of_the_folder_are_refused(
    tmp_path: Path, environment: SampleEnvironment, name: str
) -> None:
    engine = engine_with(tmp_path, "/bin/true")
    (spec,) = attempt_specs(environment)

    with pytest.raises(InvalidRequest):
        engine.start([replace(spec, job_id=name)])
    with pytest.raises(InvalidRequest):
        engine.start([replace(spec, instance=name)])
    assert not (tmp_path / "jobs").exists()


def test_ending_clears_away_what_a_job_left_on_disk(tmp_path: Path, jobs: Path, environment: SampleEnvironment) -> None:
    script = 'mkdir -p "$3/ml/model" "$3/scratch"; touch "$3/ml/model/weights"; touch "$3/made"'
    engine = engine_with(tmp_path, make_python(tmp_path, script))
    (instance,) = engine.start(attempt_specs(environment))
    folder = instance.folder(jobs)
    eventually((folder.root / "made").exists)

    engine.end(instance.attempt)

    assert not folder.ml.exists()
    assert not folder.scratch.exists()
    assert folder.spec.exists()


def test_an_attempt_can_be_ended_by_name_alone(tmp_path: Path, jobs: Path) -> None:
    engine = engine_with(tmp_path, "/bin/true")

    engine.end(AttemptRef("never", 1))

    assert (jobs / "never" / "1" / "ended").exists()


def test_an_attempt_that_filled_the_disk_still_ends(
    tmp_path: Path, jobs: Path, environment: SampleEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_with(tmp_path, "/bin/false")
    specs = attempt_specs(environment)
    (instance,) = engine.start(specs)
    hoard = instance.folder(jobs).scratch / "hoard"
    hoard.parent.mkdir()
    hoard.touch()
    touch = Path.touch

    def refuse_while_full(path: Path, *arguments: Any, **named: Any) -> None:
        if hoard.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        touch(path, *arguments, **named)

    # A mock, because a full disk cannot be had without a file system of one's own.
    monkeypatch.setattr(Path, "touch", refuse_while_full)
    engine.end(instance.attempt)
    assert not hoard.exists()
    with pytest.raises(Conflict):
        engine.start(specs)


def test_a_successful_isolation_probe_is_remembered_and_a_failed_one_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe is played: a machine that allows bridges, or does not, cannot be had at will."""
    asked: list[int] = []
    answers = {
        1: ProbeResult(ok=True, detail="works"),
        2: ProbeResult(ok=False, detail="tried: Operation not permitted"),
    }

    def ask(instances: int) -> ProbeResult:
        asked.append(instances)
        return answers[instances]

    monkeypatch.setattr("trainyard.engines.probe.probe_isolation", ask)
    engine = engine_with(tmp_path, "python")
    assert [engine.why_not_isolated(1), engine.why_not_isolated(1)] == ["", ""]
    assert "tried: Operation not permitted" in engine.why_not_isolated(2)
    answers[2] = answers[1]
    assert [engine.why_not_isolated(count) for count in (2, 3, 1)] == ["", "", ""]
    assert asked == [1, 2, 2]


def test_an_attempt_that_was_ended_is_not_started_after_a_power_cut(
    tmp_path: Path, jobs: Path, environment: SampleEnvironment
) -> None:
    engine = engine_with(tmp_path, "/bin/false")
    specs = attempt_specs(environment)
    (instance,) = engine.start(specs)
    eventually(lambda: not engine.is_alive(instance))
    recorder = DiskRecorder(jobs)

    recorder.run(lambda: engine.end(instance.attempt))

    (tmp_path / "other").mkdir()
    recorder.cut_power(tmp_path / "other" / "jobs")
    with pytest.raises(Conflict):
        engine_with(tmp_path / "other", "/bin/false").start(specs)


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_ports_of_an_attempt_are_free_when_it_has_ended(
    tmp_path: Path, jobs: Path, environment: SampleEnvironment, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    engine = engine_with(tmp_path, "/bin/false")
    chosen: list[int] = []
    choose = engine._ports.allocate

    def remember(attempt: AttemptRef, count: int) -> int:
        chosen.append(choose(attempt, count))
        assert hold_block(chosen[0], ENGINE) is None, "somebody else could have them"
        if is_refused:
            raise OSError(errno.ENOSPC, "No space left on device")
        return chosen[0]

    monkeypatch.setattr(engine._ports, "allocate", remember)
    if is_refused:
        with pytest.raises(Unavailable):
            engine.start(attempt_specs(environment))
    else:
        (instance,) = engine.start(attempt_specs(environment))
        eventually(lambda: not engine.is_alive(instance))
        engine.end(instance.attempt)

    free = hold_block(chosen[0], ENGINE)
    assert free is not None
    free.close()
