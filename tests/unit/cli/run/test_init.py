import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.cli.run.command import run


def test_a_new_project_has_options_that_a_run_accepts(
    trainyard: Trainyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = trainyard("init", str(tmp_path / "my project"), "--json", "Created")

    assert result.code == 0
    assert json.loads(result.out) == {"Created": ["train.py", "trainyard.toml", ".gitignore"]}
    assert f"cd '{tmp_path}/my project' && trainyard run" in result.err
    monkeypatch.chdir(tmp_path / "my project")
    assert sorted(path.name for path in Path().iterdir()) == [".gitignore", "train.py", "trainyard.toml"]
    assert run.make_context("run", []).params["script"] == "train.py"


def test_existing_files_are_never_overwritten(trainyard: Trainyard, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine")
    assert trainyard("init", str(tmp_path)).code == 0
    assert (tmp_path / ".gitignore").read_text() == "mine"

    (tmp_path / "trainyard.toml").unlink()
    (tmp_path / "train.py").write_text("mine")
    again = trainyard("init", str(tmp_path))

    assert again.code == 1
    assert "train.py already exists, so nothing was written" in again.err
    assert not (tmp_path / "trainyard.toml").exists()
