import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainyard
from trainyard.instance.warm.process_context import (
    code_version,
    context_changes,
    package_mtimes,
    process_context,
    stable_mounts,
)

SHOWN = "import json; from trainyard.instance.warm import process_context as m; print(json.dumps(m.process_context()))"
SOURCE = Path(trainyard.__file__).parents[1]


def elsewhere(*prefix: str) -> object:
    """The context of another process."""
    command = [*prefix, sys.executable, "-c", SHOWN]
    run = subprocess.run(command, capture_output=True, check=True, env={"PYTHONPATH": str(SOURCE), "PATH": os.defpath})
    return json.loads(run.stdout)


def test_they_are_the_same_for_two_processes_in_the_same_place() -> None:
    assert elsewhere() == json.loads(json.dumps(process_context()))


def test_another_set_of_processors_is_another_place() -> None:
    assert elsewhere("taskset", "-c", str(min(os.sched_getaffinity(0)))) != process_context() or os.cpu_count() == 1


def mounted(*targets: str, kind: str = "ext4") -> dict[str, str]:
    lines = [f"{number} 1 0:{number} / {target} rw - {kind} none rw" for number, target in enumerate(targets)]
    return stable_mounts("\n".join(lines))


def test_mounts_that_no_job_sees_do_not_count() -> None:
    assert mounted("/", "/data", "/proc", "/run/user/7", "/var/lib/containers/x") == {"/": "0:0 /", "/data": "0:1 /"}
    assert mounted("/opt/yard/jobs/a/1/algo-1/channels/train", kind="fuse.trainyard") == {}


def test_of_two_mounts_at_one_place_the_later_is_seen() -> None:
    assert mounted("/data", "/data") == {"/data": "0:1 /"}


@pytest.mark.parametrize(
    ("target", "is_change"),
    [("/data", True), ("/data/set", True), ("/data/set/below", True), ("/data/sets", False), ("/other", False)],
)
def test_a_mount_counts_that_is_on_the_way_to_what_a_job_sees_or_in_it(target: str, is_change: bool) -> None:
    before = process_context() | {"mounts": mounted("/")}
    for one, other in (
        (before, before | {"mounts": mounted("/", target)}),
        (before | {"mounts": mounted("/", target)}, before),
    ):
        assert (
            context_changes(one, other, visible_paths=lambda: [Path("/usr"), Path("/data/set")])
            == [f"mount {target}"] * is_change
        )


def test_another_set_of_processors_or_another_namespace_is_reported() -> None:
    before = process_context()
    assert context_changes(before, before, visible_paths=list) == []
    assert context_changes(before, before | {"cpus": [77], "namespaces": [1]}, visible_paths=list) == [
        "namespaces",
        "cpus",
    ]


def test_an_installation_changes_the_state_of_a_folder(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(1, 1))
    before = package_mtimes([str(tmp_path), str(tmp_path / "absent")])
    (tmp_path / "new.dist-info").mkdir()
    assert list(before) == [str(tmp_path)]
    assert package_mtimes(before) != before


def test_a_change_of_the_code_is_another_version(tmp_path: Path) -> None:
    for name in ("instance/warm/worker.py", "instance/sandbox/supervisor.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    before = code_version(tmp_path)
    assert code_version(tmp_path) == before
    os.utime(tmp_path / "instance/sandbox/supervisor.py", (9_999_999_999, 9_999_999_999))
    assert code_version(tmp_path) != before
