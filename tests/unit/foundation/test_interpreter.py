"""The text that starts a module of this package in a fresh interpreter."""

import subprocess
import sys
from pathlib import Path

import trainyard
from trainyard.foundation.interpreter import PACKAGE, boot_code


def test_the_package_folder_is_the_one_that_is_imported() -> None:
    assert trainyard.__file__ is not None
    assert Path(trainyard.__file__).resolve().parent == Path(PACKAGE)


def test_the_main_of_the_module_runs_without_the_init_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("raise AssertionError('the package itself was imported')")
    part = tmp_path / "part"
    part.mkdir()
    (part / "__init__.py").touch()
    (part / "program.py").write_text("import sys\n\ndef main():\n    print(sys.argv[1:])\n")
    assert run("trainyard.part.program", str(tmp_path), "orders") == f"['{tmp_path}', 'orders']\n"


def test_the_setup_runs_before_anything_is_imported(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\n\ndef main():\n    print(sys.dont_write_bytecode)\n")
    assert run("trainyard.program", str(tmp_path), setup="sys.dont_write_bytecode = True") == "True\n"
    assert not (tmp_path / "__pycache__").exists()


def run(module: str, *arguments: str, setup: str = "") -> str:
    command = [sys.executable, "-I", "-S", "-c", boot_code(module, setup=setup), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
