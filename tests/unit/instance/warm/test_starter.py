import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.link.test_warm import make_worker
from trainyard.foundation.interpreter import PACKAGE, boot_code
from trainyard.instance.warm.starter import surplus_workers
from trainyard.link.warm import WorkerFolder, read_faults


def names(warm: Path, account: str) -> list[str]:
    return sorted(folder.root.name for folder in surplus_workers(warm, account))


@pytest.mark.parametrize(("running", "leaving"), [(2, []), (3, ["0"]), (5, ["0", "1", "2"])])
def test_the_least_recently_used_workers_of_an_account_make_room_for_a_new_one(
    tmp_path: Path, running: int, leaving: list[str]
) -> None:
    for number in range(running):
        make_worker(tmp_path, "111", str(number), used=number + 1)
    make_worker(tmp_path, "222", "other", used=0)
    assert names(tmp_path, "111") == leaving


def test_the_least_recently_used_workers_of_the_machine_make_room_for_a_new_one(tmp_path: Path) -> None:
    for number in range(9):
        make_worker(tmp_path, str(number), str(number), used=number + 1)
    assert names(tmp_path, "new") == ["0", "1"]
    assert names(tmp_path, "0") == ["0", "1"]


def test_an_unexpected_error_is_logged_with_its_traceback_and_is_a_fault(tmp_path: Path) -> None:
    folder = WorkerFolder(tmp_path / "111" / "one")
    # Orders that name no Python.
    words = [sys.executable, "-I", "-S", "-c", boot_code("trainyard.instance.warm.starter"), PACKAGE]
    subprocess.run([*words, json.dumps({"folder": str(folder.root)})], check=True)
    (fault,) = read_faults(tmp_path)
    assert "KeyError" in fault
    assert str(folder.log) in fault
    assert "Traceback" in folder.log.read_text()
