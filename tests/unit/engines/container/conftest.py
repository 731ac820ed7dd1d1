from pathlib import Path

import pytest

from tests.unit.engines.container.pretended_tool import PretendedTool


@pytest.fixture
def tool(tmp_path: Path) -> PretendedTool:
    return PretendedTool.made_in(tmp_path / "tool")
