"""Makes the replacement packages importable for the tests in this folder."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest

from trainyard.instance.compat import compat_path


@pytest.fixture
def import_compat(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a module of the replacement packages by the name that programs use."""
    monkeypatch.syspath_prepend(compat_path("not in a sandbox"))
    return import_module
