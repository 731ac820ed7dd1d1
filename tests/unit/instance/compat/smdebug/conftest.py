"""Each test has a process without a hook."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import smdebug.pytorch as smd


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture(autouse=True)
def _no_hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SMDEBUG_CONFIG_FILE_PATH", "USE_SMDEBUG", "TRAINING_JOB_NAME", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    smd.del_hook()
    yield
    hook = smd.get_hook()
    if hook is not None:
        hook.close()
    smd.del_hook()
