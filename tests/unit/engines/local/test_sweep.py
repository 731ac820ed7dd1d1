import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.engines.local.processes import Deadline
from trainyard.engines.local.sweep import remove_tree, sweep_instance
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.home import process_start
from trainyard.link.folders import InstanceFolder
from trainyard.link.ledger import Ledger, LedgerKind

CAN_MOUNT = (
    os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0
)


@pytest.fixture
def folder(tmp_path: Path) -> InstanceFolder:
    root = tmp_path / "algo-1"
    root.mkdir()
    return InstanceFolder(root)


def test_what_only_a_running_job_needs_is_removed_and_the_rest_stays(folder: InstanceFolder) -> None:
    for unneeded in (folder.ml, folder.scratch):
        (unneeded / "deep").mkdir(parents=True)
        (unneeded / "deep" / "file").touch()
    folder.logs.mkdir()
    folder.spool.touch()

    sweep_instance(folder, Deadline(1))

    assert sorted(path.name for path in folder.root.iterdir()) == ["logs", "spool"]


def test_a_process_in_the_ledger_is_ended(folder: InstanceFolder) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        Ledger(folder.ledger).add(LedgerKind.PROCESS, pid=process.pid, started=process_start(process.pid))

        sweep_instance(folder, Deadline(10))

        assert process.wait() == -9


def test_a_supervisor_in_the_ledger_may_clean_up_before_it_ends(folder: InstanceFolder, tmp_path: Path) -> None:
    code = f"import time; time.sleep(0.3); open({str(tmp_path / 'cleared')!r}, 'w')"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        Ledger(folder.ledger).add(LedgerKind.SUPERVISOR, pid=process.pid, started=process_start(process.pid))

        sweep_instance(folder, Deadline(20))

        assert process.wait() == 0
    assert (tmp_path / "cleared").exists()


def test_a_supervisor_that_does_not_end_is_killed(folder: InstanceFolder) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        Ledger(folder.ledger).add(LedgerKind.SUPERVISOR, pid=process.pid, started=process_start(process.pid))

        sweep_instance(folder, Deadline(0.4))

        assert process.wait() == -9


def test_a_folder_in_the_ledger_is_removed_also_when_it_was_never_made(folder: InstanceFolder, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    Ledger(folder.ledger).add(LedgerKind.FOLDER, path=str(made))
    Ledger(folder.ledger).add(LedgerKind.FOLDER, path=str(tmp_path / "never"))
    Ledger(folder.ledger).add(LedgerKind.CGROUP, path=str(tmp_path / "no-group"))
    Ledger(folder.ledger).add(LedgerKind.MOUNT, path=str(tmp_path / "no-mount"))

    sweep_instance(folder, Deadline(1))
    sweep_instance(folder, Deadline(1))

    assert not made.exists()


def test_a_tree_is_removed_although_the_job_closed_its_folders(tmp_path: Path) -> None:
    tree = tmp_path / "ml"
    inner = tree / "model" / "closed"
    inner.mkdir(parents=True)
    (inner / "file").touch(mode=0o000)
    inner.chmod(0o000)
    (tree / "model").chmod(0o500)

    remove_tree(tree)

    assert not tree.exists()


def test_the_targets_of_links_are_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "object").write_text("stored")
    (kept / "object").chmod(0o444)
    tree = tmp_path / "ml"
    tree.mkdir()
    (tree / "link").symlink_to(kept)
    (tree / "object").hardlink_to(kept / "object")

    remove_tree(tree)

    assert (kept / "object").read_text() == "stored"
    assert (kept / "object").stat().st_mode & 0o777 == 0o444
    assert kept.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(not CAN_MOUNT, reason="mounting needs root here")
def test_a_mount_in_the_ledger_is_undone_before_its_folder_is_removed(folder: InstanceFolder, tmp_path: Path) -> None:
    stored = tmp_path / "stored objects"
    stored.mkdir()
    (stored / "object").touch()
    target = folder.ml / "input data"
    target.mkdir(parents=True)
    Ledger(folder.ledger).add(LedgerKind.MOUNT, path=str(target))
    subprocess.run(["mount", "--bind", str(stored), str(target)], check=True)
    try:
        with pytest.raises(Unavailable, match="still mounted"):
            remove_tree(folder.ml)

        sweep_instance(folder, Deadline(1))
    finally:
        subprocess.run(["umount", "-q", str(target)], check=False)

    assert not folder.ml.exists()
    assert (stored / "object").exists()
