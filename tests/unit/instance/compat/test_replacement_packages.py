"""Packages that replace missing ones, each tested in its own interpreter."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trainyard
from trainyard.engines.local.code import ensure_agent_code
from trainyard.instance.compat import compat_path

FOLDER = compat_path("not in a sandbox")
SOURCE = Path(trainyard.__file__).parents[1]


def printed(script: str, *options: str, later: Path | None = None) -> str:
    """Run a script with the replacement packages on its path, before the folder `later`, and return its output."""
    path = os.pathsep.join([FOLDER, *([str(later)] if later else [])])
    run = subprocess.run(
        [sys.executable, *options, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    return run.stdout.strip()


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the real packages."""
    for name in ("trainyard", "sagemaker_tensorflow", "horovod", "smdistributed", "smdebug"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("from .inner import kind")
        (tmp_path / name / "inner.py").write_text("kind = 'real'")
    return tmp_path


@pytest.mark.parametrize("name", ["trainyard", "sagemaker_tensorflow", "horovod", "smdistributed", "smdebug"])
def test_a_package_that_is_installed_is_used(installed: Path, name: str) -> None:
    script = f"import {name}, {name}.inner; print({name}.kind, {name}.__file__)"
    assert printed(script, "-S", later=installed) == f"real {installed}/{name}/__init__.py"


def test_trainyard_data_can_be_imported_where_the_package_is_not_installed() -> None:
    script = "import trainyard.data, sys; print(trainyard.__file__, sys.path[-2:])"
    assert printed(script, "-S") == f"{SOURCE}/trainyard/__init__.py {[str(SOURCE), FOLDER]}"


def test_replacement_packages_come_after_the_environments_own(installed: Path) -> None:
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
def test_horovod_for_another_framework_says_why_it_is_unsupported(framework: str) -> None:
    script = f"try: import horovod.{framework}\nexcept ImportError as error: print(error)"
    assert f"horovod.{framework.partition('.')[0]} is not available: the environment has no Horovod" in printed(
        script, "-S"
    )


def test_horovod_run_says_who_starts_ranks() -> None:
    script = "import horovod\ntry: horovod.run(print)\nexcept NotImplementedError as error: print(error)"
    assert "in a training job the launcher does" in printed(script, "-S")


def test_parts_that_a_real_package_lacks_are_found_behind_it(installed: Path) -> None:
    """AWS ships each library below smdistributed as its own package; one may be installed without the other."""
    (installed / "smdistributed" / "modelparallel").mkdir()
    (installed / "smdistributed" / "modelparallel" / "__init__.py").write_text("kind = 'real model parallelism'")
    script = (
        "import smdistributed.modelparallel as one, smdistributed.dataparallel as other\n"
        "print(one.kind, other.__version__)"
    )
    assert printed(script, "-S", later=installed) == "real model parallelism 2.5.0+trainyard"


def test_data_parallelism_for_tensorflow_says_why_it_is_unsupported() -> None:
    script = "try: import smdistributed.dataparallel.tensorflow\nexcept ImportError as error: print(error)"
    assert "MultiWorkerMirroredStrategy" in printed(script, "-S")


def test_a_real_smdebug_that_cannot_be_imported_is_replaced_with_a_warning(installed: Path) -> None:
    """Its last version cannot be imported with a current protobuf, and declares only some of its dependencies."""
    shutil.rmtree(installed / "trainyard")
    (installed / "smdebug" / "core").mkdir()
    (installed / "smdebug" / "core" / "__init__.py").write_text("kind = 'real'")
    (installed / "smdebug" / "inner.py").write_text("import smdebug.core, absent_one")
    script = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as said: import smdebug\n"
        "import smdebug.core.modes\n"
        "print(smdebug.__version__, len(said), said[0].message)"
    )
    assert printed(script, later=installed).startswith("1.0.34+trainyard 1 The package smdebug of the environment")


def test_smdebug_can_be_imported_outside_of_jobs_too() -> None:
    script = "import sys; import smdebug; print(smdebug.modes.TRAIN.name, smdebug.__version__, 'torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={})
    assert run.stdout.strip() == "TRAIN 1.0.34+trainyard False"


def test_smexperiments_can_be_imported_outside_of_jobs_too() -> None:
    script = "from smexperiments import experiment, tracker, trial; print(tracker.Tracker.__module__)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={})
    assert run.stdout.strip() == "smexperiments.tracker"


def test_smexperiments_and_runs_need_no_more_of_the_package_than_an_agent_has(tmp_path: Path) -> None:
    code = ensure_agent_code(tmp_path).folder
    script = (
        f"import sys; sys.path[:0] = [{str(code / 'trainyard' / 'instance' / 'compat')!r}, {str(code)!r}]\n"
        "import trainyard, smexperiments.tracker, smexperiments.experiment, trainyard.experiments.run\n"
        "print(trainyard.__file__)"
    )
    # Without site-packages, so without botocore.
    run = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert run.stdout.startswith(str(code)), run.stderr


def test_smdebug_that_is_installed_beside_ours_is_used(installed: Path) -> None:
    (installed / "smdebug.py").write_bytes((SOURCE / "smdebug.py").read_bytes())
    script = "import smdebug; print(smdebug.kind)"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(installed)}
    )
    assert run.stdout.strip() == "real"


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("mxnet", "MXNet has been retired"),
        ("tensorflow", "needs TensorFlow"),
    ],
)
def test_unsupported_parts_of_smdebug_say_why(module: str, sentence: str) -> None:
    script = f"try: import smdebug.{module}\nexcept ImportError as error: print(error)"
    assert sentence in printed(script)


@pytest.mark.parametrize(
    ("module", "name"),
    [("locations", "IndexFileLocationUtils"), ("writer", "FileWriter"), ("error_handling_agent", "ErrorHandlingAgent")],
)
def test_unsupported_names_of_smdebug_say_why(module: str, name: str) -> None:
    script = f"try: from smdebug.core.{module} import {name}\nexcept NotImplementedError as error: print(error)"
    assert f"does not support smdebug.core.{module}.{name}" in printed(script)


def test_smdebug_needs_no_more_of_the_package_than_an_agent_has(tmp_path: Path) -> None:
    code = ensure_agent_code(tmp_path).folder
    script = (
        "import smdebug.pytorch, smdebug.rules, smdebug.rules.action, smdebug.trials, smdebug.analysis.utils\n"
        "import smdebug.core.json_config, smdebug.xgboost, trainyard\n"
        "print(trainyard.__file__, smdebug.trials.__file__)"
    )
    path = os.pathsep.join([str(code / "trainyard" / "instance" / "compat"), str(code)])
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env={"PYTHONPATH": path}
    )
    assert run.stdout.split()[0] == f"{code}/trainyard/__init__.py", run.stderr
