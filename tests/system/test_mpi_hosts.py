"""The launchers of several hosts with an mpirun that starts what it is told to, without messages between ranks."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import trainyard
from trainyard.foundation.interpreter import boot_code
from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.instance.launch.spec import LauncherSpec, MpirunSpec, encode_spec
from trainyard.instance.launch.variables import RankCluster
from trainyard.testing.eventually import eventually

BOOT = boot_code("trainyard.instance.launch.main")
PACKAGE = str(Path(trainyard.__file__).parent)
# Starts a daemon on each host, as mpirun does, by the agent it is given; each daemon starts the ranks of its host.
MPIRUN = """#!{python}
import os, shlex, subprocess, sys
if "--version" in sys.argv:
    sys.exit(print("{version}"))
words = sys.argv[1:]
hosts = [line.split() for line in open(words[words.index("--hostfile") + 1])]
agent = words[words.index("plm_ssh_agent") + 1]
program = words[words.index({python!r}):]
rank, started = 0, []
for number, (host, slots) in enumerate(hosts):
    lines = []
    for local in range(int(slots.partition("=")[2])):
        own = f"OMPI_COMM_WORLD_RANK={{rank}} OMPI_COMM_WORLD_LOCAL_RANK={{local}}"
        lines.append(f"{{own}} {{shlex.join(program)}} & p{{local}}=$!")
        rank += 1
    waits = "; ".join(f"wait $p{{local}} || code=$?" for local in range(len(lines)))
    line = "code=0\\n" + "\\n".join(lines) + f"\\n{{waits}}\\nexit $code"
    started.append(subprocess.Popen(["/bin/sh", "-c", line] if not number else [agent, host, line]))
codes = [each.wait() for each in started]
sys.exit(max(codes))
"""


class World:
    """Two hosts of a job, whose launchers are processes here."""

    def __init__(self, folder: Path, version: str) -> None:
        self.folder = folder
        self.mpirun = folder / "mpirun"
        self.mpirun.write_text(MPIRUN.format(python=sys.executable, version=version))
        self.mpirun.chmod(0o700)
        self.port = _free_port()

    def start(
        self, host: str, script: str, *, refusal: str = "", interface: str = "eth0", before: Sequence[str] = ()
    ) -> "subprocess.Popen[str]":
        own = self.folder / host
        own.mkdir()
        cluster = RankCluster(
            LaunchKind.MPI,
            processes={"algo-1": 2, "algo-2": 1},
            addresses={"algo-1": "127.0.0.1", "algo-2": "127.0.0.1"},
            host=host,
            port=self.port,
            run="j-1",
        )
        failure = str(own / "failure")
        mpi = MpirunSpec(str(self.mpirun), options=[], interface=interface, refusal=refusal, failure=failure)
        orders = LauncherSpec(cluster, folder=str(own), threads=1, python=sys.executable, secret="hush", mpi=mpi)
        boot = [sys.executable, "-I", "-S", "-c", BOOT, PACKAGE, encode_spec(orders)]
        words = [*before, *boot, sys.executable, "-c", script]
        environment = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1", "SM_CURRENT_HOST": host}
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    def run(self, script: str) -> tuple[list[int], list[str]]:
        started = [self.start(host, script) for host in ("algo-2", "algo-1")]
        lines = [line for each in started for line in each.communicate(timeout=60)[0].splitlines()]
        return [each.returncode for each in started], sorted(lines)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1]) - 2


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, "mpirun (Open MPI) 5.0.11")


def test_every_rank_runs_where_it_belongs_with_the_variables_of_its_host(world: World) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "SM_CURRENT_HOST")
    script = f"import os; print(*(os.environ[name] for name in {names}), 'TRAINYARD_LAUNCH' in os.environ)"
    codes, lines = world.run(script)
    assert codes == [0, 0]
    assert lines == [
        "[1,mpirank:0,algo-1]<stdout>:0 3 0 3 algo-1 False",
        "[1,mpirank:1,algo-1]<stdout>:1 3 1 3 algo-1 False",
        "[1,mpirank:2,algo-2]<stdout>:2 3 0 3 algo-2 False",
    ]
    assert sorted(json.loads((world.folder / "algo-1/ranks.json").read_text())) == ["0", "1"]


def test_a_rank_that_fails_is_reported_with_its_host_and_ends_all_hosts(world: World) -> None:
    codes, _ = world.run("import os, sys\nif os.environ['RANK'] == '2': sys.exit('no such file')")
    assert codes == [1, 1]
    (told,) = json.loads((world.folder / "algo-2/failures.json").read_text())
    assert (told["rank"], told["code"], told["tail"]) == (2, 1, "no such file\n")
    assert not (world.folder / "algo-1/failures.json").exists()


def test_ranks_that_are_to_stop_may_take_their_time(world: World) -> None:
    script = (
        "import os, signal, sys, time\n"
        "def stop(*_):\n    time.sleep(0.3 * (os.environ['RANK'] == '0'))\n    print('saved')\n    sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, stop)\nprint('ready')\ntime.sleep(600)"
    )
    follower, leader = started = [world.start(host, script) for host in ("algo-2", "algo-1")]
    assert follower.stdout is not None
    assert leader.stdout is not None
    ready = [follower.stdout.readline(), leader.stdout.readline(), leader.stdout.readline()]
    assert all(line.endswith("ready\n") for line in ready)
    for each in started:
        each.send_signal(signal.SIGTERM)
    lines = [line for each in started for line in each.communicate(timeout=60)[0].splitlines()]
    assert sorted(line.rpartition(":")[2] for line in lines) == ["saved"] * 3


@pytest.mark.parametrize("host", ["algo-1", "algo-2"])
def test_a_host_that_waits_for_others_ends_when_asked_to(world: World, host: str) -> None:
    started = world.start(host, "print('never')")
    eventually(lambda: (world.folder / host / "ranks.socket").exists())
    started.send_signal(signal.SIGTERM)
    assert started.communicate(timeout=60)[0] == ""
    assert started.returncode == -signal.SIGTERM


def test_a_host_ends_when_the_first_one_is_no_more(world: World) -> None:
    follower, leader = [
        world.start(host, "print('ready')\nimport time; time.sleep(600)") for host in ("algo-2", "algo-1")
    ]
    assert follower.stdout is not None
    assert follower.stdout.readline().endswith("ready\n")
    told = [world.folder / host / "ranks.json" for host in ("algo-1", "algo-2")]
    eventually(lambda: all(file.exists() for file in told))
    led, ranks = (json.loads(file.read_text()) for file in told)
    leader.kill()
    os.kill(ranks["2"], signal.SIGKILL)  # which the end of its sandbox does
    output, _ = follower.communicate(timeout=60)
    assert "Lost algo-1" in output
    assert follower.returncode == 1
    for pid in led.values():
        os.kill(pid, signal.SIGKILL)
    leader.communicate(timeout=60)


def test_another_mpirun_leaves_the_ranks_to_the_launcher_of_our_own(tmp_path: Path) -> None:
    world = World(tmp_path, "HYDRA build details:")
    started = world.start("algo-2", "import os; print(os.environ['RANK'])")
    lines = started.communicate(timeout=60)[0].splitlines()
    assert lines[0].startswith("[trainyard] Not using ")
    assert lines[0].endswith(', because it is "HYDRA build details:", not Open MPI 4 or 5.')
    assert lines[1] == "[1,mpirank:2,algo-2]<stdout>:2"
    assert started.returncode == 0


def test_a_program_that_needs_one_fails_with_the_reason(tmp_path: Path) -> None:
    world = World(tmp_path, "HYDRA build details:")
    started = world.start("algo-2", "print('never')", refusal="The code imports mpi4py.")
    assert "never" not in started.communicate(timeout=60)[0]
    assert started.returncode == 1
    assert (world.folder / "algo-2/failure").read_text() == "The code imports mpi4py."


def test_open_mpi_5_is_not_used_for_several_hosts_where_there_is_only_the_loopback(tmp_path: Path) -> None:
    world = World(tmp_path, "mpirun (Open MPI) 5.0.11")
    words = ["unshare", "--map-root-user", "--net", "--"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no network namespaces")
    started = world.start("algo-2", "import os; print(os.environ['RANK'])", interface="lo", before=words)
    lines = started.communicate(timeout=60)[0].splitlines()
    assert lines[0].endswith("because Open MPI 5 needs a network link besides loopback for several hosts.")
    assert lines[1] == "[1,mpirank:2,algo-2]<stdout>:2"
