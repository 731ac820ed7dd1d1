from pathlib import Path

import pytest

from tests.unit._sdk.training.test_source_code import entries
from trainyard._sdk.training.local_modules import find_local_code
from trainyard._sdk.training.source_code import pack


def write(folder: Path, **files: str) -> Path:
    """Write files whose names have `__` for a slash and end in .py, and return the script train.py."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "train.py"


def modules(script: Path) -> list[str]:
    return [str(file) for file in find_local_code(script).modules]


def test_imported_modules_are_followed_and_others_are_left_out(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        train="import os, model\nimport torch.nn as nn\n",
        model="from layers import Dense\n",
        layers="import model\n",
        unrelated="",
    )

    assert modules(script) == ["layers.py", "model.py"]


def test_imports_in_functions_and_by_name_count(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        train="import importlib\ndef main():\n    import data\n    importlib.import_module('losses')\n",
        data="",
        losses="",
    )

    assert modules(script) == ["data.py", "losses.py"]


def test_a_package_brings_all_its_python_files_and_nothing_else(tmp_path: Path) -> None:
    script = write(tmp_path, train="from nets.cnn import Net\n")
    for name in ("__init__.py", "cnn.py", "sub/__init__.py", "sub/rnn.py", "weights.bin", ".cache/a.py"):
        path = tmp_path / "nets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import other\n" if name == "cnn.py" else "")
    (tmp_path / "nets" / "venv").mkdir()
    (tmp_path / "nets" / "venv" / "pyvenv.cfg").write_text("")
    (tmp_path / "nets" / "venv" / "site.py").write_text("")
    (tmp_path / "other.py").write_text("")

    assert modules(script) == ["nets/__init__.py", "nets/cnn.py", "nets/sub/__init__.py", "nets/sub/rnn.py", "other.py"]


def test_a_folder_that_is_no_package_brings_the_imported_modules_only(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        train="import data.loader\nfrom data import cleaning\nimport sets\n",
        data__loader="from . import parsing\nfrom .more.words import x\nfrom ... import outside\n",
        data__cleaning="",
        data__parsing="",
        data__more__words="",
        data__unused="",
        sets__huge="",
    )

    assert modules(script) == ["data/cleaning.py", "data/loader.py", "data/more/words.py", "data/parsing.py"]


@pytest.mark.parametrize("text", ["def broken(:\n", "x = '\0'\n", ""])
def test_a_script_that_cannot_be_parsed_or_imports_nothing_has_no_modules(tmp_path: Path, text: str) -> None:
    assert modules(write(tmp_path, train=text, other="")) == []


def test_requirements_come_with_what_they_include_from_the_folder(tmp_path: Path) -> None:
    script = write(tmp_path, train="")
    (tmp_path / "requirements.txt").write_text(
        "emoji\n-r more/base.txt\n--constraint=pins.txt  # newest\n./wheels/a-1-py3-none-any.whl\n-r ../outside.txt\n"
    )
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "base.txt").write_text("-r base.txt\n-r ../requirements.txt\n")
    (tmp_path / "pins.txt").write_text("")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a-1-py3-none-any.whl").write_bytes(b"-r pins.txt")
    (tmp_path.parent / "outside.txt").write_text("")

    found = [str(file) for file in find_local_code(script).requirements]

    assert found == ["more/base.txt", "pins.txt", "requirements.txt", "wheels/a-1-py3-none-any.whl"]


def test_a_shell_script_has_no_local_code(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("emoji\n")
    (tmp_path / "train.sh").write_text("python -m model\n")

    assert find_local_code(tmp_path / "train.sh").files == []


def test_local_code_is_packed_where_the_script_finds_it(tmp_path: Path) -> None:
    script = write(tmp_path, train="import data.loader, model\n", data__loader="", model="")

    code = pack(str(script), None, local_code=find_local_code(script))

    assert list(entries(code.archive)) == ["data", "data/loader.py", "model.py", "train.py"]
