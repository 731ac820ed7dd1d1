"""The stand-ins where tests of this folder can import them."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest

from trainyard.instance.compat import stand_ins


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of the stand-ins, or one that they import, by the name that programs have for it."""
    monkeypatch.syspath_prepend(stand_ins("not in a sandbox"))
    return import_module
