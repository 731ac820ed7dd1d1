import json
import os
import subprocess
import sys
from pathlib import Path

import trainyard
from trainyard.instance.warm.circumstances import circumstances, code_version, lasting_mounts, state_of

SHOWN = (
    "import json; from trainyard.instance.warm.circumstances import circumstances; print(json.dumps(circumstances()))"
)
MOUNTED = ("/", "/data", "/tmpfiles", "/tmp", "/tmp/other/channel", "/proc", "/run/user/7", "/var/lib/containers/x")
SOURCE = Path(trainyard.__file__).parents[1]


def elsewhere(*prefix: str) -> object:
    """The circumstances of another process."""
    command = [*prefix, sys.executable, "-c", SHOWN]
    run = subprocess.run(command, capture_output=True, check=True, env={"PYTHONPATH": str(SOURCE), "PATH": os.defpath})
    return json.loads(run.stdout)


def test_they_are_the_same_for_two_processes_in_the_same_place() -> None:
    assert elsewhere() == json.loads(json.dumps(circumstances()))


def test_another_set_of_processors_is_another_place() -> None:
    assert elsewhere("taskset", "-c", str(min(os.sched_getaffinity(0)))) != circumstances() or os.cpu_count() == 1


def test_mounts_that_no_job_sees_make_no_difference() -> None:
    lines = [f"{number} 1 0:{number} / {target} rw - tmpfs none rw" for number, target in enumerate(MOUNTED)]
    assert lasting_mounts("\n".join(lines)) == ["0:0 / /", "0:1 / /data", "0:2 / /tmpfiles"]


def test_an_installation_changes_the_state_of_a_folder(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(1, 1))
    before = state_of([str(tmp_path), str(tmp_path / "absent")])
    (tmp_path / "new.dist-info").mkdir()
    assert list(before) == [str(tmp_path)]
    assert state_of(before) != before


def test_a_change_of_the_code_is_another_version(tmp_path: Path) -> None:
    for name in ("instance/warm/worker.py", "instance/sandbox/keeper.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    before = code_version(tmp_path)
    assert code_version(tmp_path) == before
    os.utime(tmp_path / "instance/sandbox/keeper.py", (9_999_999_999, 9_999_999_999))
    assert code_version(tmp_path) != before
