import json
import os
from pathlib import Path
from typing import Any

import pytest

from trainyard.foundation.home import process_start
from trainyard.instance.warm.process_context import package_mtimes, process_context
from trainyard.instance.warm.worker_selection import WorkerSelection
from trainyard.link.contract import WarmSpec
from trainyard.link.warm import WorkerFolder, hold_worker

PYTHON = "/usr/bin/python3"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("import torch")
    return folder


def worker_selection(code: Path, **changed: Any) -> WorkerSelection:
    spec = WarmSpec(str(code.parent / "warm" / "111"), 600)
    values: dict[str, Any] = {"python": PYTHON, "code": code, "script": "train.py", "variables": {}}
    return WorkerSelection(spec, **(values | changed))


def serve(wanted: WorkerSelection, **changed: Any) -> WorkerFolder:
    """Make it look as if this process were the worker that is wanted."""
    folder = wanted.folder
    folder.root.mkdir(parents=True, exist_ok=True)
    facts = {
        "pid": os.getpid(),
        "started": process_start(os.getpid()),
        "python": PYTHON,
        "circumstances": process_context(),
        "folders": package_mtimes(["/usr"]),
        "names": ["json", "os", "torch", "typing_extensions"],
        "packages": ["torch", "typing_extensions"],
    }
    folder.description.write_text(json.dumps(facts | changed))
    return folder


def test_a_worker_that_stands_where_the_agent_does_is_taken(code: Path) -> None:
    assert worker_selection(code).find_forker(list) is None
    serve(worker_selection(code))
    assert worker_selection(code).find_forker(list) is not None


def test_a_worker_is_for_one_python_and_one_set_of_frameworks(code: Path) -> None:
    serve(worker_selection(code))
    assert worker_selection(code, python="/usr/local/bin/python3").find_forker(list) is None
    (code / "more.py").write_text("import pandas")
    assert worker_selection(code).find_forker(list) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"circumstances": {}},
        {"folders": {"/usr": 1}},
        {"pid": 2**22 - 1},
    ],
    ids=["other namespaces", "another installation", "dead"],
)
def test_a_worker_that_stands_elsewhere_is_not(code: Path, changed: dict[str, Any]) -> None:
    serve(worker_selection(code), **changed)
    assert worker_selection(code).find_forker(list) is None


@pytest.mark.parametrize("name", ["PYTHONPATH", "OMP_NUM_THREADS", "LD_PRELOAD", "TORCH_LOGS", "LC_ALL", "LANG"])
def test_variables_that_count_at_the_start_need_a_start(code: Path, name: str) -> None:
    serve(worker_selection(code))
    assert worker_selection(code, variables={name: "1"}).find_forker(list) is None
    assert (
        worker_selection(code, variables={"SM_X": "1", "AWS_REGION": "x", "LANGUOR": "1"}).find_forker(list) is not None
    )


@pytest.mark.parametrize(
    ("file", "is_taken"),
    [
        ("torch.py", False),
        ("os/__init__.py", False),
        ("deep/torch/__init__.py", False),
        ("typing_extensions.cpython-311-x86_64-linux-gnu.so", False),
        ("sitecustomize.py", False),
        ("deep/json.py", True),
        ("deep/sitecustomize.py", True),
        ("torchy.py", True),
    ],
)
def test_code_with_a_module_of_the_same_name_as_one_of_the_worker_is_not_forked(
    code: Path, file: str, is_taken: bool
) -> None:
    serve(worker_selection(code))
    (code / file).parent.mkdir(parents=True, exist_ok=True)
    (code / file).touch()
    assert (worker_selection(code).find_forker(list) is not None) == is_taken


@pytest.mark.parametrize(("package", "is_taken"), [("typing_extensions.py", False), ("tqdm", True)])
def test_packages_over_the_environment_may_add_but_not_replace(code: Path, package: str, is_taken: bool) -> None:
    serve(worker_selection(code))
    assert (worker_selection(code, packages=[package]).find_forker(list) is not None) == is_taken


def test_the_reason_for_a_missing_worker_is_remembered_for_a_while(code: Path) -> None:
    wanted = worker_selection(code)
    assert wanted.refusal is None
    folder = serve(wanted)
    folder.refusal.write_text('{"why": "somebody else owns it"}')
    assert worker_selection(code).refusal == "somebody else owns it"
    descriptor = hold_worker(folder)
    assert worker_selection(code).refusal is None  # another one is being made
    assert descriptor is not None
    os.close(descriptor)
    os.utime(folder.refusal, (1, 1))
    assert worker_selection(code).refusal is None


def test_code_that_cannot_be_looked_through_starts_cold(code: Path) -> None:
    serve(worker_selection(code))
    assert worker_selection(code.parent / "absent").find_forker(list) is None


def test_a_description_of_another_kind_is_no_worker_to_fork_from(code: Path) -> None:
    folder = serve(worker_selection(code))
    facts = json.loads(folder.description.read_text())
    folder.description.write_text(json.dumps({name: facts[name] for name in ("pid", "started", "python")}))
    assert worker_selection(code).find_forker(list) is None
