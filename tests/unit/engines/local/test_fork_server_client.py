"""Forked agents behave like spawned ones, and a failing fork server does no harm."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainyard.engines.contract import AttemptRef
from trainyard.engines.local import LocalEngine, fork_server_client
from trainyard.engines.local.agent_launch import AgentLaunch, spawn_agent
from trainyard.engines.local.code import AgentCode, ensure_agent_code
from trainyard.engines.local.fork_server_client import ForkServerClient
from trainyard.foundation.home import process_start
from trainyard.link.agent_process import find_agent_process
from trainyard.link.file_locks import hold, is_held
from trainyard.link.folders import InstanceFolder
from trainyard.testing.engines.samples import SampleEnvironment, attempt_specs
from trainyard.testing.eventually import eventually

PYTHON = os.path.realpath("/proc/self/exe")

# Takes the place of the agent: writes down what it finds itself to be, and ends when it is told.
WITNESS = """
import json, os, random, sys, time
from pathlib import Path

def main(arguments):
    folder = Path(arguments[0])
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
    seen = {
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
        "argv": sys.argv,
        "path": sys.path[0],
        "is_leader": os.getsid(0) == os.getpgid(0) == os.getpid(),
        "open": sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if n not in "012"
                       and os.path.exists(f"/proc/self/fd/{n}")),
        "inheritable": [os.readlink(f"/proc/self/fd/{n}") for n in map(int, os.listdir("/proc/self/fd"))
                        if os.path.exists(f"/proc/self/fd/{n}") and os.get_inheritable(n)],
        "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt")},
        "threads": status["Threads"],
        "umask": status["Umask"],
        "command": Path("/proc/self/cmdline").read_bytes().rstrip(b"\\0").decode().split("\\0"),
        "draw": random.random(),
    }
    print("said aloud", flush=True)
    (folder / "told.part").write_text(json.dumps(seen))
    (folder / "told.part").rename(folder / "told")
    while not (folder / "go").exists():
        time.sleep(0.005)
    if (folder / "stumble").exists():
        raise RuntimeError("stumbled")
    return 0

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def code(tmp_path: Path) -> AgentCode:
    """A copy of the code in which the agent is a witness."""
    copy = ensure_agent_code(tmp_path / "agents")
    agent = copy.folder / "trainyard" / "instance" / "agent" / "main.py"
    agent.write_text(WITNESS)
    return copy


@pytest.fixture
def client(code: AgentCode) -> ForkServerClient:
    made = ForkServerClient(code, python=PYTHON)
    made.start()
    return made


@pytest.fixture
def launch(tmp_path: Path, code: AgentCode) -> Iterator[Callable[..., InstanceFolder]]:
    """Launches an agent in a given way, and lets all of them exit at the end."""
    folders: list[InstanceFolder] = []

    def launch_by(way: Callable[[AgentLaunch], int | None]) -> InstanceFolder:
        folder = InstanceFolder(tmp_path / f"algo-{len(folders)}")
        folder.root.mkdir()
        folders.append(folder)

        def try_it() -> bool:
            held, using = hold(folder.lock), hold(code.lock_file, shared=True)
            assert held is not None
            assert using is not None
            with folder.agent_log.open("ab") as log:
                pid = way(AgentLaunch(folder.root, held, using, log.fileno()))
            os.close(held)
            os.close(using)
            return pid is not None

        eventually(try_it)
        return folder

    yield launch_by
    for folder in folders:
        (folder.root / "go").touch()
        eventually(lambda folder=folder: not is_held(folder.lock))  # type: ignore[misc]


def told(folder: InstanceFolder) -> dict[str, Any]:
    eventually((folder.root / "told").exists)
    seen: dict[str, Any] = json.loads((folder.root / "told").read_text().replace(str(folder.root), "FOLDER"))
    return seen


def pid_of(folder: InstanceFolder) -> int:
    eventually(folder.agent.exists)
    presence = find_agent_process(folder.root)
    assert presence is not None
    return presence.pid


def pid_of_fork_server(agents: Path) -> int:
    """The fork server that runs from a copy below a folder."""

    def look() -> int:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if f"{agents}/" in (line := entry.read_bytes().decode(errors="replace")) and "fork_server.py" in line:
                    return int(entry.parent.name)
        return 0

    return eventually(look)


def test_a_forked_agent_is_what_a_spawned_one_is(
    code: AgentCode, client: ForkServerClient, launch: Callable[..., InstanceFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    forked_first = launch(client.fork_agent)
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    forked, spawned = launch(client.fork_agent), launch(lambda request: spawn_agent(request, code, python=PYTHON))

    seen, wanted = told(forked), told(spawned)
    assert seen.pop("draw") != told(forked_first)["draw"]
    del wanted["draw"]
    # It closes its holds by itself, of which the numbers are no longer of use.
    assert seen["command"] == wanted["command"][: len(seen["command"])]
    assert seen["command"][-1] == "FOLDER"
    del seen["command"], wanted["command"]
    assert seen == wanted
    assert seen["environment"]["PIP_INDEX_URL"] == "https://index.example"
    assert "AWS_SECRET_ACCESS_KEY" not in seen["environment"]
    assert seen["is_leader"]
    assert forked.agent_log.read_text() == "said aloud\n"


def test_the_lock_is_the_agents_alone_and_ends_with_it(
    tmp_path: Path, client: ForkServerClient, launch: Callable[..., InstanceFolder]
) -> None:
    folder = launch(client.fork_agent)
    pid, fork_server = pid_of(folder), pid_of_fork_server(tmp_path)
    kept = [str(entry.readlink()) for entry in Path(f"/proc/{fork_server}/fd").iterdir()]

    assert not any(str(tmp_path) in path for path in kept)
    assert is_held(folder.lock)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_held(folder.lock))


def test_an_agent_that_ended_leaves_nothing_in_the_process_table(
    client: ForkServerClient, launch: Callable[..., InstanceFolder]
) -> None:
    folder = launch(client.fork_agent)
    pid = pid_of(folder)

    (folder.root / "go").touch()

    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_the_error_of_an_agent_is_in_its_log(client: ForkServerClient, launch: Callable[..., InstanceFolder]) -> None:
    folder = launch(client.fork_agent)
    (folder.root / "stumble").touch()

    (folder.root / "go").touch()

    eventually(lambda: not is_held(folder.lock))
    assert "RuntimeError: stumbled" in folder.agent_log.read_text()


def test_the_fork_server_ends_with_its_client_and_its_agents_keep_running(
    tmp_path: Path, code: AgentCode, launch: Callable[..., InstanceFolder]
) -> None:
    short_lived = ForkServerClient(code, python=PYTHON)
    folder = launch(short_lived.fork_agent)
    pid, fork_server = pid_of(folder), pid_of_fork_server(tmp_path)

    del short_lived

    eventually(lambda: process_start(fork_server) is None)
    assert process_start(pid) is not None
    assert is_held(folder.lock)


def test_nobody_waits_for_a_fork_server_that_is_getting_ready(tmp_path: Path, code: AgentCode) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexec sleep 3600\n")
    script.chmod(0o755)
    slow = ForkServerClient(code, python=str(script))
    before = time.monotonic()

    assert slow.fork_agent(AgentLaunch(tmp_path, 0, 0, 0)) is None

    assert time.monotonic() - before < fork_server_client.FORK_TIMEOUT_S
    os.kill(eventually(lambda: next(filter(is_asleep, children()), 0)), signal.SIGKILL)


def is_asleep(pid: int) -> bool:
    """Whether a process has become the program of that name."""
    return b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_python_that_cannot_be_started_is_no_fork_server(tmp_path: Path, code: AgentCode) -> None:
    assert ForkServerClient(code, python=str(tmp_path / "absent")).fork_agent(AgentLaunch(tmp_path, 0, 0, 0)) is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_instance_starts_once_although_the_fork_server_is_lost(
    tmp_path: Path, code: AgentCode, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(fork_server_client, "FORK_TIMEOUT_S", 0.2)
    engine = LocalEngine(tmp_path / "jobs", tmp_path / "agents", python=PYTHON)
    (first,) = engine.start(attempt_specs(SampleEnvironment(tmp_path / "objects")))
    fork_server = pid_of_fork_server(tmp_path)
    eventually(lambda: is_waiting(fork_server))
    os.kill(fork_server, number)

    (second,) = engine.start(attempt_specs(SampleEnvironment(tmp_path / "objects")))

    folders = [each.folder(tmp_path / "jobs") for each in (first, second)]
    for each in (first, second):
        assert engine.is_alive(each)
    assert len({pid_of(folder) for folder in folders}) == 2
    for folder in folders:
        told(folder)
        (folder.root / "go").touch()
    for each in (first, second):
        engine.end(AttemptRef(each.attempt.job_id, 1))


def is_waiting(fork_server: int) -> bool:
    """Whether it is ready, and has gone to sleep until somebody asks."""
    is_asleep = "S (sleeping)" in Path(f"/proc/{fork_server}/status").read_text()
    return is_asleep and len(list(Path(f"/proc/{fork_server}/fd").iterdir())) == 4


def children() -> list[int]:
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
