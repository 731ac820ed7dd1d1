"""What is missing is named together with the command that installs it."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.extras import EXTRAS, MissingExtra, extra_of, install_command, missing_module, require_extra

PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


def test_the_distribution_has_every_extra() -> None:
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS) <= set(declared)
    for name, extra in EXTRAS.items():
        installed = " ".join(_requirements(declared, name))
        assert all(module in installed for module in extra.modules), name


def test_the_extra_all_has_every_other() -> None:
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert {*_requirements(declared, "all")} >= {each for name in EXTRAS for each in _requirements(declared, name)}


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert missing_module("tuning") == "scipy"
    with pytest.raises(MissingExtra) as caught:
        require_extra("tuning", where="the Python of the yard")
    assert caught.value.message == (
        "Hyperparameter tuning needs scipy, which is not installed in the Python of the yard: "
        "pip install 'trainyard[tuning]'"
    )
    # The callers of the API get a validation error; importers an ImportError.
    assert isinstance(caught.value, InvalidRequest)
    assert isinstance(caught.value, ImportError)


def test_a_failed_import_is_traced_to_the_smallest_extra() -> None:
    error = extra_of(ModuleNotFoundError("No module named 'numpy'", name="numpy"))
    assert error is not None
    assert install_command("debugger") in error.message
    assert extra_of(ModuleNotFoundError("No module named 'nothing'", name="nothing")) is None


def _requirements(declared: dict[str, list[str]], extra: str) -> list[str]:
    """Return the packages of an extra, with those of the extras that it includes."""
    found = []
    for requirement in declared[extra]:
        if included := re.fullmatch(r"trainyard\[(.+)]", requirement):
            found += [each for name in included[1].split(",") for each in _requirements(declared, name)]
        else:
            found.append(requirement)
    return found
