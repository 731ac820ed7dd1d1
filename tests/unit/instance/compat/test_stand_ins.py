"""Packages that stand in for absent ones, in interpreters of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainyard
from trainyard.instance.compat import stand_ins

FOLDER = stand_ins("not in a sandbox")
SOURCE = Path(trainyard.__file__).parents[1]


def printed(script: str, *options: str, later: Path | None = None) -> str:
    """What a script prints that has the stand-ins on its path, before the folder `later`."""
    path = os.pathsep.join([FOLDER, *([str(later)] if later else [])])
    run = subprocess.run(
        [sys.executable, *options, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    return run.stdout.strip()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of packages that has the real ones."""
    for name in ("trainyard", "sagemaker_tensorflow", "horovod", "smdistributed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("from .inner import kind")
        (tmp_path / name / "inner.py").write_text("kind = 'real'")
    return tmp_path


@pytest.mark.parametrize("name", ["trainyard", "sagemaker_tensorflow", "horovod", "smdistributed"])
def test_a_package_that_is_installed_is_used(installed: Path, name: str) -> None:
    script = f"import {name}, {name}.inner; print({name}.kind, {name}.__file__)"
    assert printed(script, "-S", later=installed) == f"real {installed}/{name}/__init__.py"


def test_readers_are_found_where_the_package_is_not_installed() -> None:
    script = "import trainyard.data, sys; print(trainyard.__file__, sys.path[-2:])"
    assert printed(script, "-S") == f"{SOURCE}/trainyard/__init__.py {[str(SOURCE), FOLDER]}"


def test_the_stand_ins_go_behind_all_that_the_environment_has(installed: Path) -> None:
    assert printed("import trainyard, sys; print(sys.path[-1])", "-S", later=installed) == FOLDER


def test_a_real_package_that_is_broken_is_not_hidden(installed: Path) -> None:
    (installed / "sagemaker_tensorflow" / "inner.py").write_text("import absent_one")
    script = "try: import sagemaker_tensorflow\nexcept ModuleNotFoundError as error: print(error.name)"
    assert printed(script, "-S", later=installed) == "absent_one"


def test_without_tensorflow_the_import_says_so() -> None:
    script = "try: import sagemaker_tensorflow\nexcept ModuleNotFoundError as error: print(error.name)"
    assert printed(script, "-S") == "tensorflow"


def test_horovod_says_its_version_without_torch() -> None:
    assert printed("import horovod; print(horovod.__version__)", "-S") == "0.28.1+trainyard"


@pytest.mark.parametrize("framework", ["tensorflow", "keras", "mxnet", "tensorflow.keras"])
def test_horovod_for_another_framework_says_why_it_is_not_there(framework: str) -> None:
    script = f"try: import horovod.{framework}\nexcept ImportError as error: print(error)"
    assert f"horovod.{framework.partition('.')[0]} is not here: the environment has no Horovod" in printed(script, "-S")


def test_horovod_run_says_who_starts_ranks() -> None:
    script = "import horovod\ntry: horovod.run(print)\nexcept NotImplementedError as error: print(error)"
    assert "in a training job the launcher does" in printed(script, "-S")


def test_parts_that_a_real_package_lacks_are_found_behind_it(installed: Path) -> None:
    """AWS has each library below smdistributed in a package of its own; one may be there without the other."""
    (installed / "smdistributed" / "modelparallel").mkdir()
    (installed / "smdistributed" / "modelparallel" / "__init__.py").write_text("kind = 'real model parallelism'")
    script = (
        "import smdistributed.modelparallel as one, smdistributed.dataparallel as other\n"
        "print(one.kind, other.__version__)"
    )
    assert printed(script, "-S", later=installed) == "real model parallelism 2.5.0+trainyard"


def test_data_parallelism_for_tensorflow_says_why_it_is_not_there() -> None:
    script = "try: import smdistributed.dataparallel.tensorflow\nexcept ImportError as error: print(error)"
    assert "MultiWorkerMirroredStrategy" in printed(script, "-S")
