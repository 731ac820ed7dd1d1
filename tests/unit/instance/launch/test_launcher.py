"""A launcher as a process of its own, with real ranks."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import trainyard
from trainyard.foundation.interpreter import boot_code
from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.instance.launch.spec import LauncherSpec, decode_spec, encode_spec
from trainyard.instance.launch.variables import RankCluster
from trainyard.testing.eventually import eventually

BOOT = boot_code("trainyard.instance.launch.main")
PACKAGE = str(Path(trainyard.__file__).parent)


def orders(folder: Path, kind: LaunchKind = LaunchKind.TORCHRUN, *, processes: int = 3) -> LauncherSpec:
    counts = {"algo-1": 1, "algo-2": processes}
    addresses = {"algo-1": "127.0.0.1", "algo-2": "127.0.0.1"}
    cluster = RankCluster(kind, processes=counts, addresses=addresses, host="algo-2", port=7000, run="j-1")
    return LauncherSpec(cluster, folder=str(folder), threads=2, python=sys.executable, secret="hush")


def start(script: str, given: LauncherSpec, **variables: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-I", "-S", "-c", BOOT, PACKAGE, encode_spec(given), sys.executable, "-c", script]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1", **variables}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def run(script: str, given: LauncherSpec, **variables: str) -> tuple[int, list[str]]:
    started = start(script, given, **variables)
    output, _ = started.communicate(timeout=60)
    return started.returncode, sorted(output.splitlines())


def failures(folder: Path) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads((folder / "failures.json").read_text())
    return told


def test_orders_arrive_as_they_were_given(tmp_path: Path) -> None:
    given = orders(tmp_path, LaunchKind.MPI)
    read = decode_spec(encode_spec(given))
    assert vars(read.cluster) == vars(given.cluster)
    assert {**vars(read), "cluster": None} == {**vars(given), "cluster": None}


def test_each_rank_has_its_own_variables_and_its_share_of_the_threads(tmp_path: Path) -> None:
    script = "import os; print(os.environ['RANK'], os.environ['LOCAL_RANK'], os.environ['OMP_NUM_THREADS'])"
    assert run(script, orders(tmp_path)) == (0, ["1 0 2", "2 1 2", "3 2 2"])
    assert run(script, orders(tmp_path), OMP_NUM_THREADS="7") == (0, ["1 0 7", "2 1 7", "3 2 7"])
    assert sorted(json.loads((tmp_path / "ranks.json").read_text())) == ["1", "2", "3"]
    assert not (tmp_path / "failures.json").exists()


def test_lines_of_ranks_that_write_in_pieces_stay_whole(tmp_path: Path) -> None:
    script = "import os\nfor n in range(300): print(os.environ['RANK'] * 40, 'and', os.environ['RANK'] * 40)"
    code, lines = run(script, orders(tmp_path))
    assert code == 0
    assert lines == sorted(f"{rank * 40} and {rank * 40}" for rank in "123" for _ in range(300))


def test_lines_of_a_job_by_mpi_say_which_rank_wrote_them_where(tmp_path: Path) -> None:
    script = "import os, sys\nprint('out')\nprint('error', file=sys.stderr)"
    _, lines = run(script, orders(tmp_path, LaunchKind.MPI, processes=1))
    assert lines == ["[1,mpirank:1,algo-2]<stderr>:error", "[1,mpirank:1,algo-2]<stdout>:out"]


def test_a_rank_that_fails_ends_the_others_and_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    script = "import os, time\nif os.environ['RANK'] == '2': raise SystemExit('no such file')\ntime.sleep(600)"
    code, _ = run(script, orders(tmp_path))
    assert code == 1
    (told,) = failures(tmp_path)
    assert (told["rank"], told["code"], told["tail"]) == (2, 1, "no such file\n")


def test_the_launcher_ends_by_the_signal_that_ended_the_rank(tmp_path: Path) -> None:
    script = "import os, signal, time\nif os.environ['RANK'] == '3': os.kill(os.getpid(), 11)\ntime.sleep(600)"
    code, _ = run(script, orders(tmp_path))
    assert code == -signal.SIGSEGV
    assert [(told["rank"], told["code"]) for told in failures(tmp_path)] == [(3, -signal.SIGSEGV)]


def test_ranks_that_fail_soon_after_each_other_are_all_reported_in_order(tmp_path: Path) -> None:
    script = "import os, time\nrank = int(os.environ['RANK'])\ntime.sleep(0.2 * (3 - rank))\nraise SystemExit(rank)"
    code, _ = run(script, orders(tmp_path))
    assert code == 3
    assert [told["rank"] for told in failures(tmp_path)] == [3, 2, 1]


def test_sigterm_goes_to_every_rank_and_what_they_make_of_it_counts(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit('saved by ' + os.environ['RANK']))\n"
        "print('ready')\ntime.sleep(600)"
    )
    started = start(script, orders(tmp_path))
    assert started.stdout is not None
    assert [started.stdout.readline() for _ in range(3)] == ["ready\n"] * 3
    started.terminate()
    output, _ = started.communicate(timeout=60)
    assert sorted(output.splitlines()) == ["saved by 1", "saved by 2", "saved by 3"]
    assert started.returncode == 1


def test_a_rank_that_is_stopped_learns_of_sigterm(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit('saved by ' + os.environ['RANK']))\n"
        "print('ready')\n"
        "if os.environ['RANK'] == '2': os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(600)"
    )
    started = start(script, orders(tmp_path))
    assert started.stdout is not None
    assert [started.stdout.readline() for _ in range(3)] == ["ready\n"] * 3
    started.terminate()
    output, _ = started.communicate(timeout=60)
    assert sorted(output.splitlines()) == ["saved by 1", "saved by 2", "saved by 3"]


@pytest.fixture
def served(tmp_path: Path) -> dict[str, str]:
    """An environment in which the server of parameters is one that ends when a file is there."""
    package = tmp_path / "package" / "trainyard"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "parameter_server.py").write_text(
        "import os, time\nprint('serves', os.environ['TRAINYARD_PS_INDEX'], os.environ['TRAINYARD_PS_TOKEN'])\n"
        "while not os.path.exists(os.environ['DONE']): time.sleep(0.02)\nprint('served')\n"
    )
    return {"PYTHONPATH": str(package.parent), "DONE": str(tmp_path / "done")}


def test_a_worker_that_dies_is_started_again_beside_a_server_that_serves_on(
    tmp_path: Path, served: dict[str, str]
) -> None:
    script = (
        "import os, pathlib\nprint('try', os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': os.kill(os.getpid(), 9)\n"
        "pathlib.Path(os.environ['DONE']).touch()"
    )
    code, lines = run(script, orders(tmp_path, LaunchKind.PARAMETER_SERVER, processes=1), **served)
    assert code == 0
    assert lines == [
        "[trainyard] rank 1 was killed by signal 9; restarting it, 1 of 3.",
        "served",
        "serves 1 hush",
        "try 0",
        "try 1",
    ]


def test_a_worker_that_dies_again_and_again_has_failed(tmp_path: Path, served: dict[str, str]) -> None:
    code, lines = run("raise SystemExit(5)", orders(tmp_path, LaunchKind.PARAMETER_SERVER, processes=1), **served)
    assert code == 5
    assert sum("restarting it" in line for line in lines) == 3
    assert [(told["rank"], told["code"]) for told in failures(tmp_path)] == [(1, 5)]
    eventually(lambda: not _processes_that_know(tmp_path))


def _processes_that_know(folder: Path) -> list[str]:
    """Those that were started with the folder in a variable, and have not ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.fsencode(folder) in (process / "environ").read_bytes():
                found.append(process.name)
    return found


def test_a_server_that_fails_is_reported_without_a_rank(tmp_path: Path, served: dict[str, str]) -> None:
    given = orders(tmp_path, LaunchKind.PARAMETER_SERVER, processes=1)
    code, _ = run("import time; time.sleep(600)", given, PYTHONPATH=served["PYTHONPATH"])
    assert code == 1
    assert failures(tmp_path)[0]["rank"] is None


def test_a_program_that_cannot_be_executed_says_so(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-S", "-c", BOOT, PACKAGE, encode_spec(orders(tmp_path)), "/no/such/program"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert ended.returncode == 127
    assert ended.stdout.splitlines() == ["Cannot execute /no/such/program: No such file or directory"] * 3
